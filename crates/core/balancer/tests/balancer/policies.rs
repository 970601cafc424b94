//! Each policy separately.

use strowger_balancer::{Candidates, Member, Policy, SelectionInput, Set, SetConfig, SetError};
use strowger_foundation::Timestamp;

use crate::common::{assert_parts, call_id, config, firsts, members, order, pick, set, tally, weighted};

#[test]
fn round_robin_cycles_and_spreads_a_missing_members_load() {
    let all = members(4);
    let set = set(Policy::RoundRobin, all.clone());
    assert_eq!(firsts(&set, 6), [0, 1, 2, 3, 0, 1]);
    all[2].target.drain();
    assert_eq!(tally(firsts(&set, 300), 4), [100, 100, 0, 100]);
}

#[test]
fn round_robin_fails_over_to_the_next_members() {
    let set = set(Policy::RoundRobin, members(6));
    assert_eq!(order(&set, &pick("a")), [0, 1, 2, 3]);
    assert_eq!(order(&set, &pick("b")), [1, 2, 3, 4]);
    assert_eq!(order(&set, &SelectionInput { limit: 2, ..pick("c") }), [2, 3]);
    assert_eq!(order(&set, &SelectionInput { limit: 9, ..pick("d") }), [3, 4, 5, 0]);
}

#[test]
fn weighted_rounds_are_exact_and_smooth() {
    let set = set(Policy::Weighted, weighted(&[5, 1, 1]));
    let chosen = firsts(&set, 700);
    assert_eq!(tally(chosen.clone(), 3), [500, 100, 100]);
    // The light ones come singly between the others.
    assert!(chosen.windows(2).all(|window| window != [1, 2] && window != [2, 1]), "{:?}", &chosen[..14]);
    assert!(chosen.windows(5).all(|window| window.iter().any(|member| *member != 0)), "{:?}", &chosen[..14]);

    let weights = [65_535, 30_000, 1_000];
    let counts = tally(firsts(&set_of(&weights), 96_535), 3);
    assert!(counts.iter().zip(weights).all(|(count, weight)| count.abs_diff(u64::from(weight)) <= 20), "{counts:?}");
}

fn set_of(weights: &[u16]) -> Set {
    set(Policy::Weighted, weighted(weights))
}

#[test]
fn an_undrained_member_does_not_catch_up_in_weighted_rounds() {
    let all = members(3);
    let set = set(Policy::Weighted, all.clone());
    all[0].target.drain();
    assert_eq!(tally(firsts(&set, 600), 3), [0, 300, 300]);
    all[0].target.undrain(Timestamp::ZERO);
    let counts = tally(firsts(&set, 300), 3);
    assert!(counts.iter().all(|count| count.abs_diff(100) <= 1), "{counts:?}");
}

#[test]
fn random_follows_weights() {
    for weights in [[1, 1, 1, 1], [4, 3, 2, 1], [100, 1, 1, 50]] {
        let set = set(Policy::Random, weighted(&weights));
        assert_parts(&tally(firsts(&set, 20_000), 4), &weights, 0.05, "lots");
    }
}

#[test]
fn policies_use_weights_as_they_declare() {
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::Range) {
        let counts = tally(firsts(&set(policy, weighted(&[1, 3])), 4_000), 2);
        let is_heeded = counts[1] > 5 * counts[0] / 2 && counts[0] > 0;
        assert_eq!(is_heeded, policy.uses_weights(), "{policy}: {counts:?}");
    }
    assert!(!Policy::Range.uses_weights());
}

#[test]
fn priority_takes_members_in_list_order() {
    let all = members(3);
    let set = set(Policy::Priority, all.clone());
    assert_eq!(order(&set, &pick("a")), [0, 1, 2]);
    all[0].target.drain();
    assert_eq!(order(&set, &pick("a")), [1, 2]);
}

#[test]
fn ranges_match_the_paper_and_survive_a_drained_member() {
    let all = members(3);
    let set = set(Policy::Range, all.clone());
    let home = |user: &str| order(&set, &pick(user))[0];
    assert_eq!(["alice", "bob", "henry", "ida", "quentin", "rose", "sam", "zoe"].map(home), [0, 0, 0, 1, 1, 2, 2, 2]);
    all[0].target.drain();
    assert_eq!(["bob", "ida", "sam"].map(home), [1, 1, 2]);
}

#[test]
fn lower_priorities_come_last_in_every_policy() {
    for policy in Policy::ALL {
        let mut all = members(5);
        for (at, priority) in [(0, 20), (1, 10), (3, 10)] {
            all[at].priority = priority;
        }
        let set = set(policy, all.clone());
        for number in 0..200 {
            let order = order(&set, &pick(&call_id(number)));
            assert!([[2, 4], [4, 2]].contains(&[order[0], order[1]]), "{policy}: {order:?}");
            assert!([[1, 3], [3, 1]].contains(&[order[2], order[3]]), "{policy}: {order:?}");
        }
        all[2].target.drain();
        all[4].target.drain();
        assert!(firsts(&set, 100).iter().all(|member| [1, 3].contains(member)), "{policy}");
    }
}

#[test]
fn spares_share_failover_evenly() {
    for policy in Policy::ALL.into_iter().filter(|policy| !matches!(policy, Policy::Priority | Policy::Range)) {
        let mut all = members(5);
        all[4].priority = 0;
        all[..4].iter_mut().for_each(|member| member.priority = 1);
        let set = set(policy, all);
        let second = (0..4_000).map(|number| order(&set, &pick(&call_id(number)))[1]);
        assert_parts(&tally(second, 5)[..4], &[1; 4], 0.1, policy.as_str());
    }
}

#[test]
fn weight_zero_is_last_within_its_priority() {
    for policy in Policy::ALL {
        let mut all = weighted(&[1, 0, 1, 1]);
        all[3].priority = 1;
        let set = set(policy, all);
        for number in 0..100 {
            assert_eq!(order(&set, &pick(&call_id(number)))[2..], [1, 3], "{policy}");
        }
    }
}

#[test]
fn equal_targets_share_evenly_by_every_policy_but_priority() {
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::Priority) {
        for candidates in Candidates::ALL {
            let set = Set::new(SetConfig { candidates, ..config(policy) }, members(8)).expect("valid");
            let chosen: Vec<usize> = match policy {
                // Hexadecimal Call-IDs have few distinct first letters.
                Policy::Range => (0..26).map(|at| order(&set, &pick(&char::from(b'a' + at).to_string()))[0]).collect(),
                _ => firsts(&set, 20_000),
            };
            assert_parts(&tally(chosen, 8), &[1; 8], 0.1, policy.as_str());
        }
    }
}

#[test]
fn hash_policies_agree_across_requests_and_balancers() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.is_by_key()) {
        let (one, other) = (set(policy, members(8)), set(policy, members(8)));
        for number in 0..200 {
            let call_id = call_id(number);
            let first = order(&one, &pick(&call_id));
            assert_eq!(first, order(&one, &SelectionInput { random: number, ..pick(&call_id) }), "{policy}");
            assert_eq!(first, order(&other, &pick(&call_id)), "{policy}");
        }
    }
}

#[test]
fn hash_policies_use_the_key() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.is_by_key()) {
        let set = set(policy, members(8));
        let with = |call_id: &str| order(&set, &SelectionInput { key: b"bob@example.com", ..pick(call_id) })[0];
        assert!((0..50).all(|number| with(&call_id(number)) == with("x")), "{policy}");
    }
}

#[test]
fn an_idle_set_sends_a_call_to_its_first_candidate() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.is_by_load()) {
        for (candidates, weights) in
            Candidates::ALL.into_iter().flat_map(|all| [(all, [1; 8]), (all, [1, 2, 3, 4, 1, 2, 3, 4])])
        {
            let set = Set::new(SetConfig { candidates, ..config(policy) }, weighted(&weights)).expect("valid");
            for number in 0..200 {
                let call_id = call_id(number);
                let order = order(&set, &SelectionInput { random: number, ..pick(&call_id) });
                assert_eq!(Some(order[0]), set.candidates(call_id.as_bytes())[0], "{policy}");
            }
        }
    }
}

#[test]
fn candidates_ignore_state_except_disabled_members() {
    let all = members(8);
    let names = |members: Vec<Member>| {
        let set = set(Policy::LeastWork, members);
        (0..500).map(|number| set.candidates(call_id(number).as_bytes())).collect::<Vec<_>>()
    };
    let before = names(all.clone());
    all.iter().for_each(|member| member.target.drain());
    assert_eq!(names(all.clone()), before);
    let counts = tally(before.iter().flatten().map(|candidate| candidate.expect("eight")), 8);
    assert_parts(&counts, &[1; 8], 0.15, "candidates");
    assert!(before.iter().all(|[first, second]| first != second));

    let mut fewer = all;
    fewer[3].enabled = false;
    assert!(names(fewer).iter().flatten().all(|candidate| *candidate != Some(3)));
    assert_eq!(set(Policy::LeastWork, members(1)).candidates(b"x"), [Some(0), None]);
}

#[test]
fn the_less_loaded_candidate_wins_unless_another_has_far_less() {
    let all = members(8);
    let config = SetConfig { candidates: Candidates::Two, ..config(Policy::LeastCalls) };
    let set = Set::new(config, all).expect("valid");
    let mut call_guards = Vec::new();
    for number in 0..4_000 {
        let call_id = call_id(number);
        let [Some(one), Some(two)] = set.candidates(call_id.as_bytes()) else { panic!("there are eight") };
        let calls = |at: usize| set.members()[at].target.calls();
        let (better, worse) = if calls(two) < calls(one) { (two, one) } else { (one, two) };
        let order = order(&set, &pick(&call_id));
        // With the new call, both exceed the least by one and a quarter: then the least is selected.
        let (least, burden) = ((0..8).map(calls).min().unwrap_or(0) + 1, calls(better) + 1);
        if 4 * burden > 5 * least + 4 {
            assert_eq!((calls(order[0]) + 1, order[1]), (least, better));
        } else {
            assert_eq!(order[..2], [better, worse]);
        }
        assert_eq!(self::order(&set, &SelectionInput { limit: 1, ..pick(&call_id) }), order[..1]);
        order.iter().for_each(|member| assert_eq!(order.iter().filter(|other| *other == member).count(), 1));
        call_guards.extend(set.begin_call(order[0]));
    }
    // Two choices: the fullest has hardly more than the emptiest.
    let calls: Vec<u32> = set.members().iter().map(|member| member.target.calls()).collect();
    let (most, least) = (calls.iter().max().copied(), calls.iter().min().copied());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 8), "{calls:?}");
}

#[test]
fn the_next_candidate_replaces_a_drained_one() {
    let all = members(8);
    let config = SetConfig { candidates: Candidates::Two, ..config(Policy::LeastWork) };
    let set = Set::new(config, all).expect("valid");
    for number in 0..200 {
        let call_id = call_id(number);
        let [Some(one), Some(two)] = set.candidates(call_id.as_bytes()) else { panic!("there are eight") };
        set.members()[one].target.drain();
        let order = order(&set, &pick(&call_id));
        assert_eq!(order.len(), 4);
        assert!(order[..2].contains(&two) && !order.contains(&one));
        set.members()[one].target.undrain(Timestamp::ZERO);
    }
}

#[test]
fn empty_and_oversized_sets_are_rejected() {
    let new = |members| Set::new(config(Policy::Hash), members).map(|_| ());
    assert_eq!(new(Vec::new()), Err(SetError::Empty));
    let many: Vec<Member> = (0..4).flat_map(|_| members(64)).collect();
    assert!(matches!(new(many), Err(SetError::Duplicate(_))));
    assert!(matches!(new([members(2), members(1)].concat()), Err(SetError::Duplicate(uri)) if uri == "sip:192.0.2.1"));
    assert!(matches!(new((0..5).flat_map(|_| members(64)).collect()), Err(SetError::TooMany)));
    let error = new(Vec::new()).expect_err("it is empty").to_string();
    assert_eq!(error, "a set needs at least one target");
}

#[test]
fn sets_of_any_size_select_members() {
    for policy in Policy::ALL {
        for size in [1, 2, 3, 9, 64, 200, 256] {
            let all: Vec<Member> = (0..size)
                .map(|at| Member::new(strowger_balancer::Target::new("pool", format!("sip:t{at}").as_bytes())))
                .collect();
            let set = set(policy, all);
            for number in 0..20 {
                let mut order = order(&set, &pick(&call_id(number)));
                assert_eq!(order.len(), size.min(4), "{policy}");
                order.sort_unstable();
                order.dedup();
                assert_eq!(order.len(), size.min(4), "{policy}: each once");
            }
        }
    }
}
