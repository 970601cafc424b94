//! Predictions of queueing models and measurements: the wait for one thread (M/G/1), and the drops of thread pools
//! and Kamailio's children (M/M/c/K). Writes tables into `bench/models`, which `strowger plan fit` and `strowger plan
//! validate` read, and the output of these into `bench/MODELS.md` and `docs/operating/capacity.md`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use strowger_bench::models::describe::{Description, Paths, describe};
use strowger_bench::models::load::{Load, Outcome, Pace, Spacing, prepare, run};
use strowger_bench::models::observation::{Observation, write};
use strowger_bench::models::receive_buffer::room;
use strowger_bench::models::runs::{self, Run};
use strowger_bench::models::server::{Kind, Programs, Server};
use strowger_bench::models::timing;
use strowger_bench::namespace::enter;
use strowger_bench::programs;
use strowger_bench::quiet::QuietWaiter;
use strowger_bench::register::process::{adopt, stay_on};
use strowger_bench::register::report::replace;
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
/// Runs at saturation, of which the best counts: a disturbance can only reduce the rate.
const SATURATIONS: usize = 3;
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
    /// Measures nothing; describes the results in bench/models
    #[arg(long)]
    describe: bool,
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
    /// Smoke test: a little of everything, written to standard output only
    #[arg(long)]
    quick: bool,
    /// The `strowger` binary [default: STROWGER_BIN, else strowger beside this program]
    #[arg(long)]
    binary: Option<PathBuf>,
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

fn main() {
    let arguments = Arguments::parse();
    let _ = enter(false);
    adopt().expect("processes can be adopted");
    let outcome = Bench::new(arguments).and_then(|mut bench| bench.run());
    if let Err(error) = outcome {
        eprintln!("models: {error}");
        std::process::exit(1);
    }
}

struct Bench {
    arguments: Arguments,
    programs: Programs,
    around: String,
    /// Folder for the tables of a run that is not saved.
    scratch: tempfile::TempDir,
    seed: u64,
    begun: Instant,
    calm: QuietWaiter,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Result<Self, String> {
        let strowger = programs::strowger(arguments.binary.as_ref());
        let architectures = programs::beside("strowger-architectures");
        for (program, package) in [(&strowger, "strowger"), (&architectures, "strowger-architectures")] {
            if !program.is_file() {
                return Err(format!("there is no {}: cargo build --release -p {package}", program.display()));
            }
        }
        let is_quick = arguments.quick;
        if is_quick {
            (arguments.seconds, arguments.wait_seconds, arguments.rounds) = (1, 2, 1);
            arguments.threads.truncate(1);
            arguments.unseen_threads.clear();
        }
        let command = command_line("strowger-bench --bin models");
        let command = command.replace("-p strowger &&", "-p strowger -p strowger-architectures &&");
        let scratch = tempfile::Builder::new().prefix("strowger-models-").tempdir();
        Ok(Self {
            arguments,
            programs: Programs { strowger, architectures },
            around: circumstances(&command),
            scratch: scratch.map_err(|error| error.to_string())?,
            seed: 1,
            begun: Instant::now(),
            calm: QuietWaiter::new(&[SERVER_CORE, GENERATOR_CORE], if is_quick { Duration::ZERO } else { PATIENCE }),
        })
    }

    fn run(&mut self) -> Result<(), String> {
        let all = [Part::Waits, Part::Pools, Part::Kamailio];
        let groups = if self.arguments.only.is_empty() { all.to_vec() } else { self.arguments.only.clone() };
        if !self.arguments.describe {
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
        if self.arguments.quick { self.scratch.path().to_owned() } else { self.report().with_file_name("models") }
    }

    fn show(&self) -> Result<(), String> {
        let pictures = (!self.arguments.quick).then(|| self.report().with_file_name("plots"));
        for name in ["pools", "kamailio"] {
            runs::settle(&self.tables(), name).map_err(|error| format!("{name}: {error}"))?;
        }
        let places = Paths { strowger: self.programs.strowger.clone(), tables: self.tables(), pictures };
        let Description { text, summary } = describe(&places)?;
        println!("{text}");
        if self.arguments.quick {
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
        eprintln!("[{:.1} min] {what}", self.begun.elapsed().as_secs_f64() / 60.0);
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
            if tries == TRIES || self.arguments.quick || self.calm.is_calm() {
                return Ok(found);
            }
            self.say("the machine is not calm any more: once more");
        }
    }

    /// Returns a new seed for each run.
    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    fn load(&mut self, pace: Pace, course: Spacing, seconds: u64) -> Load {
        let seed = self.next_seed();
        Load { pace, course, warm_up: Duration::from_secs(1), time: Duration::from_secs(seconds), seed }
    }

    /// Returns the calls per second that a server carries in a closed loop.
    fn saturation(&mut self, kind: Kind) -> Result<f64, String> {
        let mut best = 0.0_f64;
        for _ in 0..SATURATIONS {
            let load = self.load(Pace::Saturation, Spacing::AtOnce, 2);
            let server = Server::start(kind, &self.programs)?;
            best = best.max(run(&server, &load)?.carried_per_s);
        }
        self.say(&format!("{kind}: {best:.0} calls/s at saturation"));
        Ok(best)
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
        let shares = if self.arguments.quick { &shares[..shares.len().min(2)] } else { shares };
        let mut all = Vec::new();
        for share in shares {
            let rate = share * full;
            let (is_late, found) = self.calmly(|bench| {
                let load = bench.load(Pace::Rate(rate.round()), course, bench.arguments.wait_seconds);
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
        let threads = self.arguments.threads.clone();
        let others = if name == "pools" { self.arguments.unseen_threads.clone() } else { Vec::new() };
        let first = of(threads.first().copied().unwrap_or(1));
        let (mut all, mut room) = (Vec::new(), None);
        for count in threads.iter().chain(&others).copied() {
            let kind = of(count);
            let full = self.saturation(kind)?;
            let room = match room {
                Some(room) => room,
                None => *room.insert(self.room(first, 1.3 * full)?),
            };
            let for_fit = if threads.contains(&count) { &SEEN[..] } else { &[] };
            let seen = for_fit.iter().map(|share| (true, share * full));
            let loads: Vec<(bool, f64)> = seen.chain(UNSEEN.iter().map(|share| (false, share * full))).collect();
            // A message in service has left the socket.
            self.drops_by_turns(kind, room + u64::from(count), &loads, &mut all)?;
        }
        runs::keep(&self.tables(), name, &self.around, &all).map_err(|error| format!("{name}: {error}"))
    }

    /// Measures the loads (whether for the fit, and calls per second) in rotation, ascending and descending. The
    /// machine's speed varies over minutes, so the fit and the prediction must be measured in the same minutes.
    fn drops_by_turns(
        &mut self,
        kind: Kind,
        queue: u64,
        loads: &[(bool, f64)],
        all: &mut Vec<Run>,
    ) -> Result<(), String> {
        for round in 0..self.arguments.rounds {
            let mut turn = loads.to_vec();
            if round % 2 == 1 {
                turn.reverse();
            }
            for (seen, calls) in turn {
                let outcome = self.drops_at(kind, calls)?;
                if !outcome.is_late {
                    all.push(as_run(kind, queue, seen, calls, &outcome));
                }
            }
        }
        Ok(())
    }

    /// Returns the capacity of the socket in packets, measured at a call rate that overloads it.
    fn room(&mut self, kind: Kind, rate: f64) -> Result<u64, String> {
        let load = self.load(Pace::Rate(rate.round()), Spacing::AtOnce, 2);
        let server = Server::start(kind, &self.programs)?;
        let room = room(&server, &load)?;
        self.say(&format!("{kind}: room for {room} packets"));
        Ok(room)
    }

    fn drops_at(&mut self, kind: Kind, rate: f64) -> Result<Outcome, String> {
        let load = self.load(Pace::Rate(rate.round()), Spacing::AtOnce, self.arguments.seconds);
        let server = Server::start(kind, &self.programs)?;
        let outcome = run(&server, &load)?;
        self.say(&format!(
            "{kind}: {:.0} packets/s, {:.2} µs of CPU each, {:.3} of the core, {:.3} % dropped{}",
            outcome.packets_per_s,
            1e6 * outcome.each_s(),
            outcome.processors,
            100.0 * outcome.drops,
            if outcome.is_late { "; THE GENERATOR WAS LATE" } else { "" }
        ));
        Ok(outcome)
    }
}

fn as_run(kind: Kind, queue: u64, seen: bool, calls: f64, outcome: &Outcome) -> Run {
    Run {
        name: kind.to_string(),
        servers: kind.servers(),
        queue,
        seen,
        calls,
        rate: outcome.packets_per_s,
        each_us: 1e6 * outcome.each_s(),
        drops: outcome.drops,
        cpu: outcome.processors,
    }
}
