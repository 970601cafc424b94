//! Counts and averages of targets, and the policies that use them.

use core::time::Duration;
use std::collections::VecDeque;

use strowger_balancer::{
    BYE_WEIGHT, CallGuard, Candidates, MethodClass, MethodWeights, Policy, RequestGuard, SelectionInput, Set,
    SetConfig, Target, Weights,
};
use strowger_foundation::Timestamp;

use crate::common::{assert_parts, call_id, config, members, order, pick, set, tally, weighted};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn after(micros: u64) -> Timestamp {
    NOW + Duration::from_micros(micros)
}

fn least_work(weights: Weights, count: usize) -> Set {
    Set::new(SetConfig { weights, ..config(Policy::LeastWork) }, members(count)).expect("valid")
}

fn begin(set: &Set, member: usize, class: MethodClass) -> RequestGuard {
    set.begin_request(member, NOW, class).expect("a member")
}

#[test]
fn least_work_weighs_an_invite_more_than_a_bye() {
    // Two BYEs here, one INVITE there: the second has fewer transactions and less work; at TLWL-2 the work is equal,
    // and if an INVITE weighs three the first has less.
    let heavy = MethodWeights::TLWL_2.with(MethodClass::Invite, 3_000);
    for (weights, expected) in
        [(MethodWeights::EVEN, [0, 100]), (MethodWeights::TLWL_1_75, [0, 100]), (heavy, [100, 0])]
    {
        let set = least_work(Weights::Fixed(weights), 2);
        let _tokens =
            [begin(&set, 0, MethodClass::Bye), begin(&set, 0, MethodClass::Bye), begin(&set, 1, MethodClass::Invite)];
        let firsts = (0..100).map(|number| order(&set, &pick(&call_id(number)))[0]);
        assert_eq!(tally(firsts, 2), expected);
    }
    let set = least_work(Weights::Fixed(MethodWeights::TLWL_2), 2);
    let _tokens =
        [begin(&set, 0, MethodClass::Bye), begin(&set, 0, MethodClass::Bye), begin(&set, 1, MethodClass::Invite)];
    let counts = tally((0..1_000).map(|number| order(&set, &pick(&call_id(number)))[0]), 2);
    assert!(counts.iter().all(|count| *count > 400), "equal work is shared: {counts:?}");
}

#[test]
fn each_policy_uses_its_count() {
    let all = members(3);
    // Calls, transactions and work have different minima.
    let call_guards = [all[0].target.begin_call(), all[0].target.begin_call(), all[1].target.begin_call()];
    let begin = |at: usize, work| all[at].target.begin_request(NOW, work, MethodClass::Other);
    let work = [begin(0, 1_000), begin(1, 400), begin(1, 400), begin(2, 1_500), begin(2, 1_500)];
    for (policy, expected) in [(Policy::LeastCalls, 2), (Policy::LeastTransactions, 0), (Policy::LeastWork, 1)] {
        assert_eq!(order(&set(policy, all.clone()), &pick("a"))[0], expected, "{policy}");
    }
    drop((call_guards, work));
}

#[test]
fn load_is_relative_to_weight() {
    for policy in [Policy::LeastCalls, Policy::LeastTransactions, Policy::LeastWork] {
        let weights = [4, 2, 1, 1];
        let set = set(policy, weighted(&weights));
        let mut tokens = Vec::new();
        for number in 0..800 {
            let member = order(&set, &pick(&call_id(number)))[0];
            tokens.push((set.begin_call(member), begin(&set, member, MethodClass::Invite)));
        }
        let calls: Vec<u32> = set.members().iter().map(|member| member.target.calls()).collect();
        let is_even = calls.iter().zip(weights).all(|(calls, weight)| calls.abs_diff(100 * u32::from(weight)) <= 2);
        assert!(is_even, "{policy}: {calls:?}");
    }
}

/// Makes calls one after the other, `at_once` of them in progress; returns how many each target got.
fn one_by_one(set: &Set, at_once: usize, calls: u64) -> Vec<u64> {
    let mut waiting = VecDeque::new();
    let chosen = (0..calls).map(|number| {
        if waiting.len() >= at_once
            && let Some((work, call_guard)) = waiting.pop_front()
        {
            RequestGuard::handle_final(work, after(1_000));
            drop::<Option<CallGuard>>(call_guard);
        }
        let member = order(set, &pick(&call_id(number)))[0];
        waiting.push_back((begin(set, member, MethodClass::Invite), set.begin_call(member)));
        member
    });
    tally(chosen.collect::<Vec<_>>(), set.members().len())
}

fn by_load() -> impl Iterator<Item = SetConfig> {
    let policies = Policy::ALL.into_iter().filter(|policy| policy.is_by_load());
    policies.flat_map(|policy| Candidates::ALL.map(|candidates| SetConfig { candidates, ..config(policy) }))
}

#[test]
fn sequential_calls_are_shared_by_weight() {
    for config in by_load() {
        for weights in [&[1, 1, 2][..], &[100, 100, 200], &[1, 10, 10, 4]] {
            let what = format!("{} of {:?}, {weights:?}", config.policy, config.candidates);
            let set = Set::new(config.clone(), weighted(weights)).expect("valid");
            assert_parts(&one_by_one(&set, 1, 20_000), weights, 0.02, &what);
        }
    }
}

/// A light member is not kept busy because it is the only idle one, nor a heavy one because a request is a smaller
/// load to it.
#[test]
fn few_concurrent_calls_share_roughly_by_weight() {
    for policy in [Policy::LeastCalls, Policy::LeastTransactions, Policy::LeastWork] {
        // A member of a hundredth of the weight is always up to one request ahead.
        for (weights, at_once, within) in
            [([1, 1, 2], 3, 0.2), ([1, 1, 2], 6, 0.2), ([1, 3, 3], 4, 0.3), ([1, 100, 100], 8, 1.0)]
        {
            let set = set(policy, weighted(&weights));
            let counts = one_by_one(&set, at_once, 20_000);
            assert_parts(&counts, &weights, within, &format!("{policy}, {weights:?}, {at_once} at once"));
        }
    }
}

/// If one member is light, the choice among the others still depends on their load.
#[test]
fn the_less_loaded_of_two_equals_wins_whatever_a_third_weighs() {
    let all = weighted(&[1, 100, 100]);
    let target = &all[1].target;
    let busy: Vec<_> =
        (0..3).map(|_| (target.begin_call(), target.begin_request(NOW, 1_750, MethodClass::Invite))).collect();
    for policy in [Policy::LeastCalls, Policy::LeastTransactions, Policy::LeastWork] {
        let counts = tally((0..1_000).map(|number| order(&set(policy, all.clone()), &pick(&call_id(number)))[0]), 3);
        assert!(counts[1] == 0 && counts[0] < 40, "{policy}: {counts:?}");
    }
    drop(busy);
}

#[test]
fn slow_start_limits_the_share_even_when_the_set_is_idle() {
    for config in by_load() {
        let what = format!("{} of {:?}", config.policy, config.candidates);
        let slow_start = Duration::from_secs(45);
        let set = Set::new(SetConfig { slow_start, ..config.clone() }, members(3)).expect("valid");
        // After one second: 12 %.
        set.members()[0].target.handle_recovery(Timestamp::from_millis(999_000));
        let counts = one_by_one(&set, 1, 20_000);
        // With two candidates it is one of them two thirds of the time, and then has half of its share.
        let parts = if config.candidates == Candidates::Two { [4, 48, 48] } else { [12, 100, 100] };
        assert_parts(&counts, &parts, 0.1, &what);
    }
}

#[test]
fn similar_response_times_share_evenly() {
    let set = set(Policy::ResponseTime, members(2));
    for (member, micros) in [(0, 1_000), (1, 1_150)] {
        begin(&set, member, MethodClass::Bye).handle_final(after(micros));
    }
    let counts = tally((0..1_000).map(|number| order(&set, &pick(&call_id(number)))[0]), 2);
    assert_parts(&counts, &[1, 1], 0.1, "within a quarter of each other");
}

#[test]
fn a_ringing_call_counts_no_work() {
    let set = least_work(Weights::default(), 1);
    let target = &set.members()[0].target;
    let mut invite = begin(&set, 0, MethodClass::Invite);
    invite.handle_provisional(after(100), 100);
    assert_eq!((target.transactions(), target.work()), (1, 1_750));
    invite.handle_provisional(after(900), 180);
    assert_eq!((target.transactions(), target.work()), (1, 0));
    invite.handle_provisional(after(950), 183);
    invite.handle_final(after(9_000_000));
    assert_eq!((target.transactions(), target.work(), target.failures()), (0, 0, 0));
}

#[test]
fn response_time_ends_at_the_first_response() {
    let target = Target::new("pool", b"sip:192.0.2.1");
    assert_eq!(target.response_time(), None);
    let micros = || target.response_time().map(|time| time.as_micros());
    let mut invite = target.begin_request(NOW, 1_750, MethodClass::Invite);
    invite.handle_provisional(after(2_000), 100);
    invite.handle_provisional(after(700_000), 180);
    invite.handle_final(after(9_000_000));
    assert!(micros().is_some_and(|micros| micros.abs_diff(2_000) <= 2), "{:?}", micros());

    // Each new sample counts one sixteenth.
    target.begin_request(NOW, 1_000, MethodClass::Bye).handle_final(after(18_000));
    assert!(micros().is_some_and(|micros| micros.abs_diff(3_000) <= 3), "{:?}", micros());
    // Fast refusals do not make a target fast, silence makes it slow, and a transaction that nobody waited for says
    // nothing.
    target.begin_request(NOW, 1_000, MethodClass::Bye).handle_failure(after(10));
    drop(target.begin_request(NOW, 1_000, MethodClass::Bye));
    assert!(micros().is_some_and(|micros| micros.abs_diff(3_000) <= 3), "{:?}", micros());
    target.begin_request(NOW, 1_000, MethodClass::Bye).handle_failure(after(163_000));
    assert!(micros().is_some_and(|micros| micros.abs_diff(13_000) <= 3), "{:?}", micros());
    assert_eq!((target.transactions(), target.requests(), target.failures()), (0, 5, 2));
}

#[test]
fn by_response_time_the_faster_gets_more_and_none_starves() {
    let set = set(Policy::ResponseTime, members(3));
    let answer = |member: usize, at: Timestamp, micros| {
        let work = set.members()[member].target.begin_request(at, 1_000, MethodClass::Bye);
        work.handle_final(at + Duration::from_micros(micros));
    };
    for _ in 0..100 {
        answer(0, NOW, 1_000);
        answer(1, NOW, 4_000);
    }
    // The third has no samples and is assumed to be as fast as the first.
    let firsts = tally((0..200).map(|number| order(&set, &pick(&call_id(number)))[0]), 3);
    assert!(firsts[0] > 50 && firsts[1] == 0 && firsts[2] > 50, "{firsts:?}");
    for _ in 0..100 {
        answer(2, NOW, 2_000);
    }
    let mut waiting = Vec::new();
    for number in 0..70 {
        let member = order(&set, &pick(&call_id(number)))[0];
        waiting.push(begin(&set, member, MethodClass::Bye));
    }
    // Their expected waits are equal at 4 : 1 : 2.
    let transactions: Vec<u32> = set.members().iter().map(|member| member.target.transactions()).collect();
    assert!(transactions.iter().zip([40_u32, 10, 20]).all(|(is, should)| is.abs_diff(should) <= 2), "{transactions:?}");
    drop(waiting);

    // A target that once was slow is tried again after a long time without samples.
    let later = NOW + Duration::from_secs(30);
    answer(0, later, 1_000);
    answer(2, later, 2_000);
    let call_id = call_id(1);
    assert_eq!(order(&set, &SelectionInput { now: later, ..pick(&call_id) })[0], 1);
}

fn adaptive() -> Set {
    least_work(Weights::Adaptive, 1)
}

fn serve(set: &Set, class: MethodClass, micros: u64) {
    begin(set, 0, class).handle_final(after(micros));
}

fn invite_weight(set: &Set) -> u32 {
    set.work_of(&set.members()[0].target, MethodClass::Invite)
}

#[test]
fn weights_are_measured() {
    let set = adaptive();
    assert_eq!(invite_weight(&set), 1_750, "nothing is known");
    for _ in 0..200 {
        serve(&set, MethodClass::Invite, 3_000);
    }
    assert_eq!(invite_weight(&set), 1_750, "relative to nothing");
    for _ in 0..200 {
        serve(&set, MethodClass::Options, 2_000);
    }
    assert!(invite_weight(&set).abs_diff(1_500) <= 5, "relative to OPTIONS: {}", invite_weight(&set));
    for _ in 0..200 {
        serve(&set, MethodClass::Bye, 1_000);
        serve(&set, MethodClass::Message, 500);
    }
    assert!(invite_weight(&set).abs_diff(3_000) <= 10, "relative to BYE: {}", invite_weight(&set));
    let message = set.work_of(&set.members()[0].target, MethodClass::Message);
    assert!(message.abs_diff(500) <= 5, "{message}");
    assert_eq!(set.work_of(&set.members()[0].target, MethodClass::Bye), u32::from(BYE_WEIGHT));
    assert_eq!(set.work_of(&set.members()[0].target, MethodClass::Publish), 1_000, "never seen");
}

#[test]
fn queued_requests_do_not_affect_measured_weights() {
    let set = adaptive();
    for _ in 0..100 {
        serve(&set, MethodClass::Invite, 2_000);
        serve(&set, MethodClass::Bye, 1_000);
    }
    let busy = begin(&set, 0, MethodClass::Bye);
    for _ in 0..100 {
        serve(&set, MethodClass::Invite, 90_000);
    }
    assert!(invite_weight(&set).abs_diff(2_000) <= 5, "{}", invite_weight(&set));
    drop(busy);

    // A ringing phone is no work, and its ringing time does not count.
    let mut ringing = begin(&set, 0, MethodClass::Invite);
    ringing.handle_provisional(after(100), 100);
    ringing.handle_provisional(after(3_000), 180);
    let once = invite_weight(&set);
    assert!((2_010..2_100).contains(&once), "one in 32 of it: {once}");
    for _ in 0..400 {
        serve(&set, MethodClass::Bye, 2_000);
    }
    assert!(invite_weight(&set).abs_diff(once / 2) <= 10, "{}", invite_weight(&set));
    ringing.handle_final(after(20_000_000));
    assert!(invite_weight(&set).abs_diff(once / 2) <= 10, "{}", invite_weight(&set));
}

#[test]
fn measured_weights_are_bounded() {
    let set = adaptive();
    for _ in 0..300 {
        serve(&set, MethodClass::Invite, 60_000_000);
        serve(&set, MethodClass::Bye, 100);
        serve(&set, MethodClass::Options, 0);
    }
    assert_eq!(invite_weight(&set), 16_000);
    assert_eq!(set.work_of(&set.members()[0].target, MethodClass::Options), 62);
}

#[test]
fn load_policies_balance_counts_with_two_candidates() {
    for policy in [Policy::LeastTransactions, Policy::LeastWork] {
        let set = Set::new(SetConfig { candidates: Candidates::Two, ..config(policy) }, members(8)).expect("valid");
        let mut tokens = Vec::new();
        for number in 0..2_000 {
            let member = order(&set, &pick(&call_id(number)))[0];
            tokens.push(begin(&set, member, MethodClass::Invite));
        }
        let counts: Vec<u32> = set.members().iter().map(|member| member.target.transactions()).collect();
        assert!(counts.iter().all(|count| count.abs_diff(250) <= 5), "{policy}: {counts:?}");
    }
}
