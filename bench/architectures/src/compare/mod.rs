//! Runs all architectures in rotation against `strowger load`, each on one core, and writes the tables and plots of
//! bench/ARCHITECTURES.md.

mod load;
mod paper;
mod plot;
pub(crate) mod queue;
mod scenario;
mod server;
mod tables;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use scenario::Scenario;
use strowger_bench::namespace::enter;
use strowger_bench::register::report::replace;
use strowger_bench::register::rounds::median;
use strowger_bench::server::{circumstances, command_line};

use crate::shells::Architecture;
use load::{Figures, Load, RunSize};
use server::{Server, Start, Subject};

/// Package name on the command line.
const PACKAGE: &str = "strowger-architectures";
/// Core of a server with one core, and cores of a server with both, which shares the second with the generator.
const ONE_CORE: &str = "0";
const BOTH_CORES: &str = "0,1";

#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArguments {
    /// Architectures to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Architecture>,
    /// Runs of each architecture at saturation
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Concurrent calls or registrations at saturation
    #[arg(long, default_value_t = 64)]
    outstanding: u32,
    /// Call rate at which latencies are measured in addition
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// Users per side
    #[arg(long, default_value_t = 1_000)]
    users: u32,
    /// Seconds at the start of each run that are not measured
    #[arg(long, default_value_t = 3.0)]
    warm_up: f64,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// T1 of the server in milliseconds; transactions live 64 times as long, so a short T1 keeps them few, as in the
    /// paper
    #[arg(long, default_value_t = 100)]
    t1_ms: u64,
    /// Smoke test: one short round, written to standard output only
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    places: Places,
}

/// Programs and files.
#[derive(Clone, Debug, Args)]
struct Places {
    /// The `strowger` binary [default: STROWGER_BIN, else strowger beside this program]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// File for the tables; plots go beside it [default: bench/ARCHITECTURES.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

impl Places {
    fn binary(&self) -> Result<PathBuf, String> {
        let named = self.binary.clone().or_else(|| std::env::var_os("STROWGER_BIN").map(PathBuf::from));
        let beside = || Ok::<_, io::Error>(std::env::current_exe()?.with_file_name("strowger"));
        let binary = named.map_or_else(beside, Ok).and_then(std::path::absolute).map_err(|error| error.to_string())?;
        if binary.is_file() {
            return Ok(binary);
        }
        Err("there is no program strowger beside this one: cargo build --release -p strowger".to_owned())
    }

    fn output(&self) -> PathBuf {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("ARCHITECTURES.md");
        self.output.clone().unwrap_or_else(usual)
    }
}

/// All runs of one server under one load.
#[derive(Clone, Debug)]
struct Row {
    subject: Subject,
    scenario: Scenario,
    cores: &'static str,
    load: Load,
    runs: Vec<Figures>,
}

impl Row {
    /// Returns the median of a figure, or NaN without runs.
    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(self.runs.iter().map(of).filter(|value| !value.is_nan()).collect())
    }
}

/// Runs the comparison and writes the results.
///
/// # Errors
/// If no network namespace is available, a program is missing or a file cannot be written.
pub(crate) fn run(arguments: &CompareArguments) -> Result<(), String> {
    let mut arguments = arguments.clone();
    if arguments.quick {
        (arguments.rounds, arguments.warm_up, arguments.seconds) = (1, 0.5, 1.0);
    }
    let arguments = &arguments;
    let _ = enter(false);
    let around = circumstances(&command_line(PACKAGE));
    let binary = arguments.places.binary()?;
    let mut rows = plan(arguments);
    for round in 1..=arguments.rounds {
        for row in &mut rows {
            // Only saturation on one core is compared in all rounds; everything else runs once.
            if round > 1 && (row.cores != ONE_CORE || !matches!(row.load, Load::Saturation(_))) {
                continue;
            }
            match turn(arguments, &binary, row) {
                Ok(figures) => {
                    eprintln!(
                        "{}, {}, {:?}, cores {}, round {round}: {figures:.1?}",
                        row.subject, row.scenario, row.load, row.cores
                    );
                    row.runs.push(figures);
                }
                Err(error) => eprintln!("{}, {}, round {round}: {error}", row.subject, row.scenario),
            }
        }
    }
    let text = tables::all(arguments, &rows, &around);
    println!("{text}");
    if arguments.quick {
        return Ok(());
    }
    let file = arguments.places.output();
    let wrong = |error: io::Error| format!("{}: {error}", file.display());
    replace(&file, "compare", &text).map_err(wrong)?;
    fs::write(file.with_file_name("architectures.svg"), plot::draw(&rows)).map_err(wrong)
}

/// Returns the measurements of one round, in order.
fn plan(arguments: &CompareArguments) -> Vec<Row> {
    let shells = if arguments.only.is_empty() { &Architecture::ALL[..] } else { &arguments.only };
    let shells = || shells.iter().map(|shell| Subject::Shell(*shell));
    let saturation = Load::Saturation(arguments.outstanding);
    let row = |subject, scenario, cores, load| Row { subject, scenario, cores, load, runs: Vec::new() };
    let mut rows = Vec::new();
    for scenario in Scenario::ALL {
        let all = shells().chain([Subject::Product]);
        rows.extend(all.map(|subject| row(subject, scenario, ONE_CORE, saturation)));
    }
    let rate = Load::Rate(arguments.rate);
    rows.extend(shells().chain([Subject::Product]).map(|subject| row(subject, Scenario::Stateful, ONE_CORE, rate)));
    for scenario in [Scenario::Stateless, Scenario::Stateful] {
        rows.extend(shells().map(|subject| row(subject, scenario, BOTH_CORES, saturation)));
    }
    rows
}

/// Runs one freshly started server under one load.
fn turn(arguments: &CompareArguments, binary: &Path, row: &Row) -> Result<Figures, String> {
    let extent = RunSize {
        users: arguments.users,
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        time: Duration::from_secs_f64(arguments.seconds),
    };
    let server = Server::start(&Start {
        subject: row.subject,
        scenario: row.scenario,
        cores: row.cores,
        t1: Duration::from_millis(arguments.t1_ms),
        threads: None,
        room: None,
        binary,
    })?;
    let mut figures = load::run(binary, &server, row.scenario, row.load, extent)?;
    if row.subject == Subject::Shell(Architecture::ThreadPerMessage) {
        // The kernel drops the switch counts of finished threads. Each has switched at least once, at its end.
        figures.switches += row.scenario.messages();
    }
    Ok(figures)
}
