//! Runs worlds by seed: many until the first that breaks a rule, or one with all its messages.
//!
//! `sim --seeds 0..1000` or `sim --seed 123 --verbose`; three of four worlds have a store. `sim --crash-points` has power fail
//! at every operation of the disk. Exit codes: 0 all rules held, 1 one was broken, 2 bad arguments.

use std::ops::Range;
use std::process::ExitCode;

use strowger_sim::agent::Tally;
use strowger_sim::crash_points;
use strowger_sim::invariants::Witnessed;
use strowger_sim::scenario::Scenario;
use strowger_sim::store::Done;
use strowger_sim::world::{Options, World};

const USAGE: &str = "usage: sim --seed N [--verbose] | sim --seeds A..B | sim --crash-points";

fn main() -> ExitCode {
    if std::env::args().skip(1).eq(["--crash-points"]) {
        return lose_power_everywhere();
    }
    let Some((seeds, ladder)) = read_arguments(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (mut tally, mut witnessed, mut steps) = (Tally::default(), Witnessed::default(), 0);
    let (mut done, mut ends) = (Done::default(), 0);
    for seed in seeds.clone() {
        let outcome = World::run(&Scenario::of(seed), seed, Options { ladder, ..Options::default() });
        print!("{}", outcome.ladder);
        if let Some(violation) = outcome.violation {
            eprintln!("seed {seed}: {violation}");
            eprintln!("replay it with: cargo run -p strowger-sim --bin sim -- --seed {seed} --verbose");
            return ExitCode::from(1);
        }
        tally.add(&outcome.tally);
        witnessed.add(&outcome.witnessed);
        steps += outcome.steps;
        done.add(&outcome.done);
        ends += outcome.ends;
        let done = seed - seeds.start + 1;
        if done % 100 == 0 {
            eprintln!("{done} of {} seeds, {steps} steps", seeds.end - seeds.start);
        }
    }
    println!("seeds {}..{}: every rule held in {steps} steps; {tally:?}, {witnessed:?}", seeds.start, seeds.end);
    println!("{ends} processes ended; {done:?}");
    ExitCode::SUCCESS
}

fn lose_power_everywhere() -> ExitCode {
    match crash_points::run(None) {
        Ok(report) => {
            println!("all that was promised is there, wherever power fails: {report:?}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(1)
        }
    }
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
