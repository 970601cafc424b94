//! Strowger's balancer and Debian's Kamailio in front of emulated targets, in rotation: times and throughput of each
//! policy, the cost of the balancer itself, the memory of an established call, and the effect of a stopped target.
//! Writes `bench/BALANCER.md` and plots into `bench/plots`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use strowger_bench::balancer::contender::{CALLS, Contender, ExtraConfig, Law, Layout, TargetSpeeds};
use strowger_bench::balancer::disturbance::{PERCENT, Schedule, StopMethod, disturb};
use strowger_bench::balancer::figures::{Cost, Figures, LoadRun, ModelResult, Rule};
use strowger_bench::balancer::generate::{self, LoadRequest, TALK};
use strowger_bench::balancer::parts::count;
use strowger_bench::balancer::results::Results;
use strowger_bench::balancer::table::{self, AT};
use strowger_bench::balancer::{cluster, model, peer, plot, sessions, target};
use strowger_bench::callgrind::Counts;
use strowger_bench::namespace::{Namespace, enter};
use strowger_bench::programs::{self, BinaryArgument};
use strowger_bench::quiet::QuietWaiter;
use strowger_bench::register::process::{adopt, stay_on};
use strowger_bench::register::report::replace;
use strowger_bench::saved_results::{self, Conditions};
use strowger_bench::server::{circumstances, command_line};

/// Start time of a balancer and its targets.
const START: Duration = Duration::from_secs(2);
/// Maximum time for calls to end after a load: overloaded targets finish their queues in it.
const DRAIN: Duration = Duration::from_secs(12);
/// Concurrent calls at saturation.
const AT_ONCE: usize = 64;
/// Time at saturation until transactions end at the rate at which they begin.
const FILLS: Duration = Duration::from_secs(36);
/// Maximum total time of all waits for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// Number of calls in the model.
const MODELLED: usize = 200_000;
/// Contenders whose own cost is compared.
const COSTS: [Contender; 5] = [
    Contender::Hash,
    Contender::KamailioHash,
    Contender::LeastWork175,
    Contender::KamailioCallLoad,
    Contender::LeastCalls,
];
/// Contenders whose memory per call is measured.
const WEIGHED: [Contender; 3] = [Contender::LeastWork175, Contender::Hash, Contender::KamailioCallLoad];
/// Contenders measured with a stopped target.
const DISTURBED: [Contender; 2] = [Contender::Hash, Contender::LeastWork175];

#[derive(Debug, Parser)]
#[command(about = "The balancer and its policies in front of emulated targets, beside Kamailio; a report, not a test")]
struct Arguments {
    /// Parts to measure [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Part>,
    /// hash, openser, fnv, round-robin, weighted, cjsq, tjsq, tlwl-1.75, tlwl-2, tlwl-of-two, tlwl-adaptive, kamailio-hash,
    /// kamailio-round-robin, kamailio-weight, kamailio-call-load [default: all]
    #[arg(long, value_delimiter = ',', value_parser = Contender::parse)]
    contenders: Vec<Contender>,
    /// Numbers of targets
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 10], value_parser = clap::value_parser!(u16).range(1..=200))]
    targets: Vec<u16>,
    /// Loads of eight equal targets, in percent of their capacity
    #[arg(long, value_delimiter = ',', default_values_t = [20, 40, 60, 70, 80, 85, 90, 92, 94, 96, 98, 100])]
    loads: Vec<u32>,
    /// Loads of all other layouts
    #[arg(long, value_delimiter = ',', default_values_t = [60, 70, 80, 90, 94, 97, 100])]
    other_loads: Vec<u32>,
    /// Runs of each contender with eight targets; from the second on, only at the compared load and at saturation
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds at the start of each load that are not measured
    #[arg(long, default_value_t = 3)]
    warm_up: u64,
    /// Measured seconds of each load
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of established calls in the memory measurement
    #[arg(long, default_value_t = 100_000)]
    sessions: u64,
    /// Rate per second at which these calls begin
    #[arg(long, default_value_t = 4_000)]
    session_rate: u32,
    /// Smoke test: a little of everything; writes and saves nothing
    #[arg(long)]
    quick: bool,
    /// Starts from the results of an earlier run and measures only what is missing
    #[arg(long)]
    resume: bool,
    /// File in which results are saved for another run [default: balancer.json beside this program]
    #[arg(long)]
    results: Option<PathBuf>,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File for the tables, in addition to standard output [default: bench/BALANCER.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A part that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Response times and throughput of each policy
    Times,
    /// Cost of the balancer itself at saturation
    Cost,
    /// Instructions by part, counted by callgrind
    Parts,
    /// Memory of established calls
    Sessions,
    /// A stopped target
    Disturbed,
}

fn main() {
    let arguments = Arguments::parse();
    let network = enter(true);
    let around = circumstances(&command_line("strowger-bench --bin balancer"));
    adopt().expect("processes can be adopted");
    stay_on(1).expect("there is a second core");
    let mut bench = Bench::new(arguments);
    bench.run();
    let mut text = around;
    bench.describe(&mut text, network == Namespace::Own);
    println!("{}", bench.show(text));
}

/// The running benchmark.
struct Bench {
    arguments: Arguments,
    binary: PathBuf,
    contenders: Vec<Contender>,
    has_valgrind: bool,
    file: PathBuf,
    conditions: Conditions,
    results: Results,
    begun: Instant,
    /// Estimated remaining time.
    left: Duration,
    calm: QuietWaiter,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Self {
        let binary = arguments.binary.path();
        if arguments.quick {
            (arguments.rounds, arguments.warm_up, arguments.seconds) = (1, 1, 2);
            (arguments.targets, arguments.loads, arguments.other_loads) = (vec![8], vec![AT], vec![AT]);
            arguments.sessions = arguments.sessions.min(10_000);
        }
        let (has_kamailio, has_valgrind) = (programs::has_kamailio(), programs::is_installed("valgrind", "--version"));
        if !has_kamailio {
            eprintln!("SKIPPED: Kamailio, which is not installed (sudo apt-get install kamailio)");
        }
        if !has_valgrind {
            eprintln!("SKIPPED: instructions, for valgrind is not installed (sudo apt-get install valgrind)");
        }
        let asked: Vec<_> =
            if arguments.contenders.is_empty() { Contender::all().collect() } else { arguments.contenders.clone() };
        let contenders = asked.into_iter().filter(|one| one.is_ours() || has_kamailio).collect();
        let file = arguments.results.clone().unwrap_or_else(|| programs::beside("balancer.json"));
        let conditions = Conditions::of(&binary).expect("the program can be read");
        let results = if arguments.resume {
            saved_results::read(&file, &conditions).unwrap_or_else(|why| panic!("{why}"))
        } else {
            Results::default()
        };
        let (begun, left) = (Instant::now(), Duration::ZERO);
        let calm = QuietWaiter::new(&[0, 1], if arguments.quick { Duration::ZERO } else { PATIENCE });
        Self { arguments, binary, contenders, has_valgrind, file, conditions, results, begun, left, calm }
    }

    fn is_asked(&self, subject: Part) -> bool {
        self.arguments.only.is_empty() || self.arguments.only.contains(&subject)
    }

    fn run(&mut self) {
        if self.is_asked(Part::Times) {
            self.all_times();
        }
        if self.is_asked(Part::Cost) {
            self.all_costs();
        }
        if self.is_asked(Part::Sessions) {
            self.all_sessions();
        }
        if self.is_asked(Part::Disturbed) {
            self.all_disturbances();
        }
        if self.is_asked(Part::Parts) && self.has_valgrind {
            self.all_parts();
        }
    }

    fn say(&self, what: &str) {
        let minutes = |time: Duration| time.as_secs_f64() / 60.0;
        eprintln!(
            "[{:.1} min, at most {:.1} left of this part] {what}",
            minutes(self.begun.elapsed()),
            minutes(self.left)
        );
    }

    fn keep(&self) {
        if self.arguments.quick {
            return;
        }
        if let Err(error) = saved_results::write(&self.file, &self.conditions, &self.results) {
            eprintln!("cannot save the results: {error}");
        }
    }

    /// Returns the requested contenders of a list.
    fn of(&self, list: &[Contender]) -> Vec<Contender> {
        list.iter().copied().filter(|one| self.contenders.contains(one)).collect()
    }

    /// Returns the layouts, each with its loads and rounds.
    fn layouts(&self) -> Vec<(Layout, Vec<u32>, usize)> {
        let Arguments { targets, loads, other_loads, rounds, .. } = &self.arguments;
        let mut all = Vec::new();
        for count in targets {
            let layout = Layout::equal(*count);
            if *count == 8 {
                all.push((layout, loads.clone(), *rounds));
            } else {
                all.push((layout, other_loads.clone(), 1));
            }
        }
        // Other layouts use the first number of targets that can be halved; eight if it is among them.
        let halved =
            targets.iter().find(|count| **count == 8).or_else(|| targets.iter().find(|count| **count % 2 == 0));
        if let Some(count) = halved {
            let unequal = Layout { speeds: TargetSpeeds::Unequal, ..Layout::equal(*count) };
            let told = Layout { speeds: TargetSpeeds::Told, ..unequal };
            let constant = Layout { law: Law::Constant, ..Layout::equal(*count) };
            all.extend([unequal, told, constant].map(|layout| (layout, other_loads.clone(), 1)));
        }
        all
    }

    fn length(&self, loads: &[u32]) -> Duration {
        // Calls with talk time end a little more than a second after the last one began.
        let load = Duration::from_secs(self.arguments.warm_up + self.arguments.seconds) + Duration::from_millis(1_700);
        START + load * u32::try_from(loads.len()).unwrap_or(1)
    }

    fn all_times(&mut self) {
        let layouts = self.layouts();
        let turns = |bench: &Self, (layout, loads, rounds): &(Layout, Vec<u32>, usize)| {
            let mut turns = Vec::new();
            for round in 1..=*rounds {
                let loads = if round == 1 { loads.clone() } else { vec![AT] };
                for contender in bench.contenders.iter().filter(|contender| contender.is_of(*layout)) {
                    turns.push((*contender, *layout, round, loads.clone()));
                }
            }
            turns
        };
        let turns: Vec<_> = layouts.iter().flat_map(|layout| turns(self, layout)).collect();
        self.left = turns.iter().map(|(.., loads)| self.length(loads)).sum();
        for (contender, layout, round, loads) in turns {
            if !self.results.has(contender, layout, round) {
                self.say(&format!("{layout}: {contender}, round {round}"));
                match self.turn(contender, layout, round, &loads) {
                    Ok(turn) => self.results.turns.push(turn),
                    Err(error) => eprintln!("  FAILED: {layout}: {contender}: {error}"),
                }
                self.keep();
            }
            self.left = self.left.saturating_sub(self.length(&loads));
        }
        self.all_models(layouts.into_iter().map(|(layout, ..)| layout));
    }

    /// Runs the model of the same layouts.
    fn all_models(&mut self, layouts: impl Iterator<Item = Layout>) {
        for layout in layouts {
            for contender in self.contenders.iter().copied().filter(|contender| contender.is_of(layout)) {
                if self.results.modelled(contender, layout).is_none()
                    && let Some((invite, bye)) = model::run(contender, layout, f64::from(AT) / 100.0, MODELLED, 7)
                {
                    self.results.models.push(ModelResult { contender, layout, invite, bye });
                }
            }
        }
        self.keep();
    }

    /// Starts a balancer and its targets once and runs all loads in ascending order until one is not sustained.
    fn turn(&self, contender: Contender, layout: Layout, round: usize, loads: &[u32]) -> Result<LoadRun, String> {
        let folder = folder()?;
        let seed = 100 * round as u64 + u64::from(layout.targets);
        let _targets = cluster::start(&self.binary, folder.path(), layout, seed)?;
        let more = ExtraConfig { balancer: "slow_start = \"0s\"\n", ..ExtraConfig::default() };
        let mut server = peer::start(contender, (&self.binary, folder.path()), layout, &more, &[])?;
        let mut all = Vec::new();
        for percent in loads {
            let ask = LoadRequest {
                rate: Some(f64::from(*percent) / 100.0 * layout.capacity()),
                at_once: 0,
                talk: Some(TALK),
                warm_up: Duration::from_secs(self.arguments.warm_up),
                time: Duration::from_secs(self.arguments.seconds),
                drain: DRAIN,
                seed: 1_000 * seed + u64::from(*percent),
                answered_at: Vec::new(),
            };
            let mut figures = generate::run(server.pid(), &ask)?.figures();
            server.check()?;
            eprintln!("  {percent} %: {}", brief(&figures));
            if !figures.holds(Rule::BeforeT1) {
                // The machine may have been disturbed: a failure counts only if it is repeated.
                figures = generate::run(server.pid(), &LoadRequest { seed: ask.seed + 500, ..ask })?.figures();
                eprintln!("  {percent} % again: {}", brief(&figures));
            }
            all.push((*percent, figures));
            if !figures.holds(Rule::BeforeT1) && *percent >= AT {
                break;
            }
        }
        Ok(LoadRun { contender, layout, round, loads: all })
    }

    /// Measures each contender at saturation, in rotation.
    fn all_costs(&mut self) {
        let contenders = self.of(&COSTS);
        let time = self.cost_time();
        let each = START + time.0 + time.1;
        self.left = each * u32::try_from(contenders.len() * self.arguments.rounds).unwrap_or(1);
        for round in 1..=self.arguments.rounds {
            for contender in &contenders {
                let is_known = |(its, at, _): &(Contender, usize, Cost)| its == contender && *at == round;
                if !self.results.costs.iter().any(is_known) {
                    self.calm.wait();
                    self.say(&format!("own cost: {contender}, round {round}"));
                    match self.cost(*contender) {
                        Ok(cost) => {
                            eprintln!(
                                "  {:.0}/s, CPU {:.1} µs a call ({:.0} % kernel), {:.2} cores, generator {:.2}",
                                cost.rate, cost.processor, cost.kernel, cost.cores, cost.generator
                            );
                            self.results.costs.push((*contender, round, cost));
                        }
                        Err(error) => eprintln!("  FAILED: {contender}: {error}"),
                    }
                    self.keep();
                }
                self.left = self.left.saturating_sub(each);
            }
        }
    }

    fn cost_time(&self) -> (Duration, Duration) {
        let seconds = Duration::from_secs(self.arguments.seconds);
        (if self.arguments.quick { Duration::from_secs(1) } else { FILLS }, seconds)
    }

    fn cost(&self, contender: Contender) -> Result<Cost, String> {
        let folder = folder()?;
        let layout = Layout::equal(8);
        let mut server = peer::start(contender, (&self.binary, folder.path()), layout, &ExtraConfig::default(), &[])?;
        let (warm_up, time) = self.cost_time();
        let ask = LoadRequest {
            rate: None,
            at_once: AT_ONCE,
            talk: None,
            warm_up,
            time,
            drain: Duration::from_secs(35),
            seed: 1,
            answered_at: (0..layout.targets).map(target).collect(),
        };
        let ran = generate::run(server.pid(), &ask)?;
        server.check()?;
        let began = ran.phase.meter().began;
        if began.carried * 1_000 < began.sent * 999 {
            return Err(format!("calls failed: {began:?}"));
        }
        ran.cost().ok_or_else(|| "there are no samples of the balancer".to_owned())
    }

    fn all_sessions(&mut self) {
        let Arguments { sessions: count, session_rate: rate, .. } = self.arguments;
        let contenders = self.of(&WEIGHED);
        let each = START + Duration::from_secs(count / u64::from(rate.max(1)));
        self.left = each * u32::try_from(contenders.len()).unwrap_or(1);
        for contender in contenders {
            self.say(&format!("{count} calls that go on: {contender}"));
            match sessions::weigh(&self.binary, contender, count, rate) {
                Ok(weighed) => {
                    eprintln!("  {:.0} bytes each, {:.0} MiB in all", weighed.each, weighed.all_mib);
                    self.results.sessions.retain(|one| one.contender != contender);
                    self.results.sessions.push(weighed);
                }
                Err(error) => eprintln!("  FAILED: {contender}: {error}"),
            }
            self.keep();
            self.left = self.left.saturating_sub(each);
        }
    }

    fn all_disturbances(&mut self) {
        let course = if self.arguments.quick { Schedule::QUICK } else { Schedule::USUAL };
        let percent = if self.arguments.quick { PERCENT / 2.0 } else { PERCENT };
        for contender in self.of(&DISTURBED) {
            for how in [StopMethod::Stopped, StopMethod::Killed] {
                let is_known = |done: &strowger_bench::balancer::disturbance::Disturbance| {
                    done.contender == contender && done.how == how
                };
                if self.results.disturbances.iter().any(is_known) {
                    continue;
                }
                self.say(&format!("one of eight targets stops: {contender}, {how}"));
                match disturb(&self.binary, (contender, how), course, percent) {
                    Ok(done) => {
                        eprintln!(
                            "  {} of {} INVITEs and {} of {} BYEs without 200, {} waited, the longest {:.2} s, keys moved {:?}, {:?}",
                            done.invites.1,
                            done.invites.0,
                            done.byes.1,
                            done.byes.0,
                            done.caught,
                            done.longest,
                            done.moved,
                            done.failures
                        );
                        self.results.disturbances.push(done);
                    }
                    Err(error) => eprintln!("  FAILED: {contender}: {error}"),
                }
                self.keep();
            }
        }
    }

    fn all_parts(&mut self) {
        let counts = if self.arguments.quick { Counts::QUICK } else { Counts::USUAL };
        for contender in self.of(&COSTS) {
            if self.results.parts.iter().any(|(its, _)| *its == contender) {
                continue;
            }
            self.say(&format!("instructions: {contender}"));
            match count(&self.binary, contender, counts) {
                Ok(parts) => {
                    eprintln!("  {:.0} a call, {:.0} of them for the choice", parts.all(), parts.choice);
                    self.results.parts.push((contender, parts));
                }
                Err(error) => eprintln!("  FAILED: {contender}: {error}"),
            }
            self.keep();
        }
    }

    /// Describes the method of measurement.
    fn describe(&self, text: &mut String, is_apart: bool) {
        let Arguments { warm_up, seconds, .. } = self.arguments;
        let network = if is_apart { "a network namespace of its own" } else { "this machine's loopback" };
        let layout = Layout::equal(1);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "- {}\n\nMeasured in {network}. The balancer runs on the first core with one receiving process; targets \
             and generator run on the second. A target is an address of `strowger load answer` with one server and \
             an unbounded FIFO queue: `--service-time '{}'`, which is {CALLS:.0} calls/s; a slow target takes twice \
             as long. Calls arrive as a Poisson process, last 0.5 to 1.5 s, and retransmit as in RFC 3261. Each \
             load has {warm_up} s of warm-up and {seconds} s of measurement, with the same arrivals for all \
             contenders. Response times are measured at the caller, from the first copy of a request to its 200.\n\n",
            programs::kamailio_version(),
            layout.service_time(false),
        );
    }

    /// Writes all tables and plots to their files.
    fn show(&self, head: String) -> String {
        let mut text = head + &table::summary(&self.results);
        let output = self.arguments.output.clone();
        let output = output.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("BALANCER.md"));
        let drawn = if self.arguments.quick {
            let folder = tempfile::tempdir().expect("a temporary folder");
            plot::draw(&self.results, folder.path()).expect("pictures can be drawn")
        } else {
            plot::draw(&self.results, &output.with_file_name("plots")).expect("pictures can be drawn")
        };
        for (name, caption) in drawn {
            let _ = write!(text, "\n![{caption}](plots/{name})\n");
        }
        text.push_str(&table::all(&self.results));
        let own = Contender::LeastWork175.configuration(Layout::equal(2), &ExtraConfig::default());
        let _ = write!(
            text,
            "\n### Configurations\n\nKamailio: [kamailio/dispatcher.cfg](kamailio/dispatcher.cfg), `kamailio \
             -DD -E -x fm -X fm -m {} -M 64 -A ALGORITHM=… -A LIST=…`, with `-A CALL_LOAD` where it counts \
             calls. Strowger with two targets; omitted keys have their defaults:\n\n```toml\n{own}```\n",
            peer::SHARED_MIB
        );
        if !self.arguments.quick {
            replace(&output, "balancer", &text).expect("the table can be written");
        }
        text
    }
}

fn folder() -> Result<tempfile::TempDir, String> {
    tempfile::Builder::new().prefix("strowger-balancer-").tempdir().map_err(|error| error.to_string())
}

fn brief(figures: &Figures) -> String {
    let Figures { offered, carried, invite, bye, before_t1, soon, processor, is_late, .. } = figures;
    format!(
        "{offered:.0}/s, carried {carried:.0}/s, INVITE {:.2} ms (p99 {:.1}), BYE {:.2} ms (p99 {:.1}), {:.3} % within T1, {:.3} % within 50 ms, \
         CPU {processor:.0} µs a call{}",
        invite.mean,
        invite.p99,
        bye.mean,
        bye.p99,
        100.0 * before_t1,
        100.0 * soon,
        if *is_late { ", the generator was late" } else { "" }
    )
}
