//! Runs worlds by seed: many until the first that breaks a rule, or one with all its messages.
//!
//! `sim --seeds 0..1000` or `sim --seed 123 --verbose`. Exit codes: 0 all rules held, 1 one was broken, 2 bad arguments.

use std::ops::Range;
use std::process::ExitCode;

use strowger_sim::agent::Tally;
use strowger_sim::invariants::Witnessed;
use strowger_sim::scenario::Scenario;
use strowger_sim::world::{Options, World};

const USAGE: &str = "usage: sim --seed N [--verbose] | sim --seeds A..B";

fn main() -> ExitCode {
    let Some((seeds, ladder)) = read_arguments(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (mut tally, mut witnessed, mut steps) = (Tally::default(), Witnessed::default(), 0);
    for seed in seeds.clone() {
        let outcome = World::run(&Scenario::random(seed), seed, Options { ladder, ..Options::default() });
        print!("{}", outcome.ladder);
        if let Some(violation) = outcome.violation {
            eprintln!("seed {seed}: {violation}");
            eprintln!("replay it with: cargo run -p strowger-sim --bin sim -- --seed {seed} --verbose");
            return ExitCode::from(1);
        }
        tally.add(&outcome.tally);
        witnessed.add(&outcome.witnessed);
        steps += outcome.steps;
        let done = seed - seeds.start + 1;
        if done % 100 == 0 {
            eprintln!("{done} of {} seeds, {steps} steps", seeds.end - seeds.start);
        }
    }
    println!("seeds {}..{}: every rule held in {steps} steps; {tally:?}, {witnessed:?}", seeds.start, seeds.end);
    ExitCode::SUCCESS
}

fn read_arguments(mut arguments: impl Iterator<Item = String>) -> Option<(Range<u64>, bool)> {
    let (mut seeds, mut verbose) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => {
                let seed = arguments.next()?.parse().ok()?;
                seeds = Some(seed..seed + 1);
            }
            "--seeds" => {
                let text = arguments.next()?;
                let (from, to) = text.split_once("..")?;
                seeds = Some(from.parse().ok()?..to.parse().ok()?);
            }
            "--verbose" => verbose = true,
            _ => return None,
        }
    }
    seeds.map(|seeds| (seeds, verbose))
}
