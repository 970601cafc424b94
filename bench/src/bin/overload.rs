//! A server limited to a share of a core under up to ten times its capacity, under a step of load and under floods,
//! beside Kamailio. Writes `bench/OVERLOAD.md`, tables into `bench/overload` and plots into `bench/plots`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use strowger_bench::namespace::enter;
use strowger_bench::overload::avalanche;
use strowger_bench::overload::capacity::{SearchSettings, search};
use strowger_bench::overload::contender::{
    Contender, Environment, LIMIT_PERCENT, Mode, Server, configuration, has_control,
};
use strowger_bench::overload::cost;
use strowger_bench::overload::flood::Kind;
use strowger_bench::overload::load::{CONNECTIONS, LoadRequest, Outcome, Pace, run};
use strowger_bench::overload::results::{Capacity, LoadResult, Results};
use strowger_bench::overload::{GENERATOR_CORE, flood_impact, plot, step, table};
use strowger_bench::programs::{self, BinaryArgument};
use strowger_bench::quota::{Quota, remove_leftovers};
use strowger_bench::register::process::{adopt, go_first, stay_on};
use strowger_bench::register::report::replace;
use strowger_bench::runner::{Run, RunArguments, Runner, exit_code};
use strowger_bench::saved_results::Conditions;
use strowger_bench::server::{circumstances, command_line};

/// Maximum total time of all waits for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(900);
/// Maximum time for calls to end after a load stops.
const DRAIN: Duration = Duration::from_secs(4);
/// Lowest load with a required goodput. Loads from here on are measured for as long as the requirement says, others
/// for half of it.
const REQUIRED: f64 = 2.0;
/// Pairs of runs that measure the cost of overload control.
const COST_PAIRS: u64 = 7;

#[derive(Debug, Parser)]
#[command(about = "Overload, steps and floods, beside Kamailio; a report, not a test")]
struct Arguments {
    /// Parts to measure; earlier results of the others are kept [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Part>,
    /// Contenders to measure [default: all available]
    #[arg(long, value_delimiter = ',', value_enum)]
    contenders: Vec<Contender>,
    /// Loads over UDP, as multiples of the capacity
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 1.0, 2.0, 5.0, 10.0])]
    loads: Vec<f64>,
    /// Loads over TCP, as multiples of the capacity
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 2.0, 5.0, 10.0])]
    stream_loads: Vec<f64>,
    /// Floods [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    floods: Vec<Kind>,
    /// Seconds at the start of each load that are not counted
    #[arg(long, default_value_t = 35)]
    warm_up: u64,
    /// Seconds of each load from 2× on; half as many below
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Searches for the capacity over UDP; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Processor time per period, in microseconds
    #[arg(long, default_value_t = 1_000)]
    quota_us: u32,
    /// Length of a period, in microseconds
    #[arg(long, default_value_t = 25_000)]
    period_us: u32,
    /// Capacity (1×) in calls per second, for all contenders, instead of searching for it; for trying a single part
    #[arg(long)]
    capacity: Option<f64>,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File of the page; tables and plots go beside it [default: bench/OVERLOAD.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A part that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Highest rate that each contender carries
    Capacity,
    /// Goodput by load over UDP
    Udp,
    /// Goodput by load over TCP
    Tcp,
    /// Load that rises to ten times the capacity and falls back
    Step,
    /// Effect of floods on well-behaved callers
    Flood,
    /// Traffic reflected to a spoofed address
    Reflection,
    /// A million phones that register at once
    Avalanche,
    /// Cost of overload control without overload
    Cost,
}

impl Part {
    const ALL: [Self; 8] =
        [Self::Capacity, Self::Udp, Self::Tcp, Self::Step, Self::Flood, Self::Reflection, Self::Avalanche, Self::Cost];
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.run.mode.describe {
        let _ = enter(false);
        adopt().expect("processes can be adopted");
        remove_leftovers();
    }
    let outcome = Bench::new(arguments).and_then(|mut bench| {
        bench.run()?;
        bench.show()
    });
    exit_code("overload", outcome)
}

struct Bench {
    arguments: Arguments,
    place: Environment,
    contenders: Vec<Contender>,
    parts: Vec<Part>,
    around: String,
    runner: Runner<Results>,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Result<Self, String> {
        let binary = arguments.binary.existing_path()?;
        if arguments.run.mode.quick {
            (arguments.warm_up, arguments.seconds, arguments.rounds) = (2, 3, 1);
            arguments.loads.retain(|times| [1.0, 10.0].contains(times));
            arguments.stream_loads.retain(|times| *times == 10.0);
        }
        let quota = Quota { quota_us: arguments.quota_us, period_us: arguments.period_us };
        let place = Environment { has_control: has_control(&binary)?, binary, quota };
        let percent = format!("{} of {} µs", quota.quota_us, quota.period_us);
        let conditions = Conditions::of(&place.binary)?.with("the quota", percent);
        let run = Run {
            name: "overload",
            arguments: &arguments.run,
            only: &arguments.only,
            all: &Part::ALL,
            conditions,
            cores: &[0, GENERATOR_CORE],
            patience: if arguments.run.mode.quick { Duration::ZERO } else { PATIENCE },
        };
        let (mut runner, parts) = Runner::start(run, forget)?;
        runner.results.quota = Some(quota);
        let contenders = present(&arguments, &place);
        Ok(Self {
            arguments,
            place,
            contenders,
            parts,
            // Must run before this process is pinned to one core: after that it sees only that core.
            around: circumstances(&command_line("strowger-bench --bin overload")),
            runner,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        if self.arguments.run.mode.describe {
            return Ok(());
        }
        stay_on(GENERATOR_CORE).map_err(|error| format!("there is no second core: {error}"))?;
        go_first();
        for part in self.parts.clone() {
            let begun = Instant::now();
            match part {
                Part::Capacity => self.capacities(),
                Part::Udp => self.loads(Mode::Udp),
                Part::Tcp => self.loads(Mode::Tcp),
                Part::Step => self.steps(),
                Part::Flood => self.floods(),
                Part::Reflection => self.reflections(),
                Part::Avalanche => self.avalanches(),
                Part::Cost => self.costs(),
            }
            self.runner.finish_part(part, begun);
        }
        self.runner.finish();
        Ok(())
    }

    /// Returns the capacity (1×) of a contender, measured or from the command line.
    fn capacity(&self, contender: Contender, mode: Mode) -> Option<f64> {
        let found = self.arguments.capacity.or_else(|| self.runner.results.capacity(contender, mode));
        // A smoke test searches over UDP only.
        let found = found
            .or_else(|| self.runner.results.capacity(contender, Mode::Udp).filter(|_| self.arguments.run.mode.quick));
        if found.is_none() {
            eprintln!(
                "SKIPPED: {contender} over {}: its capacity is unknown; measure it with --only capacity",
                mode.name()
            );
        }
        found
    }

    /// Returns the limit for Kamailio's ratelimit, for the contender that uses it.
    fn limit(contender: Contender, mode: Mode, capacity: f64) -> Option<f64> {
        let invites = if mode == Mode::Passwords { 2.0 } else { 1.0 };
        (contender == Contender::Limits).then_some(invites * capacity * LIMIT_PERCENT / 100.0)
    }

    fn capacities(&mut self) {
        if self.arguments.capacity.is_some() {
            return;
        }
        let effort = if self.arguments.run.mode.quick { SearchSettings::QUICK } else { SearchSettings::USUAL };
        let wants = |part| self.parts.contains(&part);
        let mut modes = Vec::new();
        if self.arguments.run.mode.quick || wants(Part::Udp) || wants(Part::Step) || self.parts == [Part::Capacity] {
            modes.push((Mode::Udp, self.arguments.rounds));
        }
        let has_time = !self.arguments.run.mode.quick;
        if has_time && (wants(Part::Tcp) || self.parts == [Part::Capacity]) {
            modes.push((Mode::Tcp, 1));
        }
        if has_time && (wants(Part::Flood) || self.parts == [Part::Capacity]) {
            modes.push((Mode::Passwords, 1));
        }
        for (mode, rounds) in modes {
            for round in 1..=rounds {
                for contender in self.contenders.clone().into_iter().filter(|one| one.is_searched()) {
                    let is_known = |one: &Capacity| (one.contender, one.mode, one.round) == (contender, mode, round);
                    if self.runner.results.capacities.iter().any(is_known) {
                        continue;
                    }
                    let what = format!("capacity, {}: {contender}, round {round}", mode.name());
                    let seed = 1_000 * round as u64;
                    self.runner.measure(
                        &what,
                        || search(contender, mode, &self.place, effort, seed),
                        |results, found| {
                            eprintln!(
                                "  {:.0} calls/s, p99 {:.1} ms, closed {:.0}",
                                found.rate, found.p99_ms, found.closed
                            );
                            let (rate, closed, p99_ms) = (found.rate, found.closed, found.p99_ms);
                            results.capacities.push(Capacity { contender, mode, round, rate, closed, p99_ms });
                        },
                    );
                }
            }
        }
    }

    fn loads(&mut self, mode: Mode) {
        let all = if mode == Mode::Tcp { &self.arguments.stream_loads } else { &self.arguments.loads };
        for times in all.clone() {
            for contender in self.contenders.clone() {
                if self.runner.results.load(contender, mode, times).is_some() {
                    continue;
                }
                let Some(capacity) = self.capacity(contender, mode) else { continue };
                let seconds = if times >= REQUIRED { self.arguments.seconds } else { self.arguments.seconds / 2 };
                let seconds = seconds.max(1);
                let ask = LoadRequest {
                    warm_up: Duration::from_secs(self.arguments.warm_up),
                    time: Duration::from_secs(seconds),
                    drain: if self.arguments.run.mode.quick { DRAIN / 4 } else { DRAIN },
                    ..LoadRequest::new(mode, Pace::Rate(times * capacity), (10.0 * times) as u64)
                };
                self.runner.measure(
                    &format!("{}, {times}×: {contender}", mode.name()),
                    || {
                        let limit = Self::limit(contender, mode, capacity);
                        run(&mut Server::start(contender, mode, &self.place, limit)?, &ask)
                    },
                    |results, outcome| {
                        let one = LoadResult { contender, mode, times, capacity, seconds, outcome };
                        eprintln!("  {}", brief(&one));
                        results.loads.push(one);
                    },
                );
            }
        }
    }

    fn steps(&mut self) {
        let course = if self.arguments.run.mode.quick { step::Schedule::QUICK } else { step::Schedule::USUAL };
        for contender in self.contenders.clone() {
            if self.runner.results.steps.iter().any(|one| one.contender == contender) {
                continue;
            }
            let Some(capacity) = self.capacity(contender, Mode::Udp) else { continue };
            let limit = Self::limit(contender, Mode::Udp, capacity);
            self.runner.measure(
                &format!("step: {contender}"),
                || step::run(contender, &self.place, limit, (capacity, 10.0), course),
                |results, one| {
                    let (during, recovery) = (one.during(), one.recovery_s());
                    eprintln!("  {during:.0} calls/s during it, full service {recovery:.1?} s behind it");
                    results.steps.push(one);
                },
            );
        }
    }

    fn floods(&mut self) {
        let course =
            if self.arguments.run.mode.quick { flood_impact::Schedule::QUICK } else { flood_impact::Schedule::USUAL };
        let usual =
            if self.arguments.run.mode.quick { vec![Kind::Invites, Kind::Passwords] } else { Kind::ALL.to_vec() };
        let floods = if self.arguments.floods.is_empty() { usual } else { self.arguments.floods.clone() };
        let kinds: Vec<Option<Kind>> = [None].into_iter().chain(floods.into_iter().map(Some)).collect();
        for contender in self.contenders.clone() {
            for kind in kinds.clone() {
                if self.runner.results.floods.iter().any(|one| (one.contender, one.kind) == (contender, kind)) {
                    continue;
                }
                let Some(capacity) = self.capacity(contender, Mode::Passwords) else { continue };
                let name = kind.map_or_else(|| "no flood".to_owned(), |kind| kind.to_string());
                let limit = Self::limit(contender, Mode::Passwords, capacity);
                self.runner.measure(
                    &format!("flood: {contender}, {name}"),
                    || flood_impact::run(contender, kind, &self.place, (capacity, limit), course),
                    |results, one| {
                        let (calls, tally) = (&one.calls, &one.tally);
                        eprintln!(
                            "  {:.2} % of {:.0} calls/s carried, p99 {:.1?} ms, flood {:.0}/s, bytes back {:.2}, CPU {:.3}{}",
                            calls.carried,
                            calls.offered,
                            calls.p99_ms,
                            one.rate,
                            tally.amplification(),
                            calls.processors,
                            late(calls)
                        );
                        results.floods.push(one);
                    },
                );
            }
        }
    }

    fn reflections(&mut self) {
        let course =
            if self.arguments.run.mode.quick { flood_impact::Schedule::QUICK } else { flood_impact::Schedule::USUAL };
        for contender in self.contenders.clone() {
            if self.runner.results.reflections.iter().any(|one| one.contender == contender) {
                continue;
            }
            // Far above the load: only the replies per request matter here.
            let limit = Self::limit(contender, Mode::Udp, 10_000.0);
            self.runner.measure(
                &format!("reflection: {contender}"),
                || flood_impact::reflect(contender, &self.place, limit, course),
                |results, one| {
                    for (kind, tally) in &one.kinds {
                        eprintln!("  {kind}: {} for {}, bytes {:.2}", tally.answers, tally.sent, tally.amplification());
                    }
                    results.reflections.push(one);
                },
            );
        }
    }

    fn avalanches(&mut self) {
        if !avalanche::is_known(&self.place) {
            eprintln!("SKIPPED: registrations all at once, for strowger load has no workload {}", avalanche::WORKLOAD);
            return;
        }
        let course =
            if self.arguments.run.mode.quick { avalanche::Schedule::QUICK } else { avalanche::Schedule::USUAL };
        // Kamailio's ratelimit is configured for INVITEs and does not affect REGISTERs.
        let contenders: Vec<_> = self.contenders.iter().copied().filter(|one| *one != Contender::Limits).collect();
        for contender in contenders {
            if self.runner.results.avalanches.iter().any(|one| one.contender == contender) {
                continue;
            }
            self.runner.measure(
                &format!("registrations all at once: {contender}"),
                || avalanche::run(contender, &self.place, course),
                |results, one| {
                    eprintln!("  {} of {} registered, 99 % after {:.1?} s", one.registered, one.phones, one.recovery_s);
                    results.avalanches.push(one);
                },
            );
        }
    }

    fn costs(&mut self) {
        let (course, pairs) = if self.arguments.run.mode.quick {
            (cost::Schedule::QUICK, 1)
        } else {
            (cost::Schedule::USUAL, COST_PAIRS)
        };
        for number in self.runner.results.costs.len() as u64..pairs {
            self.runner.measure(
                &format!("cost of control, pair {}", number + 1),
                || cost::turn(&self.place, course, number),
                |results, one| {
                    eprintln!(
                        "  {:.2} µs with control, {:.2} without: {:+.2} %",
                        one.control_us,
                        one.plain_us,
                        one.percent()
                    );
                    results.costs.push(one);
                },
            );
        }
    }

    /// Writes the page, the tables and the plots.
    fn show(&self) -> Result<(), String> {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("OVERLOAD.md");
        let output = self.arguments.output.clone().unwrap_or_else(usual);
        let is_kept = !self.arguments.run.mode.quick || self.arguments.output.is_some();
        let mut text = table::summary(&self.runner.results);
        text.push_str("\n![Goodput by offered load](plots/overload-udp.svg)\n\n");
        self.describe(&mut text);
        text.push_str(&table::all(&self.runner.results));
        println!("{text}");
        if !is_kept {
            let scratch = self.runner.beside("overload-tables");
            let drawn = plot::draw(&self.runner.results, &scratch).map_err(|error| error.to_string())?;
            self.runner.results.write_csv(&scratch).map_err(|error| error.to_string())?;
            self.runner.say(&format!("{} pictures drawn, tables written, none kept", drawn.len()));
            return Ok(());
        }
        plot::draw(&self.runner.results, &output.with_file_name("plots")).map_err(|error| error.to_string())?;
        self.runner.results.write_csv(&output.with_file_name("overload")).map_err(|error| error.to_string())?;
        replace(&output, "overload", &text).map_err(|error| format!("{}: {error}", output.display()))
    }

    fn describe(&self, text: &mut String) {
        let around = &self.around;
        let Arguments { warm_up, seconds, .. } = self.arguments;
        let quota = self.place.quota;
        let configured = configuration(Contender::Control, Mode::Udp, self.place.has_control);
        let off = if self.place.has_control {
            "`[overload] control = false` is *no control*."
        } else {
            "This program has no `overload.control` yet: *no control* is what it is by default."
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{around}- {}\n- Each server: {:.1} % of a core, {} µs of every {} µs, all of its processes together\n\n\
             ## How it is measured\n\nMeasured in a network namespace. The server runs on the first core, where a \
             control group limits all of its processes and threads to their quota. The generator (the engine of \
             `strowger load`, caller and callee) and the floods run on the second. Servers have one worker or one \
             receiving process, and bindings in memory. A call is INVITE, 180, 200, ACK, BYE, 200 through the server, \
             to a callee registered there.\n\n1× is the *capacity*; for a program measured with and without control, \
             the higher one. Calls arrive as a Poisson process regardless of responses. Callers retransmit as in RFC \
             3261, give up after 32 s and do not retry after a 503. Each load has its own server, {warm_up} s of warm-up, \
             which is the lifetime of transactions, and {seconds} s of measurement (half below {REQUIRED}×). Calls \
             count when they end while others still begin, so a backlog processed after the load does not count as \
             goodput. A BYE not answered within {} s after that counts as not answered. Over TCP the callers share \
             {CONNECTIONS} connections opened in advance.\n\nKamailio: [kamailio/overload.cfg](kamailio/overload.cfg). \
             *Its own limits*: {}\n\n{off}\n\nStrowger; omitted keys have their defaults:\n\n```toml\n{configured}```\n",
            programs::kamailio_version(),
            quota.percent(),
            quota.quota_us,
            quota.period_us,
            DRAIN.as_secs(),
            table::limits(),
        );
    }
}

/// Returns the requested contenders that are available.
fn present(arguments: &Arguments, place: &Environment) -> Vec<Contender> {
    let has_kamailio = programs::has_kamailio();
    if !has_kamailio {
        eprintln!("SKIPPED: Kamailio, which is not installed (sudo apt-get install kamailio)");
    }
    if !place.has_control {
        eprintln!("SKIPPED: Strowger with control, because the program does not support overload.control");
    }
    let asked = if arguments.contenders.is_empty() { Contender::ALL.to_vec() } else { arguments.contenders.clone() };
    let is_there = |one: &Contender| match one {
        Contender::Control => place.has_control,
        Contender::Plain => true,
        Contender::Kamailio | Contender::Limits => has_kamailio,
    };
    asked.into_iter().filter(is_there).collect()
}

/// Removes results that will be measured again.
fn forget(results: &mut Results, part: Part) {
    match part {
        Part::Capacity => results.capacities.clear(),
        Part::Udp => results.loads.retain(|one| one.mode != Mode::Udp),
        Part::Tcp => results.loads.retain(|one| one.mode != Mode::Tcp),
        Part::Step => results.steps.clear(),
        Part::Flood => results.floods.clear(),
        Part::Reflection => results.reflections.clear(),
        Part::Avalanche => results.avalanches.clear(),
        Part::Cost => results.costs.clear(),
    }
}

fn brief(one: &LoadResult) -> String {
    let Outcome { offered, goodput, byes, p50_ms, p99_ms, refused, drops, processors, throttled, .. } = one.outcome;
    format!(
        "{offered:.0}/s offered, {goodput:.0}/s carried ({:.1} %), BYEs {byes:.2?} %, setup {p50_ms:.1?} ms (p99 {p99_ms:.1?}), \
         503 {refused:.0}/s, drops {drops:.0}/s, CPU {processors:.3} (throttled {throttled:.0} %){}",
        one.goodput_percent(),
        late(&one.outcome)
    )
}

const fn late(outcome: &Outcome) -> &'static str {
    if outcome.is_late { ", THE GENERATOR WAS LATE" } else { "" }
}
