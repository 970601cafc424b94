//! Random worlds: every rule holds, and only the seed determines the run.

use std::sync::Arc;

use strowger_sim::agent::Tally;
use strowger_sim::invariants::RuleCoverage;
use strowger_sim::scenario::Scenario;
use strowger_sim::server::Server;
use strowger_sim::store::StoreStats;
use strowger_sim::world::{Options, World, server_seed};

fn assert_rules_hold(seeds: core::ops::Range<u64>) {
    let (mut tally, mut witnessed) = (Tally::default(), RuleCoverage::default());
    for seed in seeds {
        let outcome = World::run(&Scenario::random(seed), seed, Options::default());
        if let Some(violation) = outcome.violation {
            panic!("{violation}\nreplay it with: cargo run -p strowger-sim --bin sim -- --seed {seed} --verbose");
        }
        tally.add(&outcome.tally);
        witnessed.add(&outcome.coverage);
    }
    // Make sure that enough happens for the rules to matter.
    assert!(tally.registered > 100 && tally.answered > 50 && tally.refused > 50 && tally.delivered > 50, "{tally:?}");
    let RuleCoverage { later_steps, failovers, abandoned, closed, lost, answers } = witnessed;
    let rarely = later_steps.min(failovers).min(closed).min(answers);
    assert!(rarely > 10 && lost > 5 && abandoned > 2, "{witnessed:?}");
}

#[test]
fn rules_hold_for_seeds_0_to_99() {
    assert_rules_hold(0..100);
}

#[test]
fn rules_hold_for_seeds_100_to_199() {
    assert_rules_hold(100..200);
}

#[test]
fn rules_hold_for_seeds_200_to_299() {
    assert_rules_hold(200..300);
}

fn assert_durable_rules_hold(seeds: core::ops::Range<u64>) {
    let (mut done, mut ends, mut tally) = (StoreStats::default(), 0, Tally::default());
    for seed in seeds {
        let outcome = World::run(&Scenario::durable(seed), seed, Options::default());
        assert!(outcome.violation.is_none(), "durable seed {seed}: {}", outcome.violation.expect("is some"));
        done.add(&outcome.store_stats);
        tally.add(&outcome.tally);
        ends += outcome.ends;
    }
    let StoreStats { groups, refused, recovered, checkpoints, torn, restored } = done;
    let rarely = refused.min(recovered).min(checkpoints).min(restored);
    assert!(tally.registered > 500 && ends > 50 && groups > 500 && rarely > 10 && torn > 2, "{done:?}, {ends} ends");
}

#[test]
fn durable_rules_hold_for_seeds_0_to_39() {
    assert_durable_rules_hold(0..40);
}

#[test]
fn durable_rules_hold_for_seeds_40_to_79() {
    assert_durable_rules_hold(40..80);
}

#[test]
fn two_servers_with_one_seed_send_the_same_bytes() {
    for seed in 0..20 {
        let scenario = Scenario::random(seed);
        let outcome = World::run(&scenario, seed, Options { recording: true, ..Options::default() });
        assert!(outcome.violation.is_none() && outcome.recording.len() > 10);
        let server = || Server::new(scenario.shards, server_seed(seed), Arc::clone(&scenario.snapshot));
        let (mut first, mut second) = (server(), server());
        for (step, sent) in &outcome.recording {
            assert_eq!(first.handle(step), *sent, "seed {seed}");
            assert_eq!(second.handle(step), *sent, "seed {seed}");
        }
    }
}

#[test]
fn one_seed_gives_one_durable_trace() {
    let run = |seed| World::run(&Scenario::durable(seed), seed, Options { ladder: true, ..Options::default() }).ladder;
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn one_seed_gives_one_trace() {
    let run = |seed| World::run(&Scenario::random(seed), seed, Options { ladder: true, ..Options::default() }).ladder;
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
