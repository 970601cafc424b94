//! Calls and registrations through one core of our server and of Debian's Kamailio, by turns. Writes its tables into
//! `bench/RESULTS.md`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use strowger_bench::proxy::measure::{How, Load, run};
use strowger_bench::proxy::peer::Peer;
use strowger_bench::proxy::scenario::Scenario;
use strowger_bench::proxy::table::{self, Row};
use strowger_bench::register::process::adopt;
use strowger_bench::register::report::replace;
use strowger_bench::server::circumstances;

/// Set where the process already has a network of its own.
const APART: &str = "STROWGER_BENCH_APART";

#[derive(Debug, Parser)]
#[command(about = "Calls and registrations through one core, side by side; a report, not a test")]
struct Arguments {
    /// call, register, challenge [default: all]
    #[arg(long, value_delimiter = ',', value_parser = Scenario::parse)]
    scenarios: Vec<Scenario>,
    /// strowger, kamailio [default: both]
    #[arg(long, value_delimiter = ',', value_parser = Peer::parse)]
    servers: Vec<Peer>,
    /// How often each has its turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Users on each side
    #[arg(long, default_value_t = 1_000)]
    users: u32,
    /// Calls or registrations going on at saturation
    #[arg(long, default_value_t = 100)]
    outstanding: u32,
    /// The other loads, each a second
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 3_000])]
    rates: Vec<u32>,
    /// Seconds until a server is warm: its transactions live for 32
    #[arg(long, default_value_t = 40)]
    warm_up: u64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// A smoke test: little of everything, and nothing is written
    #[arg(long)]
    quick: bool,
    /// The program [default: STROWGER_BIN, else strowger beside this program]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// A folder for each run's report
    #[arg(long)]
    reports: Option<PathBuf>,
    /// The file that the tables go into, besides standard output [default: bench/RESULTS.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

fn main() {
    let arguments = Arguments::parse();
    let around = circumstances(&said());
    if !is_apart() {
        std::process::exit(again_apart());
    }
    adopt().expect("processes can be adopted");
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("ip, of Debian's iproute2, is there");
    assert!(up.success(), "the namespace has no loopback");
    let mut text = format!("## Calls and registrations, side by side\n\n{around}{}\n{}", kamailio(), words(&arguments));
    let all = if arguments.scenarios.is_empty() { &Scenario::ALL[..] } else { &arguments.scenarios };
    for scenario in all {
        text.push_str(&table::of(*scenario, &rows(&arguments, *scenario)));
    }
    println!("{text}");
    if !arguments.quick {
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
        replace(&arguments.output.unwrap_or(usual), "proxy", &text).expect("the table can be written");
    }
}

/// Whether this process has a network of its own, where nobody else's filters and connection tables are on the way.
fn is_apart() -> bool {
    std::env::var_os(APART).is_some()
}

/// Runs this program once more, in a network namespace that ends with it; how it ended.
fn again_apart() -> i32 {
    let program = std::env::current_exe().expect("a running program has a file");
    let mut command = Command::new("unshare");
    let status = command.arg("--net").arg(program).args(std::env::args_os().skip(1)).env(APART, "1").status();
    status.expect("unshare, of Debian's util-linux, is there; it needs root").code().unwrap_or(1)
}

/// All rounds of a scenario: each server in turn goes through all loads.
fn rows(arguments: &Arguments, scenario: Scenario) -> Vec<Row> {
    let beside = || std::env::current_exe().expect("a running program has a file").with_file_name("strowger");
    let binary = arguments.binary.clone().or_else(|| std::env::var_os("STROWGER_BIN").map(PathBuf::from));
    let (warm_up, seconds, rounds) =
        if arguments.quick { (1, 2, 1) } else { (arguments.warm_up, arguments.seconds, arguments.rounds) };
    let how = How {
        binary: std::path::absolute(binary.unwrap_or_else(beside)).expect("there is a current folder"),
        users: arguments.users,
        warm_up: Duration::from_secs(warm_up),
        time: Duration::from_secs(seconds),
    };
    let mut loads: Vec<Load> = arguments.rates.iter().map(|rate| Load::Rate(*rate)).collect();
    loads.push(Load::Saturation(arguments.outstanding));
    let peers = if arguments.servers.is_empty() { &[Peer::Strowger, Peer::Kamailio][..] } else { &arguments.servers };
    let mut rows: Vec<Row> = Vec::new();
    for load in &loads {
        rows.extend(peers.iter().map(|peer| Row { peer: *peer, load: *load, runs: Vec::new() }));
    }
    for round in 1..=rounds {
        for peer in peers {
            if let Err(error) = turn(arguments, &how, scenario, (*peer, round), &mut rows) {
                eprintln!("{scenario}, {peer}, round {round}: {error}");
            }
        }
    }
    rows
}

/// One server, once, through all loads. It is started anew for each: a run's callees are gone when it ends, and who is rung
/// where nobody is any more is another measurement.
fn turn(
    arguments: &Arguments,
    how: &How,
    scenario: Scenario,
    (peer, round): (Peer, usize),
    rows: &mut [Row],
) -> Result<(), String> {
    let address = SocketAddr::from(([127, 0, 0, 1], 5_060));
    for row in rows.iter_mut().filter(|row| row.peer == peer) {
        let folder = tempfile::Builder::new().prefix("strowger-proxy-").tempdir().map_err(|error| error.to_string())?;
        let mut server = peer.start(&how.binary, folder.path(), scenario, address, 2 * how.users)?;
        let load = match row.load {
            Load::Saturation(_) => "saturation".to_owned(),
            Load::Rate(rate) => rate.to_string(),
        };
        let name = format!("{}-{load}-{peer}-{round}.json", scenario.name()).to_lowercase();
        let json = arguments.reports.as_deref().unwrap_or(folder.path()).join(name);
        let figures = run(how, &server, address, scenario, row.load, &json)?;
        server.check()?;
        eprintln!("{scenario}, {peer}, {}, round {round}: {figures:.1?}", row.load);
        row.runs.push(figures);
    }
    Ok(())
}

fn words(arguments: &Arguments) -> String {
    format!(
        "\n{} users on each side; the server has the first core with all of its processes, one of them receiving; \
         `strowger load`, both ends of it, has the second. {} rounds, the servers by turns, started anew for each load: {} s to \
         warm up, {} s measured. Medians. Times are the caller's; the callee answers at once.\n",
        arguments.users, arguments.rounds, arguments.warm_up, arguments.seconds
    )
}

fn kamailio() -> String {
    let output = Command::new("kamailio").arg("-v").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    format!("- {}", text.lines().next().unwrap_or("kamailio is not here").trim_start_matches("version: "))
}

/// What was said on the command line, for whoever wants the same again.
fn said() -> String {
    let said: Vec<String> = std::env::args().skip(1).collect();
    let said = if said.is_empty() { String::new() } else { format!(" -- {}", said.join(" ")) };
    format!("cargo build --release -p strowger && cargo run --release -p strowger-bench --bin proxy{said}")
}
