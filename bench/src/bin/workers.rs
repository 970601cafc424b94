//! Two workers against one, each limited to a share of a core, with all messages from one address and port. Prints a
//! table and writes `bench/WORKERS.md`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use strowger_bench::namespace::enter;
use strowger_bench::programs::BinaryArgument;
use strowger_bench::register::report::replace;
use strowger_bench::register::rounds::median;
use strowger_bench::server::{circumstances, command_line};
use strowger_bench::workers::run::{Outcome, RunOptions, Server, Work};

/// Text above the table.
const HEAD: &str = "All messages of a side come from one address and port, as from a trunk, so the kernel delivers them all to one worker.
A control group limits each worker thread to the same share of a core. A server with one worker and one with two are
warmed up and then alternate, a few seconds each, so that other work of the machine affects both. Each ratio is of two
consecutive turns. Enough requests are outstanding to keep one worker busy while the other waits for its next period of
10 ms. *At their limit* is the share of periods in which the workers used up their quota; far below 100 %, something
else was the limit. *Handed over* is the share of messages that one worker received and
another processed.

Two workers carry less than twice as much for two reasons. For a message that it hands over, the receiving worker reads
the keys that identify the shard and copies the message into another core's caches. And each worker has fewer responses
at a time that can be sent as one segmented datagram. The difference in CPU time between one and two shows the cost.
";

#[derive(Debug, Parser)]
#[command(about = "Two workers against one on one peer's messages; a report, not a test")]
struct Arguments {
    /// Runs of each variant
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Maximum share of a core per worker, in percent
    #[arg(long, default_value_t = 25)]
    percent: u32,
    /// Concurrent registrations or calls
    #[arg(long, default_value_t = 4_000)]
    outstanding: u32,
    /// peers, packets: `server.steering` [default: both]
    #[arg(long, value_delimiter = ',')]
    steering: Vec<String>,
    /// Seconds that are not measured: transactions live for 32, and until they end as fast as they begin, memory is
    /// touched for the first time
    #[arg(long, default_value_t = 35)]
    warm_up: u64,
    /// Measured seconds of a run, after two that are not measured
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Smoke test: a little of everything; writes nothing
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File for the table [default: bench/WORKERS.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Port of all callers, and port of all callees.
const PORTS: &str = "40000 40001";

/// Seconds of a run that are not measured.
const SETTLE_S: u64 = 2;

/// One worker and two workers, measured in rotation.
struct Pair {
    work: Work,
    steering: String,
    turns: Vec<[Outcome; 2]>,
}

fn main() {
    let arguments = Arguments::parse();
    let _ = enter(false);
    // Each generator sends from the same ports as the one before, so the contacts of the previous run stay valid.
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", PORTS).expect("a namespace of our own");
    let steerings = if arguments.steering.is_empty() {
        vec!["peers".to_owned(), "packets".to_owned()]
    } else {
        arguments.steering.clone()
    };
    let mut pairs = Vec::new();
    for work in [Work::Register, Work::Call] {
        for steering in &steerings {
            pairs.push(measure(&arguments, work, steering));
        }
    }
    let around = circumstances(&command_line("strowger-bench --bin workers"));
    let text = format!("{HEAD}\n{around}\n{}", table(&arguments, &pairs));
    println!("{text}");
    if !arguments.quick {
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("WORKERS.md");
        replace(&arguments.output.unwrap_or(usual), "workers", &text).expect("the table can be written");
    }
}

fn measure(arguments: &Arguments, work: Work, steering: &str) -> Pair {
    let (warm_up, seconds, rounds) =
        if arguments.quick { (3, 2, 1) } else { (arguments.warm_up, arguments.seconds, arguments.rounds) };
    let how = RunOptions {
        binary: arguments.binary.path(),
        percent: arguments.percent,
        steering: steering.to_owned(),
        outstanding: arguments.outstanding,
    };
    let start = |workers| Server::start(&how, workers).expect("the server starts");
    let servers = [start(1), start(2)];
    let load = |server: &Server, warm_up: u64, seconds: u64| {
        let (warm_up, time) = (Duration::from_secs(warm_up), Duration::from_secs(seconds));
        server.load(&how, work, warm_up, time).expect("the generator runs")
    };
    servers.iter().for_each(|server| drop(load(server, warm_up, 1)));
    let mut pair = Pair { work, steering: steering.to_owned(), turns: Vec::new() };
    for round in 1..=rounds {
        let turn = servers.each_ref().map(|server| load(server, SETTLE_S, seconds));
        eprintln!("{}, {steering}, round {round}: {turn:.2?}", work.workload());
        pair.turns.push(turn);
    }
    pair
}

fn table(arguments: &Arguments, pairs: &[Pair]) -> String {
    let mut text = format!(
        "Each worker: {} % of a core; {} at a time; {} rounds, medians.\n\n\
         | requests | `server.steering` | one worker, a second | two workers, a second | ratio | CPU µs each, one | two | \
         at their limit %, one | two | not carried % | handed over | shards | generator's core |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|\n",
        arguments.percent, arguments.outstanding, arguments.rounds
    );
    for Pair { work, steering, turns } in pairs {
        let median_of = |what: &dyn Fn(&[Outcome; 2]) -> f64| median(turns.iter().map(what).collect());
        let of = |which: usize, what: fn(&Outcome) -> f64| median_of(&|turn| turn.get(which).map_or(f64::NAN, what));
        let ratios: Vec<f64> = turns.iter().map(|[one, two]| two.rate / one.rate).collect();
        let (least, most) =
            (ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max));
        let shards = turns.last().map(|[_, two]| two.shards.iter().map(u64::to_string).collect::<Vec<_>>().join(" + "));
        let _ = writeln!(
            text,
            "| {} | {steering} | {:.0} | {:.0} | {:.2} ({least:.2} to {most:.2}) | {:.1} | {:.1} | {:.0} | {:.0} | {:.3} | {:.2} | {} | {:.2} |",
            work.workload(),
            of(0, |run| run.rate),
            of(1, |run| run.rate),
            median(ratios),
            of(0, |run| run.processor),
            of(1, |run| run.processor),
            of(0, |run| run.throttled),
            of(1, |run| run.throttled),
            of(1, |run| run.lost),
            of(1, |run| run.handed_over),
            shards.unwrap_or_default(),
            of(1, |run| run.generator),
        );
    }
    text
}
