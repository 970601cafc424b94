//! Measures the load generator itself: whether it keeps the distribution of arrivals, and how many calls it makes on
//! one core, beside SIPp and a relay without logic. Prints JSON and writes its tables into `bench/GENERATOR.md`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use strowger_bench::generator::report::{Figures, Round, Sipp};
use strowger_bench::generator::{highest, relay, sipp, strowger, wire};
use strowger_bench::register::report::replace;
use strowger_bench::server::{circumstances, command_line};

/// Concurrent calls in closed loops.
const AT_ONCE: usize = 32;

/// Text above the tables.
const HEAD: &str = "# The load generator

Written by `strowger-bench`, where nothing else runs:

```
cargo build --release -p strowger
cargo run --release -p strowger-bench --bin generator               # about 15 minutes
cargo run --release -p strowger-bench --bin generator -- --quick    # a smoke test; writes nothing
```
";

#[derive(Debug, Parser)]
#[command(about = "The load generator beside SIPp and a bare relay; a report, not a test")]
struct Arguments {
    /// Smoke test: a little of everything; writes nothing
    #[arg(long)]
    quick: bool,
    /// Skips SIPp
    #[arg(long)]
    no_sipp: bool,
    /// Runs of the relay and the generator [default: 7]
    #[arg(long)]
    rounds: Option<usize>,
    /// Core for everything that runs on a single core
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// File for the tables [default: bench/GENERATOR.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

impl Arguments {
    /// Returns a duration: the full one or that of a smoke test.
    fn seconds(&self, whole: f64, quick: f64) -> Duration {
        Duration::from_secs_f64(if self.quick { quick } else { whole })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let figures = measure(&arguments)?;
    println!("{:#}", figures.to_json());
    let sipp = figures.sipp.as_ref().map_or("none", |sipp| sipp.version.as_str());
    let text = format!(
        "{}- SIPp: {sipp}\n\n{}",
        circumstances(&command_line("strowger-bench --bin generator")),
        figures.to_markdown()
    );
    println!("{text}");
    if !arguments.quick {
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("GENERATOR.md");
        let file = arguments.output.unwrap_or(usual);
        if !file.exists() {
            std::fs::write(&file, HEAD)?;
        }
        replace(&file, "generator", &text)?;
    }
    Ok(())
}

fn measure(arguments: &Arguments) -> Result<Figures, Box<dyn std::error::Error>> {
    eprintln!("arrivals on the wire");
    let gaps = if arguments.quick { 501 } else { 2_001 };
    let distances = [1, 2].map(|threads| (threads, wire::distance(1_000.0, gaps, threads, 11))).to_vec();
    let (seconds, runs) = if arguments.quick { (2, 1) } else { (12, 5) };
    let variances = [1, 2].map(|threads| (threads, wire::variance(20_000.0, seconds, threads, 11..11 + runs))).to_vec();
    let offsets = wire::offsets(if arguments.quick { 300 } else { 2_000 });

    let all = sched_getaffinity(None)?;
    stay_on(arguments.core)?;
    eprintln!("closed loops, and a relay");
    let time = arguments.seconds(3.0, 0.5);
    let rounds: Result<Vec<_>, Box<dyn std::error::Error>> =
        (0..arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 7 }))
            .map(|_| Ok(Round { relay: relay::run(time, AT_ONCE)?, ours: strowger::closed(time, AT_ONCE)? }))
            .collect();
    let rounds = rounds?;
    eprintln!("the highest clean rate");
    let time = arguments.seconds(4.0, 0.5);
    let mut failure = None;
    let ours = highest(8_000.0, |rate| {
        strowger::open(rate, time).unwrap_or_else(|error| {
            let text = error.to_string();
            failure = Some(error);
            strowger_bench::generator::Probe::new(rate, 0.0, vec![text])
        })
    });
    if let Some(error) = failure {
        return Err(error.into());
    }
    sched_setaffinity(None, &all)?;
    let sipp = if arguments.no_sipp { None } else { with_sipp(arguments)? };
    Ok(Figures { distances, variances, offsets, rounds, ours, sipp })
}

fn with_sipp(arguments: &Arguments) -> std::io::Result<Option<Sipp>> {
    let Some(version) = sipp::version() else { return Ok(None) };
    let time = arguments.seconds(8.0, 2.0);
    let core = arguments.core;
    let mut failure = None;
    let mut best = |cores| {
        highest(4_000.0, |rate| {
            sipp::probe(rate, time, cores).unwrap_or_else(|error| {
                let text = error.to_string();
                failure = Some(error);
                strowger_bench::generator::Probe::new(rate, 0.0, vec![text])
            })
        })
    };
    eprintln!("SIPp, a core for each end");
    let apart = best(sipp::Cores { caller: core, callee: usize::from(core == 0) });
    eprintln!("SIPp, one core for both");
    let together = best(sipp::Cores { caller: core, callee: core });
    failure.map_or(Ok(Some(Sipp { version, apart, together })), Err)
}

/// Pins this thread, and threads that it starts afterwards, to one core.
fn stay_on(core: usize) -> std::io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}
