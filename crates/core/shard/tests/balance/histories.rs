//! Random histories of calls: counts match the calls and return to zero in the end.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Call(usize),
    Respond { back: usize, status: u16 },
    Bye(usize),
    CalleesBye(usize),
    Cancel(usize),
    Unreachable(usize),
    Wait(u64),
    Drain(usize),
    Undrain(usize),
    Reload(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_usize).prop_map(Step::Call),
        4 => (0..6_usize, prop::sample::select(vec![100, 180, 200, 302, 404, 407, 486, 500, 503, 603]))
            .prop_map(|(back, status)| Step::Respond { back, status }),
        2 => (0..40_usize).prop_map(Step::Bye),
        1 => (0..40_usize).prop_map(Step::CalleesBye),
        1 => (0..40_usize).prop_map(Step::Cancel),
        1 => (0..4_usize).prop_map(Step::Unreachable),
        2 => (1..40_000_u64).prop_map(Step::Wait),
        1 => (0..4_usize).prop_map(Step::Drain),
        1 => (0..4_usize).prop_map(Step::Undrain),
        1 => (1..5_usize).prop_map(Step::Reload),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Policy::Hash,
        Policy::RoundRobin,
        Policy::Random,
        Policy::LeastCalls,
        Policy::LeastTransactions,
        Policy::LeastWork,
    ])
}

/// Events of an answered call.
#[derive(Clone, Debug)]
enum CallEvent {
    Call,
    Bye { call: usize, is_callers: bool },
    Answer { bye: usize, status: u16 },
    Pass,
    PassLong,
}

fn moment() -> impl Strategy<Value = CallEvent> {
    let statuses = vec![100, 200, 200, 200, 401, 407, 408, 481, 500, 503, 603];
    prop_oneof![
        4 => Just(CallEvent::Call),
        3 => (0..20_usize, prop::bool::weighted(0.7)).prop_map(|(call, is_callers)| CallEvent::Bye { call, is_callers }),
        4 => (0..6_usize, prop::sample::select(statuses)).prop_map(|(bye, status)| CallEvent::Answer { bye, status }),
        1 => Just(CallEvent::Pass),
        1 => Just(CallEvent::PassLong),
    ]
}

proptest! {
    /// Whatever is lost, answered twice, cancelled, drained or reloaded: when all calls are over, the counts are
    /// zero.
    #[test]
    fn all_counters_return_to_zero(policy in any_policy(), steps in prop::collection::vec(step(), 1..120), crash: bool) {
        let targets = targets(4);
        let mut world = world(config(policy), &targets);
        // All requests that may still be answered.
        let mut requests: Vec<SentMessage> = Vec::new();
        let is_request = |sent: &SentMessage| matches!(sent.method(), "INVITE" | "BYE");
        let invite_of = |requests: &[SentMessage], number: usize| {
            let is_it = |sent: &&SentMessage| sent.method() == "INVITE" && number_of(sent) == number;
            requests.iter().find(is_it).cloned()
        };
        for step in steps {
            match step {
                Step::Call(number) => {
                    let sent = world.input(ALICE, &text("INVITE", number, ""));
                    requests.extend(sent.into_iter().filter(is_request));
                }
                Step::Respond { back, status } => {
                    if let Some(request) = requests.len().checked_sub(back + 1).map(|at| requests[at].clone()) {
                        let sent = world.respond(&request, status, "b", "");
                        requests.extend(sent.into_iter().filter(is_request));
                    }
                }
                Step::Bye(number) => {
                    if let Some(first) = invite_of(&requests, number) {
                        let bye = world.input(ALICE, &in_dialog(&first, "BYE", number, &format!("sip:{SERVER}")));
                        requests.extend(bye.into_iter().filter(is_request));
                    }
                }
                Step::CalleesBye(number) => {
                    if let Some(first) = invite_of(&requests, number) {
                        let bye = world.input(&first.to.to_string(), &callees_bye(&first));
                        requests.extend(bye.into_iter().filter(is_request));
                    }
                }
                Step::Cancel(number) => {
                    let cancel = text("CANCEL", number, "").replace("z9hG4bKCANCEL", "z9hG4bKINVITE");
                    world.input(ALICE, &cancel);
                }
                Step::Unreachable(number) => {
                    let sent = world.give(Input::Unreachable { peer: address(number).parse().expect("an address") });
                    requests.extend(sent.into_iter().filter(is_request));
                }
                Step::Wait(millis) => {
                    let sent = world.wait(Duration::from_millis(millis));
                    requests.extend(sent.into_iter().map(|(_, sent)| sent).filter(is_request));
                }
                Step::Drain(number) => targets[number].drain(),
                Step::Undrain(number) => targets[number].undrain(world.now),
                Step::Reload(count) => {
                    let kept = &targets[..count.min(targets.len())];
                    let route = route(config(policy), kept);
                    world.configure(|snapshot| snapshot.routes = vec![route]);
                }
            }
        }
        if crash {
            drop(world);
        } else {
            // Sessions without BYE have a maximum age.
            world.wait(Duration::from_secs(13 * 3600));
            prop_assert_eq!(world.shard.transactions(), 0);
        }
        prop_assert_eq!(counts(&targets), vec![(0, 0); 4]);
        prop_assert_eq!(targets.iter().map(|target| target.work()).sum::<u64>(), 0);
    }

    /// Whatever happens to BYEs, a call counts from its INVITE until its first BYE is answered or given up, and the
    /// target with the fewest such calls gets the next.
    #[test]
    fn a_call_counts_until_its_bye_is_answered(steps in prop::collection::vec(moment(), 1..120), crash: bool) {
        let targets = targets(3);
        let mut world = world(config(Policy::LeastCalls), &targets);
        world.configure(|snapshot| snapshot.proxy.avoid_for = Duration::ZERO);
        // Each call with its target, until it stops counting.
        let mut calls: Vec<(SentMessage, Option<usize>)> = Vec::new();
        // Unanswered BYEs, with the call that each has ended.
        let mut byes: Vec<(SentMessage, Option<usize>)> = Vec::new();
        let mut ended: Vec<usize> = Vec::new();
        for (serial, step) in steps.into_iter().enumerate() {
            match step {
                CallEvent::Call => {
                    let before = targets.iter().map(|target| target.calls()).min();
                    let first = call(&mut world, calls.len());
                    let at = (0..3).find(|number| first.to == calls_of(*number)).expect("one of them");
                    prop_assert_eq!(Some(targets[at].calls() - 1), before, "it had the fewest");
                    calls.push((first, Some(at)));
                }
                CallEvent::Bye { call, is_callers } if call < calls.len() => {
                    let first = calls[call].0.clone();
                    let (from, text) = if is_callers {
                        (ALICE.to_owned(), in_dialog(&first, "BYE", call, &format!("sip:{SERVER}")))
                    } else {
                        (first.to.to_string(), callees_bye(&first))
                    };
                    // Each is a different request, so that those after the end of the call are checked too.
                    let text = text.replacen("z9hG4bK", &format!("z9hG4bK{serial}x"), 1);
                    let bye = find(&world.input(&from, &text), "BYE");
                    prop_assert!(world.input(&from, &text).iter().all(|sent| sent.method() != "BYE"), "the same again");
                    let is_first = !ended.contains(&call);
                    ended.push(call);
                    if is_first && !is_callers {
                        calls[call].1 = None;
                    }
                    byes.push((bye, (is_first && is_callers).then_some(call)));
                }
                CallEvent::Answer { bye, status } if bye < byes.len() => {
                    let (request, call) = byes[bye].clone();
                    world.respond(&request, status, "", "");
                    if status >= 200 {
                        byes.swap_remove(bye);
                        call.into_iter().for_each(|call| calls[call].1 = None);
                    }
                }
                CallEvent::Pass => drop(world.wait(Duration::from_millis(100))),
                // Longer than Timer F, the wait for the response to a BYE.
                CallEvent::PassLong => {
                    world.wait(Duration::from_secs(40));
                    byes.drain(..).filter_map(|(_, call)| call).for_each(|call| calls[call].1 = None);
                }
                CallEvent::Bye { .. } | CallEvent::Answer { .. } => {}
            }
            let expected = |number| calls.iter().filter(|(_, at)| *at == Some(number)).count();
            let counted: Vec<_> = targets.iter().map(|target| target.calls() as usize).collect();
            prop_assert_eq!(counted, (0..3).map(expected).collect::<Vec<_>>());
        }
        if crash {
            drop(world);
        } else {
            world.wait(Duration::from_secs(13 * 3600));
            prop_assert_eq!(world.shard.contexts(), 0);
        }
        prop_assert_eq!(counts(&targets), vec![(0, 0); 3]);
    }
}
