//! What callers and phones notice while an operator works on a server under load. Writes `bench/OPERATE.md`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use strowger_bench::namespace::enter;
use strowger_bench::operate::scrape::{self, Extent};
use strowger_bench::operate::{acts_table, memory};
use strowger_bench::programs;
use strowger_bench::register::report::replace;
use strowger_bench::server::{circumstances, command_line};
use strowger_interop::operate::{Exercise, Outcome, Reloads, Upgrades, exercise};

#[derive(Debug, Parser)]
#[command(
    about = "What callers and phones notice while an operator works on a server under load; a report, not a test"
)]
struct Arguments {
    #[command(subcommand)]
    mode: Mode,
    /// Calls per second
    #[arg(long, global = true, default_value_t = 2_000)]
    calls: u32,
    /// REGISTERs per second
    #[arg(long, global = true, default_value_t = 2_000)]
    registrations: u32,
    /// Number of times that the operator acts
    #[arg(long, global = true, default_value_t = 10)]
    rounds: u32,
    /// Seconds between two of them
    #[arg(long, global = true, default_value_t = 2)]
    interval: u64,
    /// Threads of the server that process messages
    #[arg(long, global = true, default_value_t = 2)]
    workers: u8,
    /// Smoke test: a little of everything; writes nothing
    #[arg(long, global = true)]
    quick: bool,
    /// File for the report, in addition to standard output [default: bench/OPERATE.md]
    #[arg(long, global = true)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Mode {
    /// Reloads the configuration with other listeners and other values
    Reload,
    /// Scrapes the metrics, alternating with periods without scrapes, with 100,000 users registered
    Scrape {
        /// Periods of each kind
        #[arg(long, default_value_t = 3)]
        periods: u32,
        /// Seconds of each
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Reads memory after peaks of load; four minutes
    Memory,
    /// Replaces the process of the server by another one of the same program
    Upgrade {
        /// How registrations are stored
        #[arg(long, value_enum, default_value = "write-through")]
        store: Store,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Store {
    Memory,
    WriteBehind,
    WriteThrough,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    programs::existing_strowger(None).map_err(io::Error::other)?;
    match arguments.mode {
        Mode::Reload => arguments.report("reloads", &reload(&arguments.exercise(), arguments.workers)),
        Mode::Upgrade { store } => {
            arguments.report("upgrades", &upgrade(&arguments.exercise(), arguments.workers, store))
        }
        Mode::Memory => {
            let _ = enter(true);
            let extent = if arguments.quick { memory::Extent::QUICK } else { memory::Extent::FULL };
            arguments.write("memory", &memory::measure(extent)?)
        }
        Mode::Scrape { periods, seconds } => {
            let _ = enter(false);
            let smoke = Extent { rounds: 1, seconds: 2 };
            let extent = if arguments.quick { smoke } else { Extent { rounds: periods, seconds } };
            arguments.write("scrapes", &scrape::measure(extent)?)
        }
    }
}

impl Arguments {
    fn exercise(&self) -> Exercise {
        Exercise {
            calls: self.calls,
            registrations: self.registrations,
            rounds: if self.quick { 1 } else { self.rounds },
            interval: Duration::from_secs(self.interval),
        }
    }

    /// Writes what was noticed of an operator's acts, such as `reloads`. Fails if anything was lost.
    fn report(&self, acts: &str, outcome: &Outcome) -> io::Result<()> {
        self.write(acts, &acts_table(acts, &self.exercise(), outcome))?;
        match outcome.lost() {
            0 => Ok(()),
            lost => Err(io::Error::other(format!("{lost} calls and registrations were lost"))),
        }
    }

    /// Prints a part of the report, and writes it.
    fn write(&self, part: &str, text: &str) -> io::Result<()> {
        let text = format!("{}\n{text}", circumstances(&command_line("strowger-bench --bin operate")));
        println!("{text}");
        if self.quick {
            return Ok(());
        }
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("OPERATE.md");
        replace(self.output.as_ref().unwrap_or(&usual), &format!("operate-{part}"), &text)
    }
}

fn reload(how: &Exercise, workers: u8) -> Outcome {
    let reloads = Reloads::start(workers);
    exercise(reloads.address(), how, |round| {
        let printed = reloads.reload(round);
        println!("reload {}: {}", round + 1, printed.lines().last().unwrap_or_default());
    })
}

fn upgrade(how: &Exercise, workers: u8, store: Store) -> Outcome {
    let store = match store {
        Store::Memory => "memory",
        Store::WriteBehind => "write-behind",
        Store::WriteThrough => "write-through",
    };
    let upgrades = Upgrades::start(workers, store);
    exercise(upgrades.address(), how, |round| {
        let printed = upgrades.upgrade();
        let measured = printed.lines().skip(1).collect::<Vec<_>>().join("; ");
        println!("upgrade {}: {measured}", round + 1);
    })
}
