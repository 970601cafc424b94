//! Policies of overload control with callers that retransmit: which collapse, which do not, and how fast they
//! recover.

use core::time::Duration;
use std::sync::OnceLock;

use strowger_sim::overload::{Cpu, Outcome, PROMPT, Phase, Policy, Setup, run};

/// Capacity, in calls/s.
const CAPACITY: u32 = 200;

fn setup(policy: Policy, phases: &[(u64, f64)]) -> Setup {
    Setup::new(1, policy, CAPACITY, phases.iter().map(|(seconds, times)| Phase::new(*seconds, *times)).collect())
}

/// Returns the result of a policy under five times the capacity from second 5 to 30.
fn at_five_times(policy: Policy) -> &'static Outcome {
    static OUTCOMES: [OnceLock<Outcome>; Policy::ALL.len()] = [const { OnceLock::new() }; Policy::ALL.len()];
    OUTCOMES[policy as usize].get_or_init(|| run(&setup(policy, &[(5, 0.5), (25, 5.0)])))
}

#[test]
fn a_plain_server_collapses() {
    let outcome = at_five_times(Policy::Fifo);
    assert!(outcome.goodput(15..30) < 0.2, "{}", outcome.goodput(15..30));
    assert!(outcome.byes_answered_share() < 0.9, "{}", outcome.byes_answered_share());
}

#[test]
fn kernel_memory_keeps_goodput_high_and_setup_fast() {
    let outcome = at_five_times(Policy::KernelMemory);
    let (goodput, p99) = (outcome.goodput(15..30), outcome.setup_time(15..30, 990));
    assert!(goodput >= 0.9 && p99 <= Duration::from_millis(500), "{goodput}, {p99:?}");
    assert!(outcome.byes > 3_000 && outcome.byes_answered_share() >= 0.999, "{}", outcome.byes_answered_share());
}

#[test]
fn a_separate_queue_for_new_calls_keeps_goodput_but_serves_them_late() {
    let outcome = at_five_times(Policy::Sorted);
    assert!(outcome.goodput(15..30) >= 0.95, "{}", outcome.goodput(15..30));
    assert!(outcome.setup_time(15..30, 500) > PROMPT && outcome.byes_answered_share() >= 0.999);
}

#[test]
fn a_worker_that_drops_retransmissions_itself_has_no_time_for_calls() {
    // 35 INVITEs per served call, each costing a thirtieth of a call.
    let outcome = at_five_times(Policy::Control);
    assert!(outcome.goodput(25..30) < 0.25, "{}", outcome.goodput(25..30));
    assert!(at_five_times(Policy::KernelFilter).goodput(15..30) >= 0.85);
}

#[test]
fn at_twice_the_capacity_each_policy_beats_the_simpler_ones() {
    let setup = |policy| Setup { capacity: 100, ..setup(policy, &[(5, 0.5), (20, 2.0)]) };
    let at_once = |policy| run(&setup(policy)).prompt_goodput(12..25);
    let found = Policy::ALL.map(at_once);
    assert!(found.is_sorted_by(|simpler, better| *better >= simpler - 0.03), "{found:?}");
    assert!(found[0] < 0.2 && found[1] < 0.6 && found[2] < 0.8 && found[4] > 0.9, "{found:?}");
}

#[test]
fn below_capacity_nothing_is_rejected_or_dropped() {
    for policy in Policy::ALL {
        let outcome = run(&setup(policy, &[(12, 0.7)]));
        assert_eq!((outcome.drops.total(), outcome.refusals_sent), (0, 0), "{policy:?}");
        assert_eq!((outcome.good, outcome.byes_answered), (outcome.offered, outcome.byes), "{policy:?}");
        assert!(outcome.offered > 1_500 && outcome.setup_time(0..12, 1_000) < Duration::from_millis(500));
    }
}

#[test]
fn overload_ends_when_the_load_ends() {
    let outcome = run(&setup(Policy::KernelMemory, &[(5, 0.5), (10, 5.0), (20, 0.5)]));
    let after = &outcome.seconds[17..35];
    assert!(after.iter().all(|second| second.good_of_offered == second.offered), "{after:?}");
}

#[test]
fn a_partial_cpu_is_fully_used() {
    let cpu = Cpu { slice: Duration::from_millis(5), period: Duration::from_millis(25) };
    let outcome = run(&Setup { cpu, ..setup(Policy::KernelMemory, &[(5, 0.5), (15, 5.0)]) });
    assert!(outcome.goodput(12..20) >= 0.88, "{}", outcome.goodput(12..20));
}

#[test]
fn one_seed_gives_one_outcome() {
    for policy in [Policy::Fifo, Policy::KernelMemory] {
        let outcome = |seed| run(&Setup { seed, capacity: 100, ..setup(policy, &[(2, 0.5), (4, 3.0)]) });
        let first = outcome(7);
        assert_eq!(first, outcome(7));
        assert_ne!(first.checksum, outcome(8).checksum);
    }
}
