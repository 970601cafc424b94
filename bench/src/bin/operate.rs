//! What callers and phones notice while an operator works on a server under load. Prints the figures.

use std::time::Duration;

use clap::{Parser, Subcommand};
use strowger_bench::programs;
use strowger_interop::operate::{Exercise, Outcome, Reloads, exercise};

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
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Mode {
    /// Reloads the configuration with other listeners and other values
    Reload,
}

fn main() {
    let arguments = Arguments::parse();
    if let Err(error) = programs::existing_strowger(None) {
        eprintln!("operate: {error}");
        std::process::exit(1);
    }
    let how = Exercise {
        calls: arguments.calls,
        registrations: arguments.registrations,
        rounds: arguments.rounds,
        interval: Duration::from_secs(arguments.interval),
    };
    let outcome = match arguments.mode {
        Mode::Reload => reload(&how, arguments.workers),
    };
    print!("{outcome}");
    println!("lost: {}; latest answer after {:.1} ms", outcome.lost(), outcome.longest().as_secs_f64() * 1e3);
    if outcome.lost() > 0 {
        std::process::exit(1);
    }
}

fn reload(how: &Exercise, workers: u8) -> Outcome {
    let reloads = Reloads::start(workers);
    exercise(reloads.address(), how, |round| {
        let printed = reloads.reload(round);
        println!("reload {}: {}", round + 1, printed.lines().last().unwrap_or_default());
    })
}
