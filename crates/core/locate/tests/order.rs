//! Order in which the servers of a name are tried.

use proptest::prelude::*;
use smallvec::SmallVec;
use strowger_foundation::Transport;
use strowger_locate::{Candidate, CandidateList, Hop, MAX_CANDIDATES, MAX_HOPS};

fn hop(number: u16) -> Hop {
    Hop::new(Transport::Udp, ([192, 0, 2, 1], number).into())
}

fn candidate(rank: u16, priority: u16, weight: u16, hops: &[u16]) -> Candidate {
    Candidate { rank, priority, weight, hops: hops.iter().map(|number| hop(*number)).collect() }
}

fn order(located: &CandidateList, choice: u64, avoid: impl Fn(&Hop) -> bool) -> Vec<u16> {
    let mut out = SmallVec::new();
    located.order(choice, avoid, &mut out);
    out.iter().map(|hop| hop.address.port()).collect()
}

/// Returns how often each comes first, in percent.
fn shares(located: &CandidateList, choices: impl Iterator<Item = u64>) -> [f64; 4] {
    let mut first = [0_u32; 4];
    let mut calls = 0;
    for choice in choices {
        first[usize::from(order(located, choice, |_| false)[0])] += 1;
        calls += 1;
    }
    first.map(|count| f64::from(count) * 100.0 / f64::from(calls))
}

fn assert_near(shares: &[f64], wanted: &[f64]) {
    for (share, wanted) in shares.iter().zip(wanted) {
        assert!((share - wanted).abs() < 2.0, "{shares:?}, wanted {wanted}");
    }
}

#[test]
fn weights_hold_over_ten_thousand_calls() {
    let servers = vec![candidate(0, 1, 40, &[1]), candidate(0, 1, 40, &[2]), candidate(0, 1, 20, &[3])];
    let located = CandidateList::new(servers);
    // Consecutive choices and choices that differ only in their highest bits are mixed equally well.
    assert_near(&shares(&located, 0..10_000), &[0.0, 40.0, 40.0, 20.0]);
    assert_near(&shares(&located, (0..10_000).map(|i| i << 48)), &[0.0, 40.0, 40.0, 20.0]);
}

#[test]
fn equal_weights_get_equal_shares_even_when_small() {
    for weight in [0, 1, u16::MAX] {
        let located = CandidateList::new((1..4).map(|port| candidate(0, 0, weight, &[port])).collect());
        assert_near(&shares(&located, 0..10_000), &[0.0, 33.3, 33.3, 33.3]);
    }
}

#[test]
fn a_weight_of_zero_has_a_very_small_share() {
    let located = CandidateList::new(vec![candidate(0, 0, 0, &[1]), candidate(0, 0, 10, &[2])]);
    assert_near(&shares(&located, 0..10_000), &[0.0, 0.0, 100.0]);
    assert!((0..100_000).any(|choice| order(&located, choice, |_| false) == [1, 2]), "small, but not none");
}

#[test]
fn the_second_of_a_group_is_chosen_by_weight_too() {
    let servers = vec![candidate(0, 1, 10_000, &[1]), candidate(0, 1, 75, &[2]), candidate(0, 1, 25, &[3])];
    let located = CandidateList::new(servers);
    let seconds = (0..10_000).map(|choice| order(&located, choice, |_| false));
    let seconds: Vec<u16> = seconds.filter(|order| order[0] == 1).map(|order| order[1]).collect();
    let share = seconds.iter().filter(|port| **port == 2).count() as f64 * 100.0 / seconds.len() as f64;
    assert!((share - 75.0).abs() < 2.0, "{share}");
}

#[test]
fn order_is_by_rank_then_priority_then_weight() {
    let located = CandidateList::new(vec![
        candidate(1, 0, 100, &[5]),
        candidate(0, 2, 100, &[4]),
        candidate(0, 1, 0, &[1, 2]),
        candidate(0, 1, 0, &[]),
    ]);
    for choice in 0..100 {
        assert_eq!(order(&located, choice, |_| false), [1, 2, 4, 5]);
    }
}

#[test]
fn avoided_hops_are_tried_last() {
    let located =
        CandidateList::new(vec![candidate(0, 1, 0, &[1, 2]), candidate(0, 2, 0, &[3]), candidate(0, 3, 0, &[4])]);
    assert_eq!(order(&located, 7, |hop| matches!(hop.address.port(), 1 | 3)), [2, 4, 1, 3]);
    assert_eq!(order(&located, 7, |_| true), [1, 2, 3, 4]);
}

#[test]
fn a_working_hop_is_found_behind_many_failed() {
    let located = CandidateList::new((1..40).map(|port| candidate(0, port, 0, &[port])).collect());
    let order = order(&located, 7, |hop| hop.address.port() < 30);
    assert_eq!(order, [30, 31, 32, 33, 34, 35, 36, 37]);
}

#[test]
fn no_candidates_no_hops() {
    let mut out = SmallVec::from_slice(&[hop(9)]);
    CandidateList::default().order(1, |_| false, &mut out);
    assert!(out.is_empty());
}

fn any_located() -> impl Strategy<Value = CandidateList> {
    let hops = proptest::collection::vec(0_u16..30, 0..4);
    let one = (0_u16..3, 0_u16..3, any::<u16>(), hops);
    let of = |(rank, priority, weight, hops): (u16, u16, u16, Vec<u16>)| candidate(rank, priority, weight, &hops);
    proptest::collection::vec(one.prop_map(of), 0..80).prop_map(|candidates| CandidateList { candidates })
}

proptest! {
    #[test]
    fn orders_are_complete(located in any_located(), choice: u64, out_of_order in 0_u16..30) {
        let avoid = |hop: &Hop| hop.address.port() < out_of_order;
        let tried = order(&located, choice, avoid);
        prop_assert_eq!(&tried, &order(&located, choice, avoid));
        let mut all: Vec<u16> = located.candidates.iter().take(MAX_CANDIDATES).flat_map(|candidate| &candidate.hops)
            .map(|hop| hop.address.port()).collect();
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(tried.len(), all.len().min(MAX_HOPS));
        let mut distinct = tried.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), tried.len());
        prop_assert!(tried.iter().all(|port| all.contains(port)));
        // Avoided hops come after all others.
        prop_assert!(tried.is_sorted_by_key(|port| *port < out_of_order));
        // If nothing is avoided, no server precedes one with a lower rank or priority.
        let place = |port: &u16| located.candidates.iter().take(MAX_CANDIDATES)
            .filter(|candidate| candidate.hops.contains(&hop(*port)))
            .map(|candidate| (candidate.rank, candidate.priority)).min();
        let free = order(&located, choice, |_| false);
        prop_assert!(free.is_sorted_by_key(place));
    }
}
