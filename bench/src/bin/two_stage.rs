//! Two-stage clusters with each server limited to the same share of a core: throughput at each load, beside the plan
//! and the paper that it comes from. Writes `bench/TWO_STAGE.md`, tables into `bench/two_stage` and plots into
//! `bench/plots`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use strowger_bench::namespace::enter;
use strowger_bench::programs::BinaryArgument;
use strowger_bench::quota::{Quota, remove_leftovers};
use strowger_bench::register::process::{adopt, go_first, stay_on};
use strowger_bench::register::report::replace;
use strowger_bench::runner::{Run, RunArguments, Runner, exit_code};
use strowger_bench::saved_results::Conditions;
use strowger_bench::server::{circumstances, command_line};
use strowger_bench::two_stage::capacity::{SingleServer, measure};
use strowger_bench::two_stage::configuration::{T1, configuration};
use strowger_bench::two_stage::deployment::Environment;
use strowger_bench::two_stage::layout::{Layout, Work};
use strowger_bench::two_stage::results::Results;
use strowger_bench::two_stage::sweep::{Schedule, Task, sweep};
use strowger_bench::two_stage::{GENERATOR_CORE, USERS, paper, plot, table};

/// Notice at the top of a trial's page.
const TRIAL: &str = "**A trial: others worked on the machine meanwhile. The figures show the form of this page, and not what the servers can \
    do.**\n\n";
/// Title of a new page.
const TITLE: &str = "# Two stages\n";
/// Shares of registrations in mixed load, in percent.
const MIXES: [u8; 2] = [50, 80];
/// Loads of mixes, relative to the planned throughput.
const MIXED_LOADS: [f64; 3] = [0.6, 0.9, 1.2];

#[derive(Debug, Parser)]
#[command(about = "Clusters of two stages beside the plan of what they carry; a report, not a test")]
struct Arguments {
    /// Parts to measure; earlier results of the others are kept [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Part>,
    /// Loads, relative to the planned maximum throughput
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 0.8, 0.95, 1.2, 1.5])]
    loads: Vec<f64>,
    /// Seconds at the start of the first load that are not counted; transactions live for 6.4 s
    #[arg(long, default_value_t = 7)]
    fill: u64,
    /// Seconds at the start of each other load that are not counted
    #[arg(long, default_value_t = 3)]
    warm_up: u64,
    /// Counted seconds of each load
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Processor time of each server per period, in microseconds
    #[arg(long, default_value_t = 1_000)]
    quota_us: u32,
    /// Length of a period, in microseconds
    #[arg(long, default_value_t = 10_000)]
    period_us: u32,
    /// Maximum total time of all waits for a quiet machine, in seconds; 0 makes the run a trial
    #[arg(long, default_value_t = 120)]
    patience: u64,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File of the page; tables and plots go beside it [default: bench/TWO_STAGE.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A part that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Capacity of a single server of each stage
    Capacity,
    /// Calls
    Calls,
    /// Registrations
    Registrations,
    /// Registrations with overload control
    Control,
    /// Clusters with unequal shares, as in the paper
    Skew,
    /// Calls and registrations together
    Mixed,
}

impl Part {
    const ALL: [Self; 6] = [Self::Capacity, Self::Calls, Self::Registrations, Self::Control, Self::Skew, Self::Mixed];

    fn has(self, work: Work, weights: &[u16]) -> bool {
        match work {
            _ if !weights.is_empty() => self == Self::Skew,
            Work::Calls => self == Self::Calls,
            Work::Registrations => self == Self::Registrations,
            Work::ControlledRegistrations => self == Self::Control,
            Work::Mixed(_) => self == Self::Mixed,
        }
    }
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
    exit_code("two-stage", outcome)
}

struct Bench {
    arguments: Arguments,
    place: Environment,
    parts: Vec<Part>,
    around: String,
    runner: Runner<Results>,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Result<Self, String> {
        let binary = arguments.binary.existing_path()?;
        if arguments.run.mode.quick {
            (arguments.fill, arguments.warm_up, arguments.seconds, arguments.patience) = (1, 1, 1, 0);
            arguments.loads = vec![0.5, 1.2];
        }
        let quota = Quota { quota_us: arguments.quota_us, period_us: arguments.period_us };
        let conditions =
            Conditions::of(&binary)?.with("the quota", format!("{} of {} µs", quota.quota_us, quota.period_us));
        let run = Run {
            name: "two-stage",
            arguments: &arguments.run,
            only: &arguments.only,
            all: &Part::ALL,
            conditions,
            cores: &[0, GENERATOR_CORE],
            patience: Duration::from_secs(arguments.patience),
        };
        let (mut runner, parts) = Runner::start(run, forget)?;
        runner.results.quota = Some(quota);
        // Must run before this process is pinned to one core: after that it sees only that core.
        let around = circumstances(&command_line("strowger-bench --bin two-stage").replace(" --describe", ""));
        let place = Environment { binary, quota };
        Ok(Self { arguments, place, parts, around, runner })
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
                Part::Calls => self.layouts(Work::Calls),
                Part::Registrations => self.layouts(Work::Registrations),
                Part::Control => self.sweep(Layout::PAPER[0], Work::ControlledRegistrations, &[]),
                Part::Skew => self.sweep(Layout::PAPER[3], Work::Calls, &paper::WEIGHTS),
                Part::Mixed => MIXES.iter().for_each(|percent| self.mixed(Work::Mixed(*percent))),
            }
            self.runner.finish_part(part, begun);
        }
        self.runner.finish();
        Ok(())
    }

    fn course(&self) -> Schedule {
        let Arguments { fill, warm_up, seconds, .. } = self.arguments;
        let [fill, warm_up, time] = [fill, warm_up, seconds].map(Duration::from_secs);
        Schedule { fill, warm_up, time }
    }

    fn capacities(&mut self) {
        let course = self.course();
        for work in [Work::Calls, Work::Registrations] {
            for alone in SingleServer::ALL {
                if self.runner.results.capacity(alone, work).is_some() {
                    continue;
                }
                self.runner.measure(
                    &format!("{alone}, {work}"),
                    || measure(alone, work, course, &self.place),
                    |results, found| {
                        eprintln!("  {:.0}/s, {:.1} µs each", found.rate, found.cost_us);
                        results.capacities.push(found);
                    },
                );
            }
        }
    }

    fn layouts(&mut self, work: Work) {
        for layout in Layout::PAPER.into_iter().chain([Layout::WIDE, Layout::PAIRS]) {
            self.sweep(layout, work, &[]);
        }
    }

    /// Measures mixed load on a single server, and on two second-stage servers behind two of the first stage.
    fn mixed(&mut self, work: Work) {
        let loads = std::mem::replace(&mut self.arguments.loads, MIXED_LOADS.to_vec());
        [Layout::PAPER[0], Layout::PAPER[3]].into_iter().for_each(|layout| self.sweep(layout, work, &[]));
        self.arguments.loads = loads;
    }

    fn sweep(&mut self, layout: Layout, work: Work, weights: &[u16]) {
        if self.runner.results.weighted(layout, work, weights).is_some() {
            return;
        }
        let what = format!("{layout}, {work}");
        let Some(plan) = self.runner.results.both(work).and_then(|both| both.even(layout)) else {
            return self.runner.fail(&what, "the capacity of a single server is unknown; measure the part capacity");
        };
        let rates = self.arguments.loads.iter().map(|times| times * plan.capacity()).collect();
        let task = Task { layout, work, weights, rates, course: self.course() };
        self.runner.measure(&what, || sweep(&task, &self.place), |results, one| results.sweeps.push(one));
    }

    /// Writes the page, the tables and the plots.
    fn show(&mut self) -> Result<(), String> {
        self.runner.results.sort();
        let mut text = table::summary(&self.runner.results);
        if self.arguments.patience == 0 {
            text.insert_str(0, TRIAL);
        }
        text.push_str("\n![Calls carried by offered calls](plots/two-stage-calls.svg)\n\n");
        text.push_str("The paper's, for comparison:\n\n![The paper's plan](plots/two-stage-paper.svg)\n\n");
        self.describe(&mut text);
        text.push_str(&table::all(&self.runner.results));
        println!("{text}");
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("TWO_STAGE.md");
        let output = match &self.arguments.output {
            Some(output) => output.clone(),
            None if self.arguments.run.mode.quick => return Ok(()),
            None => usual(),
        };
        plot::draw(&self.runner.results, &output.with_file_name("plots")).map_err(|error| error.to_string())?;
        self.runner.results.write_csv(&output.with_file_name("two_stage")).map_err(|error| error.to_string())?;
        if !output.exists() {
            fs::write(&output, TITLE).map_err(|error| format!("{}: {error}", output.display()))?;
        }
        replace(&output, "two-stage", &text).map_err(|error| format!("{}: {error}", output.display()))
    }

    fn describe(&self, text: &mut String) {
        let Arguments { fill, warm_up, seconds, .. } = self.arguments;
        let quota = self.place.quota;
        let configured = configuration(Layout::PAPER[3], Work::Calls, &[], Path::new("/var/lib/strowger"));
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{}- Each server: {:.1} % of a core, {} µs of every {} µs, all of its threads together\n\n\
             {}\n\n\
             ## How it is measured\n\n\
             S*n*P*m* is the paper's notation: *n* first-stage servers, which forward each request to the cluster of its user, \
             and *m* clusters of one server each. B2: clusters of two servers, which share registrations and the cluster's \
             users. S0P1 is one server alone. All servers are on the first core, each in its own control group. The generators \
             (the engine of `strowger load`, callers and callees) are on the second, in a network namespace; each first-stage \
             server has one, with an equal part of the rate and of the {USERS} users.\n\nA call is the paper's Proxy 200 to a \
             registered user: INVITE, 180, 200, ACK, BYE, 200; calls arrive as a Poisson process. The INVITE and its responses \
             pass both stages. The first stage keeps no state and adds no Record-Route, so ACK and BYE go from the caller \
             directly to the second stage; in the paper they pass both. Nothing is retransmitted, and a call counts if each \
             of its requests gets its 2xx within 2 s. A registration is a REGISTER of a registered user, without a password. \
             Loads are fractions of the planned maximum. All loads of a layout run one after the other on the same servers, \
             the first after {fill} s of warm-up, the others after {warm_up} s; each is measured for {seconds} s. `timers.t1` \
             is {T1}, so that transactions end as fast as they begin.\n\n*Planned* is `strowger plan two-stage`: τ(λ) = Σ_j \
             min(f_j·min(λ, n·C_s), C_p), with C_s and C_p as measured below, f_j the share of users of each cluster, and λ the \
             load actually offered. The model omits the time that a server spends on refusing work and the bursts of calls.\n\n\
             The configuration of S2P2 for all servers, which are started with `strowger serve -c strowger.toml --as s1`:\n\n\
             ```toml\n{configured}```\n",
            self.around,
            quota.percent(),
            quota.quota_us,
            quota.period_us,
            failover(),
        );
    }
}

/// Returns a reference to the page on server failures, as a link only if the page exists.
fn failover() -> String {
    let page = "FAILOVER.md";
    let is_there = Path::new(env!("CARGO_MANIFEST_DIR")).join(page).exists();
    let named = if is_there { format!("[{page}]({page})") } else { format!("`bench/{page}`") };
    format!("What happens when a server dies, for each way to fail over: {named}.")
}

/// Removes results that will be measured again.
fn forget(results: &mut Results, part: Part) {
    if part == Part::Capacity {
        results.capacities.clear();
    }
    results.sweeps.retain(|one| !part.has(one.work, &one.weights));
}
