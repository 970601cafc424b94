//! Where a packet's time goes in Strowger, Kamailio and an echo program, as `strowger probe` finds it: the proof of its
//! figures, the thesis's tables, and what `strowger plan` makes of them. Writes `bench/TIMING.md`, tables into
//! `bench/timing` and plots into `bench/plots`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::Value;
use strowger_bench::models::describe::{PlanFiles, predict};
use strowger_bench::models::drops::DropMeasurement;
use strowger_bench::models::runs;
use strowger_bench::models::server::{Kind, Programs};
use strowger_bench::namespace::enter_network;
use strowger_bench::programs;
use strowger_bench::register::process::{adopt, stay_on};
use strowger_bench::register::report::replace;
use strowger_bench::runner::{Run, RunArguments, Runner, exit_code};
use strowger_bench::saved_results::Conditions;
use strowger_bench::server::{circumstances, command_line};
use strowger_bench::timing::echo::{self, EchoArguments, Stage};
use strowger_bench::timing::loaded::{self, LoadedRequest};
use strowger_bench::timing::packets::Sender;
use strowger_bench::timing::program::{ECHO, Program, start_echo};
use strowger_bench::timing::results::Results;
use strowger_bench::timing::{
    GENERATOR_CORE, SERVER_CORE, agreement, baseline, goals, injection, overhead, plot, processes, table,
};

/// Maximum total time of all waits for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// Loads at which the server's own stamps are compared with the probe.
const AGREEMENT_LOADS: [f64; 4] = [0.1, 0.3, 0.5, 0.8];
/// Load at which the processor time of a packet is measured, as a share of the rate in a closed loop.
const MODERATE: f64 = 0.35;
/// Packets under way in the closed loop of the echo program.
const AT_ONCE: usize = 32;

#[derive(Debug, Parser)]
#[command(about = "Where a packet's time goes, and proof of the probe; a report, not a test")]
struct Arguments {
    #[command(subcommand)]
    helper: Option<Helper>,
    /// Parts to measure; earlier results of the others are kept [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    parts: Vec<Part>,
    /// Programs to measure [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    programs: Vec<Program>,
    /// Seconds of each run under load
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Seconds of each run without load
    #[arg(long, default_value_t = 20)]
    baseline_seconds: u64,
    /// Packets with each injected delay
    #[arg(long, default_value_t = 500)]
    packets: u64,
    /// Pairs of runs with and without the probe
    #[arg(long, default_value_t = 3)]
    pairs: u64,
    /// Runs of each rate that measures drops
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Numbers of Kamailio's processes: c
    #[arg(long, value_delimiter = ',', default_values_t = processes::COUNTS)]
    processes: Vec<u32>,
    #[command(flatten)]
    run: RunArguments,
    /// The `strowger` binary, built with the feature ebpf [default: STROWGER_BIN, else strowger beside this program]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// File of the page; tables and plots go beside it [default: bench/TIMING.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Helper {
    /// The echo program
    #[command(hide = true)]
    Echo(EchoArguments),
}

/// A part that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Injected delays, the server's own stamps, and the cost of the probe
    Proof,
    /// Programs without load
    Baseline,
    /// Programs under load, and predictions of their waits
    Loaded,
    /// Numbers of Kamailio's processes, and predictions of their drops
    Processes,
}

impl Part {
    const ALL: [Self; 4] = [Self::Proof, Self::Baseline, Self::Loaded, Self::Processes];
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Helper::Echo(arguments)) = arguments.helper {
        echo::run(arguments).expect("the echo program has a socket");
        return ExitCode::SUCCESS;
    }
    if !arguments.run.mode.describe {
        enter_network();
        adopt().expect("processes can be adopted");
    }
    let outcome = Bench::new(arguments).and_then(|mut bench| {
        bench.run()?;
        bench.show()
    });
    exit_code("timing", outcome)
}

struct Bench {
    arguments: Arguments,
    strowger: PathBuf,
    programs: Vec<Program>,
    parts: Vec<Part>,
    around: String,
    drops: DropMeasurement,
    runner: Runner<Results>,
    /// Folder for the logs of packets, and for the tables of a run that is not saved.
    scratch: tempfile::TempDir,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Result<Self, String> {
        let strowger = programs::existing_strowger(arguments.binary.as_ref())?;
        let is_quick = arguments.run.mode.quick;
        if is_quick {
            (arguments.seconds, arguments.baseline_seconds, arguments.packets) = (2, 3, 100);
            (arguments.pairs, arguments.rounds) = (1, 1);
            arguments.processes.retain(|count| [1, 4].contains(count));
        }
        let run = Run {
            name: "timing",
            arguments: &arguments.run,
            only: &arguments.parts,
            all: &Part::ALL,
            conditions: Conditions::of(&strowger)?,
            cores: &[SERVER_CORE, GENERATOR_CORE],
            patience: if is_quick { Duration::ZERO } else { PATIENCE },
        };
        let (runner, parts) = Runner::start(run, forget)?;
        let command = command_line("strowger-bench --bin timing");
        let scratch = tempfile::Builder::new().prefix("strowger-timing-").tempdir();
        let drops = DropMeasurement {
            programs: Programs { strowger: strowger.clone(), architectures: PathBuf::new() },
            seconds: 2.min(arguments.seconds),
            rounds: arguments.rounds,
            seen: processes::SEEN.to_vec(),
            unseen: processes::UNSEEN.to_vec(),
            seed: 1,
            begun: Instant::now(),
        };
        Ok(Self {
            programs: present(&arguments.programs),
            // Must run before this process is pinned to one core: after that it sees only that core.
            around: circumstances(&command.replace("-p strowger &&", "-p strowger --features ebpf &&")),
            scratch: scratch.map_err(|error| error.to_string())?,
            arguments,
            strowger,
            parts,
            drops,
            runner,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        if self.arguments.run.mode.describe {
            return Ok(());
        }
        stay_on(GENERATOR_CORE).map_err(|error| format!("there is no second core: {error}"))?;
        for part in self.parts.clone() {
            let begun = Instant::now();
            match part {
                Part::Proof => self.proof(),
                Part::Baseline => self.baselines(),
                Part::Loaded => self.loads(),
                Part::Processes => self.processes()?,
            }
            self.runner.finish_part(part, begun);
        }
        self.runner.finish();
        Ok(())
    }

    fn proof(&mut self) {
        let strowger = self.strowger.clone();
        let delays = if self.arguments.run.mode.quick { &injection::DELAYS_US[1..2] } else { &injection::DELAYS_US };
        for stage in [Stage::Receive, Stage::Application, Stage::Send] {
            for delay_us in delays {
                let packets = self.arguments.packets;
                self.runner.measure(
                    &format!("{delay_us} µs {stage}"),
                    || injection::measure(&strowger, stage, *delay_us, packets),
                    |results, one| {
                        eprintln!(
                            "  {:.2} µs stamped, {:.2} probed, {:?} packets",
                            one.stamped_us, one.probed_us, one.packets
                        );
                        results.injections.push(one);
                    },
                );
            }
        }
        if self.programs.contains(&Program::Strowger) {
            self.agreements();
        }
        let (pairs, time) = (self.arguments.pairs, Duration::from_secs(self.arguments.seconds.min(3)));
        for program in self.programs.clone() {
            self.runner.measure(
                &format!("what the probe costs {program}"),
                || overhead::measure(&strowger, program, time, pairs),
                |results, one| {
                    eprintln!(
                        "  {:?} packets/s without, {:?} with; probe {:?} processors, saw {:?}",
                        one.without, one.with, one.own_cpu, one.seen
                    );
                    results.overheads.push(one);
                },
            );
        }
    }

    fn agreements(&mut self) {
        let Some(full) = self.full_rate(Program::Strowger) else { return };
        let loads = if self.arguments.run.mode.quick { &AGREEMENT_LOADS[1..2] } else { &AGREEMENT_LOADS };
        let (strowger, time) = (self.strowger.clone(), Duration::from_secs(self.arguments.seconds + 3));
        for (seed, load) in (1..).zip(loads) {
            self.runner.measure(
                &format!("the server's own stamps at {load} × {full:.0} calls/s"),
                || agreement::measure(&strowger, (*load, load * full), time, seed),
                |results, one| {
                    for compared in one.compared() {
                        eprintln!("  {compared:?}");
                    }
                    results.agreements.push(one);
                },
            );
        }
    }

    /// Returns the rate of which a program's loads are shares: that at which it would be fully busy if a packet took as
    /// long as at a moderate load. Measured if it is not known.
    fn full_rate(&mut self, program: Program) -> Option<f64> {
        if let Some(rate) = self.runner.results.full_rate(program) {
            return Some(rate);
        }
        let (strowger, time) = (self.strowger.clone(), Duration::from_secs(self.arguments.seconds));
        let drops = &mut self.drops;
        self.runner.measure(
            &format!("{program} at a moderate load"),
            || {
                let load = MODERATE;
                let rate = load * saturation(drops, program)?;
                let (strowger, is_seen, seed) = (strowger.as_path(), true, 1);
                let request = LoadedRequest { strowger, logs: None, program, load, rate, is_seen, time, seed };
                let busy = loaded::measure(request)?.report.cpu.filter(|busy| *busy > 0.0);
                busy.map(|busy| rate / busy).ok_or_else(|| "the probe does not know its processor time".to_owned())
            },
            |results, rate| {
                eprintln!("  fully busy at {rate:.0}/s");
                results.full_rates.push((program, rate));
            },
        );
        self.runner.results.full_rate(program)
    }

    fn baselines(&mut self) {
        let (strowger, time) = (self.strowger.clone(), Duration::from_secs(self.arguments.baseline_seconds));
        for program in self.programs.clone() {
            self.runner.measure(
                &format!("{program} without load"),
                || baseline::measure(&strowger, program, time),
                |results, one| {
                    eprintln!("  {} packets", one.report.all.packets);
                    results.baselines.push(one);
                },
            );
        }
    }

    /// Returns the loads for the fit and for the prediction.
    fn shares(&self) -> (&'static [f64], &'static [f64]) {
        if self.arguments.run.mode.quick {
            (&loaded::SEEN[1..4], &loaded::UNSEEN[1..3])
        } else {
            (&loaded::SEEN, &loaded::UNSEEN)
        }
    }

    fn loads(&mut self) {
        let (seen, unseen) = self.shares();
        for program in self.programs.clone() {
            let Some(full) = self.full_rate(program) else { continue };
            let mut shares: Vec<(f64, bool)> =
                seen.iter().map(|share| (*share, true)).chain(unseen.iter().map(|share| (*share, false))).collect();
            // The machine's speed varies over minutes, so the fit and the prediction must be measured in the same ones.
            shares.sort_by(|one, other| one.0.total_cmp(&other.0));
            for (seed, (load, is_seen)) in (100..).zip(shares) {
                self.loaded(program, (load, load * full), is_seen, seed);
            }
            let (strowger, logs) = (self.strowger.clone(), self.logs());
            let plot = self.pictures().map(|folder| folder.join(format!("timing-{}.svg", program.file_name())));
            self.runner.measure(
                &format!("predictions of {program}"),
                || loaded::validate(&strowger, &logs, program, (seen, unseen), plot.as_deref()),
                |results, one| results.predictions.push(one),
            );
        }
    }

    fn loaded(&mut self, program: Program, (load, rate): (f64, f64), is_seen: bool, seed: u64) {
        let (strowger, logs) = (self.strowger.clone(), self.logs());
        let time = Duration::from_secs(self.arguments.seconds);
        let request =
            LoadedRequest { strowger: &strowger, logs: Some(&logs), program, load, rate, is_seen, time, seed };
        self.runner.measure(
            &format!("{program} at {load} × {:.0}/s", rate / load),
            || loaded::measure(request),
            |results, one| {
                let late = if one.is_late { "; THE GENERATOR WAS LATE" } else { "" };
                eprintln!("  {:.0} packets/s, CPU {:.3?}{late}", one.report.packets_per_s, one.report.cpu);
                results.loaded.push(one);
            },
        );
    }

    fn processes(&mut self) -> Result<(), String> {
        if !self.programs.contains(&Program::Kamailio) {
            return Ok(());
        }
        let (strowger, time) = (self.strowger.clone(), Duration::from_secs(self.arguments.seconds));
        for count in self.arguments.processes.clone() {
            self.runner.measure(
                &format!("Kamailio of {count} at {:.0} calls/s", processes::PROBED_CALLS_PER_S),
                || processes::measure(&strowger, count, processes::PROBED_CALLS_PER_S, time),
                |results, one| results.processes.push(one),
            );
        }
        let counts: Vec<(u32, bool)> = self.arguments.processes.iter().map(|count| (*count, true)).collect();
        let all = self.drops.measure(Kind::ProbedKamailio, &counts)?;
        let folder = self.tables();
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        runs::keep(&folder, processes::TABLES, &self.around, &all).map_err(|error| error.to_string())
    }

    fn logs(&self) -> PathBuf {
        self.scratch.path().join("logs")
    }

    fn output(&self) -> PathBuf {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("TIMING.md");
        self.arguments.output.clone().unwrap_or_else(usual)
    }

    fn is_kept(&self) -> bool {
        !self.arguments.run.mode.quick || self.arguments.output.is_some()
    }

    fn tables(&self) -> PathBuf {
        if self.is_kept() { self.output().with_file_name("timing") } else { self.scratch.path().join("timing") }
    }

    fn pictures(&self) -> Option<PathBuf> {
        let folder = self.is_kept().then(|| self.output().with_file_name("plots"))?;
        std::fs::create_dir_all(&folder).is_ok().then_some(folder)
    }

    /// Fits and validates the drops, if they were measured.
    fn drops(&self) -> Result<Option<Value>, String> {
        let tables = self.tables();
        runs::settle(&tables, processes::TABLES).map_err(|error| error.to_string())?;
        let file = |use_: &str| tables.join(format!("{}-{use_}.csv", processes::TABLES));
        let (seen, unseen) = ([file("seen")], [file("unseen")]);
        if !seen.iter().chain(&unseen).all(|file| file.is_file()) {
            return Ok(None);
        }
        let plot = self.pictures().map(|folder| folder.join("timing-processes.svg"));
        let files = PlanFiles { name: processes::TABLES, seen: &seen, unseen: &unseen, plot: plot.as_deref() };
        predict(&self.strowger, files).map(Some)
    }

    /// Writes the page, the tables and the plots.
    fn show(&self) -> Result<(), String> {
        let results = &self.runner.results;
        let drops = self.drops()?;
        let goals = goals::goals(results, drops.as_ref());
        let mut text = goals::goals_table(&goals);
        self.describe(&mut text);
        text.push_str(&table::all(results, drops.as_ref()));
        println!("{text}");
        results.write_csv(&self.tables()).map_err(|error| error.to_string())?;
        let Some(pictures) = self.pictures() else { return Ok(()) };
        let mut summary = goals::summary(&goals);
        if plot::draw(results, &pictures).map_err(|error| error.to_string())? {
            summary.push_str("\n![Mean K_rcv by load](plots/timing-receive.svg)\n");
        }
        let output = self.output();
        let written = replace(&output, "timing-short", &summary);
        written
            .and_then(|()| replace(&output, "timing", &text))
            .map_err(|error| format!("{}: {error}", output.display()))
    }

    fn describe(&self, text: &mut String) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}- {}\n\n", self.around, programs::kamailio_version());
    }
}

/// Returns the rate that a program carries in a closed loop.
fn saturation(drops: &mut DropMeasurement, program: Program) -> Result<f64, String> {
    if let Some(kind) = program.kind() {
        return drops.saturation(kind);
    }
    let _echo = start_echo(loaded::ECHO_WORK_US)?;
    let rate = Sender::open(ECHO, ECHO).and_then(|mut sender| sender.closed_loop(AT_ONCE, Duration::from_secs(2)));
    rate.map_err(|error| error.to_string())
}

/// Returns the requested programs that are available.
fn present(asked: &[Program]) -> Vec<Program> {
    let mut all = if asked.is_empty() { Program::ALL.to_vec() } else { asked.to_vec() };
    if all.contains(&Program::Kamailio) && !programs::has_kamailio() {
        eprintln!("SKIPPED: Kamailio, which is not installed (sudo apt-get install kamailio)");
        all.retain(|program| *program != Program::Kamailio);
    }
    all
}

/// Removes results that will be measured again.
fn forget(results: &mut Results, part: Part) {
    match part {
        Part::Proof => {
            results.injections.clear();
            results.agreements.clear();
            results.overheads.clear();
        }
        Part::Baseline => results.baselines.clear(),
        Part::Loaded => {
            results.full_rates.clear();
            results.loaded.clear();
            results.predictions.clear();
        }
        Part::Processes => results.processes.clear(),
    }
}
