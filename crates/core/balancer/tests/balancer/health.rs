//! Eligibility: down, drained, disabled, full, avoided and recovered members.

use core::time::Duration;

use strowger_balancer::{
    Advice, Candidates, FIRST_SHARE, FULL_SHARE, HealthChange, Member, MethodClass, Policy, Probe, SelectionInput, Set,
    SetConfig, TargetState,
};
use strowger_foundation::Timestamp;

use crate::common::{assert_parts, avoid, call_id, config, firsts, members, order, pick, set, tally, weighted};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn probed(policy: Policy, members: Vec<Member>) -> Set {
    Set::new(SetConfig { probe: Some(Probe::default()), ..config(policy) }, members).expect("valid")
}

fn is_chosen(set: &Set, member: usize) -> bool {
    (0..100).any(|number| order(set, &SelectionInput { limit: 4, ..pick(&call_id(number)) }).contains(&member))
}

#[test]
fn a_down_drained_or_disabled_member_is_skipped() {
    for policy in Policy::ALL {
        let mut all = members(4);
        all[3].enabled = false;
        let set = probed(policy, all.clone());
        let down = |is_good| all[0].target.handle_probe(NOW, is_good, &Probe::default());
        assert_eq!([false, false].map(down), [None, Some(HealthChange::Down)]);
        all[1].target.drain();
        assert_eq!([0, 1, 2, 3].map(|member| is_chosen(&set, member)), [false, false, true, false], "{policy}");
        let states = set.members().iter().map(|member| set.state(member, NOW));
        assert!(states.eq([TargetState::Down, TargetState::Draining, TargetState::Up, TargetState::Disabled]));
        let since = |member| set.view(member, NOW).and_then(|view| view.since);
        assert_eq!([0, 1, 2].map(since), [Some(NOW), None, None]);

        all[1].target.undrain(NOW);
        assert_eq!([true, true].map(down), [None, Some(HealthChange::Up)]);
        assert_eq!([0, 1, 2, 3].map(|member| is_chosen(&set, member)), [true, true, true, false], "{policy}");
    }
}

#[test]
fn down_members_are_a_last_resort_if_the_set_allows() {
    for policy in Policy::ALL {
        let all = members(3);
        let config = SetConfig { probe: Some(Probe::default()), tries_down: true, ..config(policy) };
        let set = Set::new(config, all.clone()).expect("valid");
        let ask = |member: usize, is_good| all[member].target.handle_probe(NOW, is_good, &Probe::default());
        for member in [0, 1, 0, 1] {
            ask(member, false);
        }
        assert_eq!(order(&set, &pick("a"))[0], 2, "{policy}: who answers");
        ask(2, false);
        ask(2, false);
        assert_eq!(order(&set, &pick("a")).len(), 3, "{policy}: they may only be busy");
        // Requests have found it gone as well.
        let gone = avoid(|member| member == 1);
        let found = order(&set, &SelectionInput { advice: &gone, ..pick("a") });
        assert!(found.len() == 2 && !found.contains(&1), "{policy}: {found:?}");
        all[0].target.drain();
        assert!(!order(&set, &pick("a")).contains(&0), "{policy}: the operator's word counts");
    }
}

#[test]
fn all_drained_selects_none() {
    for policy in Policy::ALL {
        let all = members(2);
        let set = set(policy, all.clone());
        all.iter().for_each(|member| member.target.drain());
        assert!(order(&set, &pick("a")).is_empty(), "{policy}");
    }
}

#[test]
fn sets_without_probes_ignore_probe_results() {
    let all = members(1);
    for _ in 0..2 {
        all[0].target.handle_probe(NOW, false, &Probe::default());
    }
    assert!(order(&probed(Policy::Hash, all.clone()), &pick("a")).is_empty());
    assert_eq!(order(&set(Policy::Hash, all), &pick("a")), [0]);
}

#[test]
fn a_full_member_gets_all_but_new_calls() {
    for policy in Policy::ALL {
        let mut all = members(2);
        all[0].capacity = Some(3);
        let set = set(policy, all);
        let call_guards: Vec<_> = (0..4).filter_map(|_| set.begin_call(0)).collect();
        assert_eq!(call_guards.len(), 3, "the fourth is refused");
        assert!(!is_chosen(&set, 0), "{policy}");
        assert!(order(&set, &SelectionInput { begins_call: false, ..pick("a") }).contains(&0), "{policy}");
        drop(call_guards);
        assert!(is_chosen(&set, 0), "{policy}");
    }
}

/// With modulo hashing, the keys of others would move each time a call begins or ends.
#[test]
fn full_members_keep_position() {
    for policy in [Policy::Hash, Policy::Fnv, Policy::Sha1, Policy::Bernstein, Policy::Openser, Policy::Range] {
        let mut all = members(8);
        all[5].capacity = Some(0);
        let (full, empty) = (set(policy, all), set(policy, members(8)));
        for (with, without) in firsts(&full, 500).into_iter().zip(firsts(&empty, 500)) {
            assert!(with == without || without == 5, "{policy}");
        }
    }
}

#[test]
fn avoided_members_are_a_last_resort() {
    for policy in Policy::ALL {
        let all = members(3);
        let set = set(policy, all.clone());
        let avoided = avoid(|member| member != 2);
        let pick = SelectionInput { advice: &avoided, ..pick("a") };
        let mut found = order(&set, &pick);
        assert_eq!(found.remove(0), 2, "{policy}");
        found.sort_unstable();
        assert_eq!(found, [0, 1], "{policy}: where nobody else answers");
        all[2].target.drain();
        let mut last = order(&set, &pick);
        last.sort_unstable();
        assert_eq!(last, [0, 1], "{policy}: they may be back");
    }
}

#[test]
fn avoided_members_obey_priorities_and_capacities() {
    for policy in Policy::ALL {
        let mut all = members(3);
        all[0].priority = 1;
        all[2].capacity = Some(0);
        let set = set(policy, all);
        let everybody = avoid(|_| true);
        assert_eq!(order(&set, &SelectionInput { advice: &everybody, ..pick("a") }), [1, 0], "{policy}");
    }
}

#[test]
fn an_excluded_member_is_no_last_resort() {
    for policy in Policy::ALL {
        let set = set(policy, members(3));
        let advice = |member: usize| [Advice::Exclude, Advice::Neutral, Advice::Avoid][member];
        assert_eq!(order(&set, &SelectionInput { advice: &advice, ..pick("a") }), [1, 2], "{policy}");
        let advice = |member: usize| [Advice::Exclude, Advice::Exclude, Advice::Avoid][member];
        assert_eq!(order(&set, &SelectionInput { advice: &advice, ..pick("a") }), [2], "{policy}");
        assert!(order(&set, &SelectionInput { advice: &|_| Advice::Exclude, ..pick("a") }).is_empty(), "{policy}");
    }
}

/// Returns member 0's share of all first choices, `elapsed` after it has come back.
fn part(policy: Policy, candidates: Candidates, elapsed: Duration) -> f64 {
    let slow_start = Duration::from_secs(30);
    let set = Set::new(SetConfig { slow_start, candidates, ..config(policy) }, members(4)).expect("valid");
    set.members()[0].target.handle_recovery(NOW);
    let first = |number| {
        let call_id = call_id(number);
        order(&set, &SelectionInput { now: NOW + elapsed, ..pick(&call_id) })[0]
    };
    let counts = tally((0..20_000).map(first), 4);
    assert_parts(&counts[1..], &[1; 3], 0.1, "what is left is shared evenly");
    counts[0] as f64 / 20_000.0
}

#[test]
fn a_recovered_member_starts_at_a_tenth_and_ramps_up() {
    let policies = Policy::ALL.into_iter().filter(|policy| !matches!(policy, Policy::Range | Policy::Priority));
    for (policy, candidates) in policies.flat_map(|policy| Candidates::ALL.map(|candidates| (policy, candidates))) {
        let whole = part(policy, candidates, Duration::from_secs(31));
        assert!((0.23..0.27).contains(&whole), "{policy}: {whole}");
        for (seconds, share) in [(0, 0.1), (10, 0.4), (20, 0.7)] {
            let part = part(policy, candidates, Duration::from_secs(seconds));
            // In a round that it is left out of, the others' turns come sooner.
            let at_least = 0.21 * share;
            let at_most = 1.08 * share / (3.0 + share);
            assert!((at_least..at_most).contains(&part), "{policy} after {seconds} s: {part}");
        }
    }
}

/// A load policy alone would give an idle member everything.
#[test]
fn a_recovered_member_is_not_flooded() {
    for policy in [Policy::LeastCalls, Policy::LeastTransactions, Policy::LeastWork] {
        let slow_start = Duration::from_secs(30);
        let set = Set::new(SetConfig { slow_start, ..config(policy) }, members(4)).expect("valid");
        let mut tokens = Vec::new();
        for member in 1..4 {
            for _ in 0..1_000 {
                tokens.push((set.begin_call(member), set.begin_request(member, NOW, MethodClass::Invite)));
            }
        }
        assert!(firsts(&set, 200).iter().all(|member| *member == 0), "that it has nothing to do is seen");
        set.members()[0].target.handle_recovery(NOW);
        let counts = tally(firsts(&set, 20_000), 4);
        assert!((300..700).contains(&counts[0]), "{policy}: {counts:?}");
    }
}

/// An idle member of two candidates would get all of its own calls by load alone, and also those of others that have
/// far more load.
#[test]
fn a_recovered_member_among_two_candidates_gets_only_its_share() {
    let policies = [Policy::LeastCalls, Policy::LeastTransactions, Policy::LeastWork];
    let weights: [&[u16]; 4] = [&[1; 10], &[1, 8, 1], &[1, 100, 100, 100], &[1, 1]];
    for (policy, weights) in policies.into_iter().flat_map(|policy| weights.map(|weights| (policy, weights))) {
        for is_busy in [false, true] {
            let (slow_start, candidates) = (Duration::from_secs(30), Candidates::Two);
            let set =
                Set::new(SetConfig { slow_start, candidates, ..config(policy) }, weighted(weights)).expect("valid");
            set.members()[0].target.handle_recovery(NOW);
            let mut tokens = Vec::new();
            for (member, weight) in weights.iter().enumerate().skip(1).filter(|_| is_busy) {
                for _ in 0..100 * weight {
                    tokens.push((set.begin_call(member), set.begin_request(member, NOW, MethodClass::Invite)));
                }
            }
            let whole: f64 = weights.iter().copied().map(f64::from).sum();
            for (seconds, share) in [(0, 0.1), (10, 0.4), (20, 0.7)] {
                let first = |number| {
                    let call_id = call_id(number);
                    order(&set, &SelectionInput { now: NOW + Duration::from_secs(seconds), ..pick(&call_id) })[0]
                };
                let calls = (0..20_000).map(first).filter(|member| *member == 0).count() as f64;
                let part = 20_000.0 * share * f64::from(weights[0]) / whole;
                let chance = 4.5 * part.sqrt();
                assert!(
                    (calls - part).abs() <= chance,
                    "{policy} {weights:?} {seconds} s: {calls} of {part}, {is_busy}"
                );
            }
        }
    }
}

/// All but one of ten were restarted: none of them gets more than its share of the total.
#[test]
fn several_recovered_members_of_two_candidates_get_only_their_share() {
    for is_busy in [false, true] {
        let (slow_start, candidates) = (Duration::from_secs(30), Candidates::Two);
        let config = SetConfig { slow_start, candidates, ..config(Policy::LeastCalls) };
        let set = Set::new(config, members(10)).expect("valid");
        set.members()[..9].iter().for_each(|member| member.target.handle_recovery(NOW));
        let call_guards: Vec<_> = (0..if is_busy { 1_000 } else { 0 }).map(|_| set.begin_call(9)).collect();
        for (seconds, share) in [(0, 0.1), (10, 0.4), (29, 0.97)] {
            let first = |number| {
                let call_id = call_id(number);
                order(&set, &SelectionInput { now: NOW + Duration::from_secs(seconds), ..pick(&call_id) })[0]
            };
            let counts = tally((0..20_000).map(first), 10);
            let part = 20_000.0 * share / (9.0 * share + 1.0);
            let most = part + 4.5 * f64::sqrt(part);
            assert!(counts[..9].iter().all(|calls| (*calls as f64) <= most), "{seconds} s: {counts:?}, {part} at most");
        }
        drop(call_guards);
    }
}

/// All but one of ten were restarted: the tenth gets what they do not take yet, and no more.
#[test]
fn one_running_member_gets_what_recovered_ones_do_not_take_yet() {
    let policies = Policy::ALL.into_iter().filter(|policy| policy.is_by_load());
    for (policy, is_busy) in policies.flat_map(|policy| [(policy, false), (policy, true)]) {
        let slow_start = Duration::from_secs(30);
        let mut all = members(10);
        // Some have a higher weight.
        all[1].weight = 2;
        all[9].weight = 2;
        let set = Set::new(SetConfig { slow_start, ..config(policy) }, all).expect("valid");
        set.members()[..9].iter().for_each(|member| member.target.handle_recovery(NOW));
        let count = if is_busy { 1_000 } else { 0 };
        let tokens: Vec<_> =
            (0..count).map(|_| (set.begin_call(9), set.begin_request(9, NOW, MethodClass::Invite))).collect();
        for (seconds, share) in [(0, 10), (10, 40), (29, 97)] {
            let first = |number| {
                let call_id = call_id(number);
                order(&set, &SelectionInput { now: NOW + Duration::from_secs(seconds), ..pick(&call_id) })[0]
            };
            let counts = tally((0..20_000).map(first), 10);
            let parts = [share, 2 * share, share, share, share, share, share, share, share, 200];
            assert_parts(&counts, &parts, 0.02, &format!("{policy} after {seconds} s, is_busy: {is_busy}"));
        }
        drop(tokens);
    }
}

#[test]
fn the_only_member_gets_all_at_once() {
    for policy in Policy::ALL {
        let slow_start = Duration::from_secs(30);
        let mut all = members(2);
        all[1].enabled = false;
        let set = Set::new(SetConfig { slow_start, ..config(policy) }, all).expect("valid");
        set.members()[0].target.handle_recovery(NOW);
        assert!(firsts(&set, 100).iter().all(|member| *member == 0), "{policy}");
    }
}

#[test]
fn keys_moved_to_a_recovered_member_stay_there() {
    let slow_start = Duration::from_secs(30);
    let set = Set::new(SetConfig { slow_start, ..config(Policy::Hash) }, members(4)).expect("valid");
    set.members()[0].target.handle_recovery(NOW);
    let home = |number: u64, seconds: u64, call: u64| {
        let (key, now) = (format!("user{number}"), NOW + Duration::from_secs(seconds));
        order(&set, &SelectionInput { now, key: key.as_bytes(), ..pick(&call_id(call)) })[0]
    };
    for number in 0..500 {
        let over: Vec<bool> = (0..=30).map(|seconds| home(number, seconds, number * 31 + seconds) == 0).collect();
        assert!(over.is_sorted(), "user{number}: {over:?}");
    }
}

#[test]
fn the_view_shows_the_state() {
    let mut all = members(2);
    (all[0].weight, all[0].priority, all[0].capacity) = (3, 1, Some(7));
    let slow_start = Duration::from_secs(10);
    let set = Set::new(SetConfig { slow_start, ..config(Policy::LeastWork) }, all).expect("valid");
    let work = set.begin_request(0, NOW, MethodClass::Invite).expect("a member");
    let call_guard = set.begin_call(0);
    set.begin_request(0, NOW, MethodClass::Bye).expect("a member").handle_failure(NOW + Duration::from_millis(500));
    set.members()[0].target.handle_recovery(NOW);

    let view = set.view(0, NOW + Duration::from_secs(5)).expect("a member");
    assert_eq!(
        (view.set.as_str(), view.uri.as_str(), view.id),
        ("pool", "sip:192.0.2.1", set.members()[0].target.id())
    );
    assert_eq!((view.weight, view.priority, view.capacity), (3, 1, Some(7)));
    assert_eq!((view.calls, view.transactions, view.work, view.invite_weight), (1, 1, 1_750, 1_750));
    assert_eq!((view.requests, view.failures), (2, 1));
    assert_eq!(view.state, TargetState::SlowStart { share: FIRST_SHARE + (FULL_SHARE - FIRST_SHARE) / 2 });
    assert_eq!((view.state.to_string().as_str(), view.since), ("slow start", Some(NOW)));
    assert!(view.response_time.is_some_and(|time| time.as_millis().abs_diff(500) <= 1), "{:?}", view.response_time);
    assert_eq!(set.view(2, NOW), None);
    drop((work, call_guard));
    let view = set.view(0, NOW).expect("a member");
    assert_eq!((view.calls, view.transactions, view.work), (0, 0, 0));
}
