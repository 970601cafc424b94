//! Runs simulated worlds by seed: many seeds until the first violation, or one with a trace of its messages.
//!
//! Usage: `sim --seeds 0..1000` or `sim --seed 123 --verbose`. Three of four worlds have a store. `sim
//! --crash-points` fails power at every disk operation. `sim --overload` compares policies of overload control. Exit
//! codes: 0 all rules hold, 1 a rule was violated, 2 bad arguments.

use std::ops::Range;
use std::process::ExitCode;

use strowger_sim::agent::Tally;
use strowger_sim::crash_points;
use strowger_sim::invariants::RuleCoverage;
use strowger_sim::overload::{self, Cpu};
use strowger_sim::scenario::Scenario;
use strowger_sim::store::StoreStats;
use strowger_sim::world::{Options, World};

const USAGE: &str = "\
usage: sim --seed N [--verbose] | sim --seeds A..B | sim --crash-points
       sim --overload [--capacity N] [--cpu-percent N] [--seed N] | sim --help";

const HELP: &str = "
  --seed N [--verbose]  run one random world, with all its messages
  --seeds A..B          run many, until one violates an invariant
  --crash-points        simulate a power failure at every disk operation
  --overload            offer 1, 2, 5 and 10 times the capacity to one worker under each policy of overload control, and
                        print a table; takes a minute with --release
    --capacity N        calls a second that the worker carries (500)
    --cpu-percent N     the worker runs for this share of each 25 ms, at a correspondingly higher speed (100)
    --seed N            arrival times of the calls (1)

  policy          admission before the shards
  fifo            one receive queue, read in the order of arrival
  sorted          two queues: calls in progress are read first, new work waits for a bounded time
  control         the same, plus the controller, which refuses and drops in the worker
  kernel-filter   the same, and the kernel drops calls that the controller's filter rejects
  kernel-memory   the same, and the kernel also drops retransmissions of dropped calls";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--help") => {
            println!("{USAGE}\n{HELP}");
            ExitCode::SUCCESS
        }
        Some("--crash-points") if arguments.len() == 1 => lose_power_everywhere(),
        Some("--overload") => compare_policies(arguments.into_iter().skip(1)),
        _ => run_worlds(arguments.into_iter()),
    }
}

fn compare_policies(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some((seed, capacity, cpu)) = read_overload_arguments(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    overload::compare(seed, capacity, cpu, |line| println!("{line}"));
    ExitCode::SUCCESS
}

fn read_overload_arguments(mut arguments: impl Iterator<Item = String>) -> Option<(u64, u32, Cpu)> {
    let (mut seed, mut capacity, mut cpu) = (1, 500, Cpu::WHOLE);
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        match argument.as_str() {
            "--seed" => seed = value.parse().ok()?,
            "--capacity" => capacity = value.parse().ok().filter(|capacity| *capacity > 0)?,
            "--cpu-percent" => {
                let percent: u32 = value.parse().ok().filter(|percent| (1..=100).contains(percent))?;
                cpu.slice = cpu.period * percent / 100;
            }
            _ => return None,
        }
    }
    Some((seed, capacity, cpu))
}

fn run_worlds(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some((seeds, ladder)) = read_arguments(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (mut tally, mut witnessed, mut steps) = (Tally::default(), RuleCoverage::default(), 0);
    let (mut done, mut ends) = (StoreStats::default(), 0);
    for seed in seeds.clone() {
        let outcome = World::run(&Scenario::of(seed), seed, Options { ladder, ..Options::default() });
        print!("{}", outcome.ladder);
        if let Some(violation) = outcome.violation {
            eprintln!("seed {seed}: {violation}");
            eprintln!("replay it with: cargo run -p strowger-sim --bin sim -- --seed {seed} --verbose");
            return ExitCode::from(1);
        }
        tally.add(&outcome.tally);
        witnessed.add(&outcome.coverage);
        steps += outcome.steps;
        done.add(&outcome.store_stats);
        ends += outcome.ends;
        let done = seed - seeds.start + 1;
        if done % 100 == 0 {
            eprintln!("{done} of {} seeds, {steps} steps", seeds.end - seeds.start);
        }
    }
    println!("seeds {}..{}: all invariants held in {steps} steps; {tally:?}, {witnessed:?}", seeds.start, seeds.end);
    println!("{ends} processes ended; {done:?}");
    ExitCode::SUCCESS
}

fn lose_power_everywhere() -> ExitCode {
    match crash_points::run(None) {
        Ok(report) => {
            println!("every acknowledged registration survived each power failure: {report:?}");
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
