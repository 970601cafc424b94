//! Predictions of queueing models and measurements: the wait for one thread (M/G/1), and the drops of thread pools
//! and Kamailio's children (M/M/c/K). Writes tables into `bench/models`, which `strowger plan fit` and `strowger plan
//! validate` read, and the output of these into `bench/MODELS.md` and `docs/operating/capacity.md`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use strowger_bench::models::describe::{Description, Paths, describe};
use strowger_bench::models::drops::DropMeasurement;
use strowger_bench::models::load::{Pace, Spacing, prepare};
use strowger_bench::models::observation::{Observation, write};
use strowger_bench::models::runs;
use strowger_bench::models::server::{Kind, Programs, Server};
use strowger_bench::models::timing;
use strowger_bench::namespace::enter;
use strowger_bench::programs::{self, BinaryArgument};
use strowger_bench::quiet::QuietWaiter;
use strowger_bench::register::process::{adopt, stay_on};
use strowger_bench::register::report::replace;
use strowger_bench::runner::{ModeArguments, exit_code};
use strowger_bench::server::{circumstances, command_line};

/// Cores of the servers and of the generator.
const SERVER_CORE: usize = 0;
const GENERATOR_CORE: usize = 1;
/// Maximum total time of all waits for a quiet machine, and maximum repetitions of a disturbed run.
const PATIENCE: Duration = Duration::from_secs(900);
const TRIES: u32 = 6;
/// Shares of the saturation rate that a fit uses: almost nothing is dropped there.
const SEEN: [f64; 3] = [0.5, 0.7, 0.9];
/// Shares of the saturation rate for the prediction: from no drops to drops that callers notice.
const UNSEEN: [f64; 6] = [0.86, 0.92, 0.98, 1.04, 1.1, 1.16];
/// Calls per second of the run that estimates the rate at which one thread is fully busy.
const TRIED: f64 = 4_000.0;
/// Loads at which the wait for one thread is measured: for the fit, for the prediction, and without pauses within a
/// call.
const WAITS_SEEN: [f64; 4] = [0.2, 0.4, 0.62, 0.85];
const WAITS_UNSEEN: [f64; 5] = [0.33, 0.45, 0.56, 0.68, 0.77];
const WAITS_AT_ONCE: [f64; 3] = [0.33, 0.56, 0.77];

#[derive(Debug, Parser)]
#[command(about = "Queueing models beside what happens; a report, not a test")]
struct Arguments {
    /// Parts to measure; results of the others in bench/models are kept [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Numbers of threads and children: c
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    threads: Vec<u32>,
    /// Numbers of pool threads to predict that no fit uses
    #[arg(long, value_delimiter = ',', default_values_t = [3])]
    unseen_threads: Vec<u32>,
    /// Seconds of each run that measures drops
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Runs of each rate that measures drops
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of each run that measures waits
    #[arg(long, default_value_t = 7)]
    wait_seconds: u64,
    #[command(flatten)]
    mode: ModeArguments,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File of the report; tables and plots go beside it [default: bench/MODELS.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A part that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The wait for one thread
    Waits,
    /// Drops of thread pools
    Pools,
    /// Drops of Kamailio
    Kamailio,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let _ = enter(false);
    adopt().expect("processes can be adopted");
    let outcome = Bench::new(arguments).and_then(|mut bench| bench.run());
    exit_code("models", outcome)
}

struct Bench {
    arguments: Arguments,
    programs: Programs,
    around: String,
    /// Folder for the tables of a run that is not saved.
    scratch: tempfile::TempDir,
    drops: DropMeasurement,
    calm: QuietWaiter,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Result<Self, String> {
        let strowger = arguments.binary.path();
        let architectures = programs::beside("strowger-architectures");
        for (program, package) in [(&strowger, "strowger"), (&architectures, "strowger-architectures")] {
            if !program.is_file() {
                return Err(format!("there is no {}: cargo build --release -p {package}", program.display()));
            }
        }
        let is_quick = arguments.mode.quick;
        if is_quick {
            (arguments.seconds, arguments.wait_seconds, arguments.rounds) = (1, 2, 1);
            arguments.threads.truncate(1);
            arguments.unseen_threads.clear();
        }
        let command = command_line("strowger-bench --bin models");
        let command = command.replace("-p strowger &&", "-p strowger -p strowger-architectures &&");
        let scratch = tempfile::Builder::new().prefix("strowger-models-").tempdir();
        let programs = Programs { strowger, architectures };
        let drops = DropMeasurement {
            programs: programs.clone(),
            seconds: arguments.seconds,
            rounds: arguments.rounds,
            seen: SEEN.to_vec(),
            unseen: UNSEEN.to_vec(),
            seed: 1,
            begun: Instant::now(),
        };
        Ok(Self {
            arguments,
            programs,
            around: circumstances(&command),
            scratch: scratch.map_err(|error| error.to_string())?,
            drops,
            calm: QuietWaiter::new(&[SERVER_CORE, GENERATOR_CORE], if is_quick { Duration::ZERO } else { PATIENCE }),
        })
    }

    fn run(&mut self) -> Result<(), String> {
        let all = [Part::Waits, Part::Pools, Part::Kamailio];
        let groups = if self.arguments.only.is_empty() { all.to_vec() } else { self.arguments.only.clone() };
        if !self.arguments.mode.describe {
            stay_on(GENERATOR_CORE).map_err(|error| format!("there is no second core: {error}"))?;
            std::fs::create_dir_all(self.tables()).map_err(|error| error.to_string())?;
            for group in groups {
                match group {
                    Part::Waits => self.waits()?,
                    Part::Pools => self.drops(Kind::Pool, "pools")?,
                    Part::Kamailio => self.kamailio()?,
                }
            }
        }
        self.say(&self.calm.told());
        self.show()
    }

    fn report(&self) -> PathBuf {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("MODELS.md");
        self.arguments.output.clone().unwrap_or_else(usual)
    }

    fn tables(&self) -> PathBuf {
        if self.arguments.mode.quick { self.scratch.path().to_owned() } else { self.report().with_file_name("models") }
    }

    fn show(&self) -> Result<(), String> {
        let pictures = (!self.arguments.mode.quick).then(|| self.report().with_file_name("plots"));
        for name in ["pools", "kamailio"] {
            runs::settle(&self.tables(), name).map_err(|error| format!("{name}: {error}"))?;
        }
        let places = Paths { strowger: self.programs.strowger.clone(), tables: self.tables(), pictures };
        let Description { text, summary } = describe(&places)?;
        println!("{text}");
        if self.arguments.mode.quick {
            return Ok(());
        }
        let wrong = |error: std::io::Error| error.to_string();
        replace(&self.report(), "models", &text).map_err(wrong)?;
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs/operating/capacity.md");
        if self.arguments.output.is_none() && document.is_file() {
            replace(&document, "models", &summary).map_err(wrong)?;
        }
        Ok(())
    }

    fn say(&self, what: &str) {
        self.drops.say(what);
    }

    fn keep(&self, name: &str, measured: &[Observation]) -> Result<(), String> {
        let file = self.tables().join(format!("{name}.csv"));
        write(&file, &self.around, measured).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Measures while the machine is quiet, as far as possible.
    fn calmly<T>(&mut self, mut measure: impl FnMut(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let mut tries = 0;
        loop {
            self.calm.wait();
            let found = measure(self)?;
            tries += 1;
            if tries == TRIES || self.arguments.mode.quick || self.calm.is_calm() {
                return Ok(found);
            }
            self.say("the machine is not calm any more: once more");
        }
    }

    fn waits(&mut self) -> Result<(), String> {
        for (is_awake, name) in [(true, "waits"), (false, "waits-asleep")] {
            let kind = Kind::Timed(is_awake);
            let full = self.busy_at(kind)?;
            let seen = self.waits_at(kind, full, Spacing::Spread, &WAITS_SEEN)?;
            self.keep(&format!("{name}-seen"), &seen)?;
            let unseen = self.waits_at(kind, full, Spacing::Spread, &WAITS_UNSEEN)?;
            self.keep(&format!("{name}-unseen"), &unseen)?;
            if is_awake {
                let at_once = self.waits_at(kind, full, Spacing::AtOnce, &WAITS_AT_ONCE)?;
                self.keep("waits-at-once", &at_once)?;
            }
        }
        Ok(())
    }

    /// Returns the calls per second that would keep one thread fully busy.
    fn busy_at(&mut self, kind: Kind) -> Result<f64, String> {
        let tried = self.waits_at(kind, TRIED, Spacing::Spread, &[1.0])?;
        let busy = tried.first().map_or(f64::NAN, |one| one.busy);
        if busy > 0.0 { Ok(TRIED / busy) } else { Err(format!("{kind} was never busy")) }
    }

    fn waits_at(&mut self, kind: Kind, full: f64, course: Spacing, shares: &[f64]) -> Result<Vec<Observation>, String> {
        let shares = if self.arguments.mode.quick { &shares[..shares.len().min(2)] } else { shares };
        let mut all = Vec::new();
        for share in shares {
            let rate = share * full;
            let (is_late, found) = self.calmly(|bench| {
                let load = bench.drops.load(Pace::Rate(rate.round()), course, bench.arguments.wait_seconds);
                let server = Server::start(kind, &bench.programs)?;
                let report = prepare(&load)?.go().map_err(|error| error.to_string())?;
                let is_late = report.phases.iter().any(|phase| phase.is_measured && phase.bottleneck().is_some());
                Ok((is_late, timing::read(&server.said())?))
            })?;
            self.say(&format!(
                "{kind}, {course:?}, {:.0} packets/s, busy {:.3}: waits {:.2} µs, {} windows{}",
                found.packets_per_s,
                found.busy,
                found.wait_us,
                found.windows,
                if is_late { "; THE GENERATOR WAS LATE" } else { "" }
            ));
            all.push(Observation {
                name: kind.to_string(),
                servers: 1,
                calls_per_s: rate,
                packets_per_s: found.packets_per_s,
                types: found.types,
                wait_us: Some(found.wait_us),
                busy: found.busy,
                ..Observation::default()
            });
        }
        Ok(all)
    }

    fn kamailio(&mut self) -> Result<(), String> {
        if programs::has_kamailio() {
            return self.drops(Kind::Kamailio, "kamailio");
        }
        eprintln!("SKIPPED: Kamailio, which is not installed (sudo apt-get install kamailio)");
        Ok(())
    }

    fn drops(&mut self, of: fn(u32) -> Kind, name: &str) -> Result<(), String> {
        let for_fit = self.arguments.threads.iter().map(|count| (*count, true));
        let others = if name == "pools" { self.arguments.unseen_threads.clone() } else { Vec::new() };
        let counts: Vec<(u32, bool)> = for_fit.chain(others.into_iter().map(|count| (count, false))).collect();
        let all = self.drops.measure(of, &counts)?;
        runs::keep(&self.tables(), name, &self.around, &all).map_err(|error| format!("{name}: {error}"))
    }
}
