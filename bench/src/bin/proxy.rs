//! Calls and registrations through one core of Strowger, Debian's Kamailio and a bare relay, in rotation. Writes its
//! tables into `bench/RESULTS.md` and its plots into `bench/plots`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use strowger_bench::callgrind::Counts;
use strowger_bench::namespace::{Namespace, enter};
use strowger_bench::programs::{self, BinaryArgument};
use strowger_bench::proxy::figures::{Figure, Figures, Highest, Key, Results, ServerRun, single};
use strowger_bench::proxy::instructions::count;
use strowger_bench::proxy::peer::{Environment, KEPT_FOR, Peer};
use strowger_bench::proxy::scenario::{Scenario, T1_MS};
use strowger_bench::proxy::steps::{Load, Loads, Step, steps};
use strowger_bench::proxy::{generate, plot, relay, search, table};
use strowger_bench::quiet::QuietWaiter;
use strowger_bench::register::process::{adopt, go_first, stay_on};
use strowger_bench::register::report::replace;
use strowger_bench::saved_results::{self, Conditions};
use strowger_bench::server::{circumstances, command_line};

/// Environment variable with the command shown in reports, if it is not this program.
const COMMAND: &str = "STROWGER_BENCH_COMMAND";
/// Listening ports of servers; the second is for a server that is counted at the same time.
const PORTS: (u16, u16) = (5_060, 5_070);
/// Shared memory of Kamailio's processes, in MiB: more than its calls need at saturation.
const SHARED_MIB: u32 = 8_192;
/// Maximum total time of all waits for a quiet machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// Ringing calls per second, and the time for which they ring.
const RINGING: (u32, Duration) = (2_000, Duration::from_secs(8));
/// Estimated time to start a server and register users, and of a search and the counts of a scenario.
const START: Duration = Duration::from_secs(4);
const SEARCH: Duration = Duration::from_secs(60);
const COUNT: Duration = Duration::from_secs(52);

#[derive(Debug, Parser)]
#[command(about = "Calls and registrations through one core, side by side; a report, not a test")]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// call, stateless, register, challenge [default: all]
    #[arg(long, value_delimiter = ',', value_parser = Scenario::parse)]
    scenarios: Vec<Scenario>,
    /// relay, strowger, apart (strowger without `server.segmentation`), awake (strowger with `server.spin = "always"`), kamailio
    /// [default: all]
    #[arg(long, value_delimiter = ',', value_parser = Peer::parse)]
    servers: Vec<Peer>,
    /// Runs of each server
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Users per side
    #[arg(long, default_value_t = 1_000)]
    users: u32,
    /// Concurrent calls at saturation; four times as many registrations
    #[arg(long, default_value_t = 64)]
    outstanding: u32,
    /// The other loads, per second; calls begin with the last
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 3_000])]
    rates: Vec<u32>,
    /// Seconds until a server reaches a steady state: its transactions live for 32
    #[arg(long, default_value_t = 40)]
    warm_up: u64,
    /// Measured seconds of each load
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Skips the search for the highest rate
    #[arg(long)]
    no_search: bool,
    /// Skips the instruction counts with callgrind
    #[arg(long)]
    no_instructions: bool,
    /// Skips the memory of ringing calls
    #[arg(long)]
    no_ringing: bool,
    /// Smoke test: a little of everything; writes and saves nothing
    #[arg(long)]
    quick: bool,
    /// Starts from the results of an earlier run and measures only what is missing
    #[arg(long)]
    resume: bool,
    /// File in which results are saved for another run [default: proxy.json beside this program]
    #[arg(long)]
    results: Option<PathBuf>,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File for the tables, in addition to standard output [default: bench/RESULTS.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The bare relay itself
    #[command(hide = true)]
    Relay {
        /// Listening address
        address: SocketAddr,
        /// Scenario to relay
        #[arg(value_parser = Scenario::parse)]
        scenario: Scenario,
    },
}

fn main() {
    let arguments = Arguments::parse();
    if let Some(Part::Relay { address, scenario }) = arguments.part {
        let error = relay::run(address, scenario).expect_err("it goes on until it is killed");
        panic!("the relay: {error}");
    }
    let network = enter(true);
    let command = std::env::var(COMMAND).unwrap_or_else(|_| command_line("strowger-bench --bin proxy"));
    let around = circumstances(&command);
    adopt().expect("processes can be adopted");
    let is_first = go_first();
    let mut bench = Bench::new(arguments, is_first);
    bench.run();
    let mut text = format!("## Calls and registrations, side by side\n\n{around}");
    bench.describe(&mut text, network == Namespace::Own, is_first);
    let text = bench.show(text);
    println!("{text}");
}

/// The running benchmark.
struct Bench {
    arguments: Arguments,
    loads: Loads,
    binary: PathBuf,
    scenarios: Vec<Scenario>,
    peers: Vec<Peer>,
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
    fn new(mut arguments: Arguments, is_first: bool) -> Self {
        let binary = arguments.binary.path();
        if arguments.quick {
            (arguments.rounds, arguments.seconds) = (arguments.rounds.min(1), 1);
        }
        let loads = Loads {
            outstanding: arguments.outstanding,
            rates: arguments.rates.clone(),
            warm_up: Duration::from_secs(arguments.warm_up),
            time: Duration::from_secs(arguments.seconds),
            is_quick: arguments.quick,
        };
        let all = |list: &[Scenario]| if list.is_empty() { Scenario::ALL.to_vec() } else { list.to_vec() };
        let scenarios = all(&arguments.scenarios);
        let has_kamailio = programs::has_kamailio();
        let has_valgrind = programs::is_installed("valgrind", "--version");
        let asked = if arguments.servers.is_empty() { &Peer::ALL[..] } else { &arguments.servers };
        let is_there = |peer: &Peer| *peer != Peer::Kamailio || has_kamailio;
        let peers = asked.iter().copied().filter(is_there).collect();
        if !has_kamailio {
            eprintln!("SKIPPED: Kamailio, which is not installed (sudo apt-get install kamailio)");
        }
        if !has_valgrind && !arguments.no_instructions {
            eprintln!("SKIPPED: instructions, for valgrind is not installed (sudo apt-get install valgrind)");
        }
        let file = arguments.results.clone().unwrap_or_else(|| programs::beside("proxy.json"));
        let conditions = Conditions::of(&binary)
            .expect("the program can be read")
            .with("going before other work", is_first.to_string());
        let results = if arguments.resume {
            saved_results::read(&file, &conditions).unwrap_or_else(|why| panic!("{why}"))
        } else {
            Results::default()
        };
        let (begun, left) = (Instant::now(), Duration::ZERO);
        let calm = QuietWaiter::new(&[0, 1], if arguments.quick { Duration::ZERO } else { PATIENCE });
        Self { arguments, loads, binary, scenarios, peers, has_valgrind, file, conditions, results, begun, left, calm }
    }

    /// Returns the servers with default configuration.
    fn servers(&self) -> Vec<Peer> {
        self.peers.iter().copied().filter(|peer| matches!(peer, Peer::Strowger | Peer::Kamailio)).collect()
    }

    const fn counts(&self) -> bool {
        self.has_valgrind && !self.arguments.no_instructions
    }

    fn run(&mut self) {
        let rounds = self.arguments.rounds;
        for scenario in self.scenarios.clone() {
            for _ in 0..rounds {
                self.left += self.peers.iter().map(|peer| self.length(scenario, *peer)).sum::<Duration>();
            }
            if rounds > 0 && scenario.is_call() && !self.arguments.no_search {
                self.left += SEARCH * u32::try_from(rounds * self.servers().len()).unwrap_or(1);
            }
            self.left += if self.counts() { COUNT } else { Duration::ZERO };
        }
        for scenario in self.scenarios.clone() {
            for round in 1..=rounds {
                for peer in self.peers.clone() {
                    if !self.results.has(scenario, peer, round) {
                        self.turn(scenario, peer, round);
                    }
                    self.left = self.left.saturating_sub(self.length(scenario, peer));
                }
            }
        }
        if !self.arguments.no_ringing && self.scenarios.contains(&Scenario::Call) && rounds > 0 {
            for peer in self.servers() {
                self.ring(peer);
            }
        }
        if self.counts() {
            for scenario in self.scenarios.clone() {
                self.count(scenario);
                self.left = self.left.saturating_sub(COUNT);
            }
        }
        self.say(&self.calm.told());
    }

    fn length(&self, scenario: Scenario, peer: Peer) -> Duration {
        START + steps(scenario, peer, &self.loads).iter().map(Step::length).sum::<Duration>()
    }

    fn say(&self, what: &str) {
        let minutes = |time: Duration| time.as_secs_f64() / 60.0;
        eprintln!("[{:.1} min, about {:.1} left] {what}", minutes(self.begun.elapsed()), minutes(self.left));
    }

    fn place<'a>(&'a self, scenario: Scenario, folder: &'a Path, address: SocketAddr) -> Environment<'a> {
        let users = 2 * self.arguments.users;
        Environment { binary: &self.binary, folder, scenario, address, users, memory_mib: SHARED_MIB, t1_ms: T1_MS }
    }

    fn keep(&self) {
        if self.arguments.quick {
            return;
        }
        if let Err(error) = saved_results::write(&self.file, &self.conditions, &self.results) {
            eprintln!("cannot save the results: {error}");
        }
    }

    /// Starts a server once and measures all loads and its highest rate.
    fn turn(&mut self, scenario: Scenario, peer: Peer, round: usize) {
        self.calm.wait();
        self.say(&format!("{scenario}, {peer}, round {round}"));
        let done = self.try_turn(scenario, peer, round);
        match done {
            Ok(turn) => self.results.turns.push(turn),
            Err(error) => eprintln!("  FAILED: {scenario}, {peer}, round {round}: {error}"),
        }
        self.keep();
    }

    fn try_turn(&mut self, scenario: Scenario, peer: Peer, round: usize) -> Result<ServerRun, String> {
        let folder = tempfile::Builder::new().prefix("strowger-proxy-").tempdir().map_err(|error| error.to_string())?;
        let address = SocketAddr::from(([127, 0, 0, 1], PORTS.0));
        let users = self.arguments.users;
        let mut server = peer.start(&["taskset", "-c", "0"], &self.place(scenario, folder.path(), address))?;
        let steps = steps(scenario, peer, &self.loads);
        stay_on(1).map_err(|error| format!("there is no second core: {error}"))?;
        let outcome = generate::run(scenario, (address, server.pid()), &steps, users)?;
        server.check()?;
        let mut loads: Vec<_> = steps.iter().map(|step| step.load).zip(outcome.figures).collect();
        for (load, figures) in &loads {
            eprintln!("  {load}: {}", brief(figures));
        }
        let first = steps.iter().position(|step| step.is_first).map(|at| loads.remove(at));
        let full = loads.iter().find(|(load, _)| matches!(load, Load::Saturation(_)));
        let rate = full.and_then(|(_, figures)| figures.of(Key::Rate)).unwrap_or(1_000.0);
        let is_searched = scenario.is_call() && matches!(peer, Peer::Strowger | Peer::Kamailio);
        if is_searched && !self.arguments.no_search {
            self.say(&format!("{scenario}, {peer}, highest rate"));
            let what = (scenario, peer);
            let found =
                search::highest(&self.binary, folder.path(), what, address, (0.9 * rate, users), self.loads.is_quick);
            self.left = self.left.saturating_sub(SEARCH);
            match found {
                Ok(Highest { rate, .. }) => eprintln!("  {rate:.0}/s"),
                Err(ref error) => eprintln!("  {error}"),
            }
            self.results.highest.extend(found.ok());
        }
        let memory = (outcome.memory.0 / MIB, outcome.memory.1 / MIB);
        let (course, answered_bytes) = (outcome.course, outcome.answered_bytes);
        Ok(ServerRun { scenario, peer, round, first, loads, course, answered_bytes, memory })
    }

    /// Measures the memory of ringing calls at a separate server.
    fn ring(&mut self, peer: Peer) {
        let scenario = Scenario::Call;
        if single(&self.results.ringing_bytes, scenario, peer).is_some() {
            return;
        }
        self.say(&format!("{peer}, calls that ring"));
        match self.try_ring(peer) {
            Ok(value) => self.results.ringing_bytes.push(Figure { scenario, peer, value }),
            Err(error) => eprintln!("  {peer}, calls that ring: {error}"),
        }
        self.keep();
    }

    fn try_ring(&self, peer: Peer) -> Result<f64, String> {
        let folder = tempfile::Builder::new().prefix("strowger-proxy-").tempdir().map_err(|error| error.to_string())?;
        let address = SocketAddr::from(([127, 0, 0, 1], PORTS.0));
        let users = self.arguments.users;
        let place = self.place(Scenario::Call, folder.path(), address);
        let mut server = peer.start(&["taskset", "-c", "0"], &place)?;
        let (rate, time) = RINGING;
        let time = if self.arguments.quick { time / 4 } else { time };
        let bytes = generate::ringing((address, server.pid()), rate, time, users)?;
        server.check()?;
        eprintln!("  {bytes:.0} bytes each");
        Ok(bytes)
    }

    /// Counts the instructions of both servers simultaneously, which does not affect the counts.
    fn count(&mut self, scenario: Scenario) {
        let missing = |peer: &Peer| self.results.parts(scenario, *peer).is_none();
        let peers: Vec<Peer> = self.servers().into_iter().filter(missing).collect();
        if peers.is_empty() {
            return;
        }
        self.say(&format!("{scenario}, instructions"));
        let counts = if self.arguments.quick { Counts::QUICK } else { Counts::USUAL };
        let binary = &self.binary;
        let found: Vec<_> = std::thread::scope(|scope| {
            let begin = |(peer, port): (Peer, u16)| {
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                scope.spawn(move || {
                    // A thread inherits the affinity of the thread that starts it.
                    let core = usize::from(port != PORTS.0);
                    stay_on(core).map_err(|error| error.to_string())?;
                    let parts = count(binary, (scenario, peer), address, counts);
                    parts.map(|parts| (peer, parts)).map_err(|error| format!("{peer}: {error}"))
                })
            };
            let threads: Vec<_> = peers.into_iter().zip([PORTS.0, PORTS.1]).map(begin).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned()))).collect()
        });
        for found in found {
            match found {
                Ok((peer, parts)) => {
                    eprintln!("  {peer}: {:.0} each", parts.all());
                    self.results.parts.push((scenario, peer, parts));
                }
                Err(error) => eprintln!("  {error}"),
            }
        }
        self.keep();
    }

    /// Describes the method of measurement.
    fn describe(&self, text: &mut String, is_apart: bool, is_first: bool) {
        if self.arguments.quick {
            text.push_str(
                "\n**A smoke test**: all of it was begun, and too little of anything was done to measure it. No figure here says anything, nor \
                 whether a target is met. Nothing is written.\n",
            );
            return;
        }
        let Arguments { users, warm_up, seconds, outstanding, .. } = self.arguments;
        // Includes rounds of the earlier runs that this one continues.
        let rounds = self.results.turns.iter().map(|turn| turn.round).max().unwrap_or(0);
        let network = if is_apart { "a network namespace of its own" } else { "this machine's loopback" };
        let turn = if is_first { "at nice -20" } else { "at the normal priority" };
        let [cold, filling] = [Scenario::Call, Scenario::Register].map(|scenario| scenario.beginning().as_secs());
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "- {}\n\n{users} users on each side, in {network}. The server runs on the first core with one receiving process or worker. The \
             generator (`strowger load --segmentation --busy-poll`, caller and callee) runs on the second; it never sleeps, so no server spends \
             time on waking it. Both run {turn}. Rounds: {rounds}; the servers alternate and are restarted for each. Calls start at the \
             highest of the fixed rates: its first {cold} s are the cold phase of the targets; after {warm_up} s of warm-up, {seconds} s \
             are measured. Then follow the other rates and saturation ({outstanding} concurrent calls, or {} concurrent registrations). \
             Saturation is measured after {filling} s, when as many transactions end as begin, and the rates after another {filling} s, \
             in which the kernel moves a grown server to huge pages; stateless calls have no transactions and wait for 2 s. Registrations \
             start at the lowest rate; their cold phase is the {filling} s of full speed before saturation is measured. The tables have \
             medians (of two rounds, the mean). A ratio is the median of the rounds' ratios, because the machine's speed varies between \
             rounds; ratios of highest rates are ratios of medians. Times are measured at the caller; the callee answers immediately. {}\n",
            programs::kamailio_version(),
            4 * outstanding,
            self.calm.told(),
        );
    }

    /// Writes all tables and plots to their files.
    fn show(&self, head: String) -> String {
        let mut text = head + "\n" + &table::summary(&self.results);
        let output = self.arguments.output.clone();
        let output = output.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md"));
        let drawn = if self.arguments.quick {
            let folder = tempfile::tempdir().expect("a temporary folder");
            plot::draw(&self.results, folder.path()).expect("pictures can be drawn")
        } else {
            plot::draw(&self.results, &output.with_file_name("plots")).expect("pictures can be drawn")
        };
        for (name, caption) in drawn.into_iter().filter(|_| !self.arguments.quick) {
            let _ = write!(text, "\n![{caption}](plots/{name})\n");
        }
        for scenario in &self.scenarios {
            text.push_str(&table::of(&self.results, *scenario));
        }
        text.push_str(&table::profile(&self.results));
        text.push_str(&configurations(&self.scenarios));
        if !self.arguments.quick {
            replace(&output, "proxy", &text).expect("the table can be written");
        }
        text
    }
}

const MIB: f64 = 1_048_576.0;

fn brief(figures: &Figures) -> String {
    let of = |key| figures.of(key).unwrap_or(f64::NAN);
    format!(
        "{:.0}/s, {:.3} % not carried, CPU {:.1} µs each ({:.0} % kernel), p50 {:.0} µs, p99 {:.0} µs, {:.0} MiB, server's core {:.2}",
        of(Key::Rate),
        of(Key::Lost),
        of(Key::Processor),
        of(Key::Kernel),
        of(Key::P50),
        of(Key::P99),
        of(Key::Memory),
        of(Key::Cores)
    )
}

/// Returns the servers' configurations.
fn configurations(scenarios: &[Scenario]) -> String {
    let address = SocketAddr::from(([127, 0, 0, 1], PORTS.0));
    let mut text = format!(
        "\n### Configurations\n\nKamailio: [kamailio/proxy.cfg](kamailio/proxy.cfg), `kamailio -DD -E -x fm -X fm -m \
         {SHARED_MIB} -M 64 -A WT_TIMER={}`, with `-A STATELESS` or `-A CHALLENGE`. Strowger; omitted keys have their defaults:\n",
        KEPT_FOR * T1_MS
    );
    let mut shown = String::new();
    for scenario in scenarios {
        let own = scenario.configuration(address, T1_MS, Peer::Strowger.set());
        if own != shown {
            let _ = write!(text, "\n{scenario}:\n\n```toml\n{own}```\n");
        }
        shown = own;
    }
    text
}
