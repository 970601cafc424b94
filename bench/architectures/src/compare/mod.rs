//! All architectures against `strowger load`, by turns, each on one core; the tables and plots of bench/ARCHITECTURES.md.

mod load;
mod paper;
mod plot;
pub(crate) mod queue;
mod server;
mod tables;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::shells::Architecture;
use load::{Extent, Figures, Load, Scenario};
use server::{Server, Start, Subject};

/// Set where the process already has a network of its own.
const APART: &str = "STROWGER_BENCH_APART";
/// The cores of the server where it has one, and where it has both and shares the second with the generator.
const ONE_CORE: &str = "0";
const BOTH_CORES: &str = "0,1";

#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArguments {
    /// Which of them [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Architecture>,
    /// How often each has its turn at saturation
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Calls or registrations going on at saturation
    #[arg(long, default_value_t = 64)]
    outstanding: u32,
    /// The rate of calls at which times are measured besides
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// Users on each side
    #[arg(long, default_value_t = 1_000)]
    users: u32,
    /// Seconds that are not measured, of each run
    #[arg(long, default_value_t = 3.0)]
    warm_up: f64,
    /// Seconds that are
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// T1 of the server in milliseconds: transactions live 64 times as long, and are kept few, as in the paper
    #[arg(long, default_value_t = 100)]
    t1_ms: u64,
    /// A smoke test: one round of little, written to standard output alone
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    places: Places,
}

/// Programs and files.
#[derive(Clone, Debug, Args)]
struct Places {
    /// The program `strowger` [default: STROWGER_BIN, else strowger beside this program]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The file that the tables go into; plots lie beside it [default: bench/ARCHITECTURES.md]
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
    /// The middle one; of an even number the lower of the two. Nothing where there was no run.
    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        let mut values: Vec<f64> = self.runs.iter().map(of).filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Measures and writes.
///
/// # Errors
/// Where there is no network of its own to be had, a program is missing or a file cannot be written.
pub(crate) fn run(arguments: &CompareArguments) -> Result<(), String> {
    let mut arguments = arguments.clone();
    if arguments.quick {
        (arguments.rounds, arguments.warm_up, arguments.seconds) = (1, 0.5, 1.0);
    }
    let arguments = &arguments;
    let around = circumstances();
    if let Some(outcome) = again_apart()? {
        return outcome;
    }
    let binary = arguments.places.binary()?;
    let mut rows = plan(arguments);
    for round in 1..=arguments.rounds {
        for row in &mut rows {
            // What is not at saturation on one core is beside the question, and has one turn.
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
    let (begin, end) = ("<!-- compare: begin -->", "<!-- compare: end -->");
    replace(&file, (begin, end), &text).map_err(wrong)?;
    fs::write(file.with_file_name("architectures.svg"), plot::draw(&rows)).map_err(wrong)
}

/// What is measured, in the order of one round.
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

/// One server, started anew, under one load.
fn turn(arguments: &CompareArguments, binary: &Path, row: &Row) -> Result<Figures, String> {
    let extent = Extent {
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
        // The kernel forgets what threads that have ended have switched; each has at least once, at its end.
        figures.switches += row.scenario.messages();
    }
    Ok(figures)
}

/// Runs this program once more, in a network namespace that ends with it; how that ended. Nothing where it has one already: there
/// nobody else's filters and connection tables are on the way.
fn again_apart() -> Result<Option<Result<(), String>>, String> {
    if std::env::var_os(APART).is_some() {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        return match up.map(|status| status.success()) {
            Ok(true) => Ok(None),
            _ => Err("the namespace has no loopback: ip, of iproute2, is needed".to_owned()),
        };
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program).args(std::env::args_os().skip(1)).env(APART, "1");
    let status = command.status().map_err(|error| format!("unshare, of util-linux: {error}; it needs root"))?;
    Ok(Some(if status.success() { Ok(()) } else { Err("the measurement failed".to_owned()) }))
}

/// Where and of what the figures are, as lines of Markdown.
fn circumstances() -> String {
    let say = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let said = said(std::env::args().skip(1));
    format!(
        "- Machine: {}, {cores} cores, {} GiB, a virtual machine shared with other work\n- Linux {}; {}\n\
         - strowger {} at commit {}, release build\n- Date: {}\n\
         - Command: `cargo build --release -p strowger && cargo run --release -p strowger-architectures -- {}`\n",
        model.map_or("a processor", |(_, name)| name),
        memory.unwrap_or(0_u64) >> 20,
        say("uname", &["-r"]),
        say("rustc", &["--version"]),
        env!("CARGO_PKG_VERSION"),
        say("git", &["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short", "HEAD"]),
        say("date", &["-u", "+%Y-%m-%d"]),
        said.join(" "),
    )
}

/// What was said on the command line that does not concern this machine alone.
fn said(mut arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--binary" | "--output" => drop(arguments.next()),
            _ => said.push(argument),
        }
    }
    said
}

/// Puts `text` between two marks of a file; where they are not there, at its end with them.
fn replace(file: &Path, (begin, end): (&str, &str), text: &str) -> io::Result<()> {
    let old = fs::read_to_string(file).unwrap_or_else(|_| "# Architectures\n".to_owned());
    let inside = format!("{begin}\n{}\n{end}", text.trim_end());
    let place = old.find(begin).zip(old.find(end).map(|at| at + end.len())).filter(|(from, to)| from < to);
    let new = match place {
        Some((from, to)) => format!("{}{inside}{}", &old[..from], &old[to..]),
        None => format!("{}\n\n{inside}\n", old.trim_end()),
    };
    fs::write(file, new)
}
