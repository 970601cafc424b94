//! What tuning the scheduler and the sockets changes: Kamailio with 1 to 16 processes and Strowger, on one core and on
//! two, as in chapters 6 and 7 of Krishnamurthy's thesis. Writes `bench/TUNING.md`, and the gains that `strowger tune`
//! quotes into `bench/tuning`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use strowger_bench::namespace::enter_network;
use strowger_bench::programs::{self, BinaryArgument};
use strowger_bench::quiet::QuietWaiter;
use strowger_bench::register::process::{adopt, stay_on};
use strowger_bench::register::report::replace;
use strowger_bench::runner::{ModeArguments, exit_code};
use strowger_bench::server::{circumstances, command_line};
use strowger_bench::tuning::plot;
use strowger_bench::tuning::results::Results;
use strowger_bench::tuning::server::{Contender, Tuning};
use strowger_bench::tuning::summary::summary;
use strowger_bench::tuning::sweep::Effort;
use strowger_bench::tuning::table::{gains, text};

/// Cores of the servers and of the generator.
const SERVER_CORE: usize = 0;
const GENERATOR_CORE: usize = 1;
/// Maximum total time of all waits for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Shares of the saturation rate: from no drops to overload.
const SHARES: [f64; 6] = [0.8, 0.9, 0.97, 1.04, 1.12, 1.25];
/// Those for the tunings one by one.
const SINGLE_SHARES: [f64; 4] = [0.9, 1.0, 1.1, 1.25];
const PROCESSES: [u32; 5] = [1, 2, 4, 8, 16];

#[derive(Debug, Parser)]
#[command(about = "Tuning of the host, measured; a report, not a test")]
struct Arguments {
    /// Parts to measure; results of the others are kept [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Sweeps of each server and tuning
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Counted milliseconds of each run
    #[arg(long, default_value_t = 1_500)]
    millis: u64,
    #[command(flatten)]
    mode: ModeArguments,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File of the report; results go into the folder tuning beside it [default: bench/TUNING.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A part that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Baseline against tuned, on one core
    One,
    /// Baseline against tuned, on two cores
    Two,
    /// Each tuning alone
    Single,
    /// Beside another program
    Shared,
}

const ALL_PARTS: [Part; 4] = [Part::One, Part::Two, Part::Single, Part::Shared];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A probe in the kernel knows processes by their IDs on the machine.
    enter_network();
    adopt().expect("processes can be adopted");
    let outcome = Bench::new(arguments).and_then(|mut bench| bench.run());
    exit_code("tuning", outcome)
}

struct Bench {
    arguments: Arguments,
    effort: Effort,
    around: String,
    results: Results,
    begun: Instant,
    calm: QuietWaiter,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Result<Self, String> {
        let strowger = arguments.binary.existing_path()?;
        if !programs::has_kamailio() {
            return Err("Kamailio is not installed: sudo apt-get install kamailio".to_owned());
        }
        if arguments.mode.quick {
            // Shorter runs have too few samples of the server.
            (arguments.rounds, arguments.millis) = (1, 1_000);
        }
        // Without the feature, the column of K_rcv is empty for Kamailio.
        let command =
            command_line("strowger-bench --bin tuning").replace("-p strowger &&", "-p strowger --features ebpf &&");
        let patience = if arguments.mode.quick { Duration::ZERO } else { PATIENCE };
        let effort = Effort {
            strowger,
            warm_up: Duration::from_millis(500),
            time: Duration::from_millis(arguments.millis),
            rounds: arguments.rounds,
            seed: 1,
        };
        let mut bench = Self {
            around: circumstances(&command),
            results: Results::default(),
            begun: Instant::now(),
            calm: QuietWaiter::new(&[SERVER_CORE, GENERATOR_CORE], patience),
            arguments,
            effort,
        };
        if !bench.arguments.mode.quick {
            bench.results = bench.saved()?;
        }
        Ok(bench)
    }

    fn run(&mut self) -> Result<(), String> {
        if !self.arguments.mode.describe {
            stay_on(GENERATOR_CORE).map_err(|error| format!("there is no second core: {error}"))?;
            let parts = if self.arguments.only.is_empty() { ALL_PARTS.to_vec() } else { self.arguments.only.clone() };
            for part in parts {
                self.measure(part)?;
                self.results.around = self.around.clone();
                self.results.date = today();
                if !self.arguments.mode.quick {
                    self.save()?;
                }
            }
            self.say(&self.calm.told());
        }
        let text = text(&self.results);
        println!("{}\n{text}", summary(&self.results));
        if self.arguments.mode.quick {
            return Ok(());
        }
        let plots = self.report().with_file_name("plots");
        fs::create_dir_all(&plots).map_err(|error| error.to_string())?;
        if !self.results.tuned.is_empty() {
            plot::draw(&plots.join(plot::FILE), &self.results).map_err(|error| error.to_string())?;
        }
        replace(&self.report(), "tuning-short", &summary(&self.results)).map_err(|error| error.to_string())?;
        replace(&self.report(), "tuning", &text).map_err(|error| error.to_string())?;
        self.write("gains.json", &(pretty(&gains(&self.results))? + "\n"))
    }

    fn measure(&mut self, part: Part) -> Result<(), String> {
        match part {
            Part::One => self.tuned(1, &PROCESSES),
            Part::Two => self.tuned(2, &PROCESSES[1..]),
            Part::Single => self.single(),
            Part::Shared => self.shared(),
        }
    }

    /// Measures baseline and tuned.
    fn tuned(&mut self, cores: u32, processes: &[u32]) -> Result<(), String> {
        let processes = if self.arguments.mode.quick { &processes[processes.len() - 1..] } else { processes };
        self.results.tuned.retain(|sweep| sweep.contender.cores != cores);
        let kamailio = processes.iter().map(|processes| Contender { is_ours: false, processes: *processes, cores });
        let ours = Contender { is_ours: true, processes: cores, cores };
        for contender in kamailio.chain([ours]) {
            let full = self.saturation(contender)?;
            let shares = if self.arguments.mode.quick { &SHARES[4..] } else { &SHARES };
            let rates: Vec<f64> = shares.iter().map(|share| share * full).collect();
            let mut sweeps = self.effort.sweeps(contender, &[Tuning::None, Tuning::All], &rates)?;
            for sweep in &mut sweeps {
                sweep.kernel_time_us = self.effort.kernel_time(contender, sweep.tuning, full)?;
            }
            self.results.tuned.extend(sweeps);
        }
        self.results.tuned.sort_by_key(|sweep| (sweep.contender.cores, sweep.contender.is_ours));
        Ok(())
    }

    /// Measures each tuning alone, for the servers that show most: one process, many on a core, many on two.
    fn single(&mut self) -> Result<(), String> {
        let mut contenders = vec![
            Contender { is_ours: false, processes: 1, cores: 1 },
            Contender { is_ours: false, processes: 8, cores: 1 },
            Contender { is_ours: false, processes: 8, cores: 2 },
            Contender { is_ours: true, processes: 1, cores: 1 },
        ];
        if self.arguments.mode.quick {
            contenders = contenders.split_off(3);
        }
        self.results.single.clear();
        for contender in contenders {
            let full = self.saturation(contender)?;
            let shares = if self.arguments.mode.quick { &SINGLE_SHARES[3..] } else { &SINGLE_SHARES };
            let rates: Vec<f64> = shares.iter().map(|share| share * full).collect();
            let sweeps = self.effort.sweeps(contender, &tunings(contender), &rates)?;
            self.results.single.extend(sweeps);
        }
        Ok(())
    }

    fn shared(&mut self) -> Result<(), String> {
        let contenders = [(false, 1), (false, 4), (true, 1)];
        let contenders = contenders.map(|(is_ours, processes)| Contender { is_ours, processes, cores: 1 });
        self.results.shared.clear();
        for contender in contenders.into_iter().skip(if self.arguments.mode.quick { 1 } else { 0 }) {
            let full = self.saturation(contender)?;
            for tuning in tunings(contender).into_iter().chain([Tuning::All]) {
                let shared = self.effort.shared(contender, tuning, full)?;
                self.results.shared.push(shared);
            }
        }
        Ok(())
    }

    fn saturation(&mut self, contender: Contender) -> Result<f64, String> {
        self.calm.wait();
        let full = self.effort.saturation(contender)?;
        self.say(&format!("{contender} on {} of the cores: {full:.0} calls/s at saturation", contender.cores));
        Ok(full)
    }

    fn say(&self, what: &str) {
        eprintln!("[{:.1} min] {what}", self.begun.elapsed().as_secs_f64() / 60.0);
    }

    fn report(&self) -> PathBuf {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("TUNING.md");
        self.arguments.output.clone().unwrap_or_else(usual)
    }

    fn saved(&self) -> Result<Results, String> {
        let file = self.report().with_file_name("tuning").join("results.json");
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Results::default()),
            Err(error) => Err(format!("{}: {error}", file.display())),
        }
    }

    fn save(&self) -> Result<(), String> {
        self.write("results.json", &(pretty(&self.results)? + "\n"))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let folder = self.report().with_file_name("tuning");
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))
    }
}

fn tunings(contender: Contender) -> Vec<Tuning> {
    let concerning = Tuning::SINGLE.into_iter().filter(|tuning| tuning.concerns(contender));
    [Tuning::None].into_iter().chain(concerning).collect()
}

fn pretty(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(value).map_err(|error| error.to_string())
}

fn today() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
