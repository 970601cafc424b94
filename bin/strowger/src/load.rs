//! `strowger load`: traffic.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use strowger_traffic::driver::Connecting;
use strowger_traffic::engine::{Plan, PlanError, Report, Run, Stopper, entropy};
use strowger_traffic::law::{Law, parse_time};
use strowger_traffic::options::{AnswerOptions, Answering, Options, ScenarioFiles, Target, WARNING, workload};
use strowger_traffic::report::About;
use strowger_traffic::service::{Applies, ServiceLaw};

use crate::failure::Failure;

/// How often the line of progress is written anew.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    pub(crate) command: LoadCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Makes calls
    #[command(after_help = "Examples:\n  \
        strowger load run --to udp:127.0.0.1:5060 --workload proxy-200 --rate 1000 --calls 10000 --seed 1 --json out.json\n  \
        strowger load run --to udp:192.0.2.7:5070 --callee there --rate 200 --time 60s --warm-up 5s\n  \
        strowger load run --rate 30000 --time 10s                      both ends here, no server\n  \
        strowger load run -sf uac.xml -inf users.csv -r 50 -m 1000 127.0.0.1:5060      SIPp's files and options\n  \
        strowger load run --to tcp:127.0.0.1:5060 --connect dialog --workload registration --users 5000\n\n\
        Workloads: proxy-200 (INVITE, 180, 200, ACK, BYE, 200), baseline (the same with 250 ms of ringing and of talk), \
        registration.\n\n\
        Callees of this process register at the target before the run. The domain must be one of the server's, and it must \
        know the users where it asks for passwords: user0 to user1999 for --users 1000, of which the first half calls.\n\n\
        Every call is accounted for: offered = sent + refused by limits, sent = carried + lost + failed + unfinished. A run in \
        which the generator was the bottleneck says so and exits 1. Ctrl-C ends it with the report of what was measured.")]
    Run(Box<RunArguments>),
    /// Answers calls
    #[command(after_help = "Examples:\n  strowger load answer --listen udp:0.0.0.0:5070\n  \
        strowger load answer --listen 127.0.0.1:5070 --service-time 'exp(mean=1ms)' --servers 2 --queue 100\n\n\
        It runs until Ctrl-C, --time or --calls ends it, and then reports.")]
    Answer(Box<AnswerArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Where calls go: udp:HOST:PORT or tcp:HOST:PORT [default: straight to callees in this process]
    #[arg(long, value_name = "TARGET", value_parser = target)]
    to: Option<Target>,
    /// As --to
    #[arg(value_name = "TARGET", value_parser = target, conflicts_with = "to")]
    target: Option<Target>,
    /// What is done
    #[arg(long, default_value = "proxy-200")]
    workload: String,
    /// Who answers [default: registered where --to is given, else here]
    #[arg(long, value_enum)]
    callee: Option<CalleeArgument>,
    /// Calls a second
    #[arg(short, long, default_value_t = 10.0)]
    rate: f64,
    /// The milliseconds that --rate is meant for, as SIPp's -rp
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    rp: u32,
    /// poisson, uniform, mmpp(…), ramp(…), file(PATH,unit=us), or a law of the gaps as gamma(shape=0.5)
    #[arg(long, default_value = "poisson", value_name = "LAW")]
    arrivals: String,
    /// A closed loop of so many calls at once, instead of a rate
    #[arg(long, value_name = "N")]
    outstanding: Option<usize>,
    /// How many calls [default: 10000 without --time]
    #[arg(short = 'm', long)]
    calls: Option<u64>,
    /// How long, as 60s or 5m
    #[arg(long, value_parser = time)]
    time: Option<Duration>,
    /// The beginning that is not counted
    #[arg(long, default_value = "0s", value_parser = time, value_name = "TIME")]
    warm_up: Duration,
    /// How long the last calls may take [default: 35s]
    #[arg(long, value_parser = time, value_name = "TIME")]
    drain: Option<Duration>,
    /// Users on each side
    #[arg(long, default_value_t = 1_000)]
    users: u32,
    /// Their names: % is the number, %6 one of six digits
    #[arg(long, default_value = "user%", value_name = "PATTERN")]
    user_pattern: String,
    /// Their password; % is the number
    #[arg(long, default_value = "secret", value_name = "PATTERN")]
    password: String,
    /// A table of users instead: name,password in each line; the first half calls, the second is called
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,
    /// The domain of the users [default: the target's address]
    #[arg(long)]
    domain: Option<String>,
    /// Addresses to send from; may be given several times [default: the one that leads to the target]
    #[arg(long, value_name = "ADDRESS")]
    from: Vec<IpAddr>,
    /// Ports of the callers, on each thread
    #[arg(long, default_value_t = 1)]
    sockets: usize,
    /// How connections are used, over TCP
    #[arg(long, value_enum, default_value_t = ConnectArgument::Persistent)]
    connect: ConnectArgument,
    /// Shared connections, on each thread
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Calls at once at most; more are refused and counted
    #[arg(short = 'l', long, value_name = "N")]
    max_calls: Option<usize>,
    #[command(flatten)]
    common: CommonArguments,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// Where to listen: udp:ADDRESS:PORT or tcp:ADDRESS:PORT
    #[arg(long, value_name = "TARGET", value_parser = target)]
    listen: Target,
    /// Whose callee it is
    #[arg(long, default_value = "proxy-200")]
    workload: String,
    /// Ends after so many calls
    #[arg(short = 'm', long)]
    calls: Option<u64>,
    /// Ends after this time, as 60s or 5m
    #[arg(long, value_parser = time)]
    time: Option<Duration>,
    #[command(flatten)]
    common: CommonArguments,
}

#[derive(Debug, Args)]
struct CommonArguments {
    /// A scenario of SIPp's instead of a workload (-sf)
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    sf: Option<PathBuf>,
    /// Its injection files (-inf)
    #[arg(long, value_name = "FILE", requires = "sf")]
    inf: Vec<PathBuf>,
    /// What [service] stands for in it
    #[arg(short, long, requires = "sf")]
    service: Option<String>,
    /// The milliseconds of its pauses that say no time
    #[arg(short = 'd', long, requires = "sf", value_name = "MS")]
    pause: Option<u64>,
    /// The password of its [authentication] (-ap)
    #[arg(long, requires = "sf", value_name = "SECRET")]
    ap: Option<String>,
    /// Threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Sends nothing again, over UDP
    #[arg(long)]
    no_retransmissions: bool,
    /// The callee takes so long for each new request, first come first served: 1ms, exp(mean=1ms), lognormal(…)
    #[arg(long, value_name = "LAW", value_parser = Law::parse)]
    service_time: Option<Law>,
    /// So many at once
    #[arg(long, default_value_t = 1, requires = "service_time")]
    servers: usize,
    /// So many wait at most; more are dropped and counted
    #[arg(long, requires = "service_time", value_name = "N")]
    queue: Option<usize>,
    /// Which messages need the service time
    #[arg(long, value_enum, default_value_t = AppliesArgument::New, requires = "service_time")]
    service_for: AppliesArgument,
    /// What randomness begins with [default: drawn, and always printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Writes the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CalleeArgument {
    /// This process; its callees register at the target before
    Registered,
    /// Who is at the target
    There,
    /// This process; calls go straight to it
    Here,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ConnectArgument {
    /// One for each transaction
    Transaction,
    /// One for each call
    Dialog,
    /// Shared ones, opened before
    Persistent,
    /// Shared ones, opened by the first calls
    PersistentWithOpen,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AppliesArgument {
    /// Requests that begin something
    New,
    /// All requests
    Requests,
    /// All messages
    All,
}

fn target(text: &str) -> Result<Target, PlanError> {
    Target::parse(text)
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| format!("'{text}' is no time; write it as 500ms, 60s, 5m or 2h"))
}

impl CommonArguments {
    fn service(&self) -> Option<ServiceLaw> {
        let applies = match self.service_for {
            AppliesArgument::New => Applies::New,
            AppliesArgument::Requests => Applies::Requests,
            AppliesArgument::All => Applies::All,
        };
        let queue = self.queue.unwrap_or(usize::MAX);
        self.service_time.clone().map(|law| ServiceLaw { law, servers: self.servers.max(1), queue, applies })
    }

    fn scenario(&self) -> Option<ScenarioFiles> {
        self.sf.clone().map(|file| ScenarioFiles {
            file,
            tables: self.inf.clone(),
            service: self.service.clone(),
            password: self.ap.clone(),
            pause: Duration::from_millis(self.pause.unwrap_or(0)),
        })
    }

    fn seed(&self) -> u64 {
        // Short enough to be typed again.
        self.seed.unwrap_or_else(|| entropy() % 1_000_000)
    }
}

impl RunArguments {
    fn options(&self) -> Result<Options, PlanError> {
        let mut options = Options::new(workload(&self.workload)?, self.to.or(self.target), self.common.seed());
        options.scenario = self.common.scenario();
        if let Some(callee) = self.callee {
            options.answering = match callee {
                CalleeArgument::Registered => Answering::Registered,
                CalleeArgument::There => Answering::There,
                CalleeArgument::Here => Answering::Here,
            };
        }
        if options.to.is_none() && options.answering != Answering::Here {
            return Err(PlanError("--callee registered and --callee there need --to".to_owned()));
        }
        if self.threads_are_too_many() {
            return Err(PlanError("--threads and --sockets together are more than 65,535 ports; use fewer".to_owned()));
        }
        options.connecting = match self.connect {
            ConnectArgument::Transaction => Connecting::Transaction,
            ConnectArgument::Dialog => Connecting::Dialog,
            ConnectArgument::Persistent => Connecting::Persistent,
            ConnectArgument::PersistentWithOpen => Connecting::PersistentWithOpen,
        };
        (options.rate, options.arrivals) = (self.rate * 1_000.0 / f64::from(self.rp), self.arrivals.clone());
        (options.outstanding, options.calls, options.time) = (self.outstanding, self.calls, self.time);
        (options.warm_up, options.drain) = (self.warm_up, self.drain);
        (options.users, options.pattern) = (self.users, self.user_pattern.clone());
        (options.password, options.users_file) = (self.password.clone(), self.users_file.clone());
        (options.domain, options.from) = (self.domain.clone(), self.from.clone());
        (options.sockets, options.threads) = (self.sockets, self.common.threads);
        (options.connections, options.repeats) = (self.connections, !self.common.no_retransmissions);
        (options.max_sessions, options.service) = (self.max_calls, self.common.service());
        Ok(options)
    }

    fn threads_are_too_many(&self) -> bool {
        self.common.threads.saturating_mul(self.sockets) > 65_535 * self.from.len().max(1)
    }
}

impl AnswerArguments {
    fn options(&self) -> Result<AnswerOptions, PlanError> {
        Ok(AnswerOptions {
            listen: self.listen,
            workload: workload(&self.workload)?,
            scenario: self.common.scenario(),
            calls: self.calls,
            time: self.time,
            threads: self.common.threads,
            repeats: !self.common.no_retransmissions,
            service: self.common.service(),
            seed: self.common.seed(),
        })
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// SIPp's options of several letters have one dash; here they get the second.
pub(crate) fn with_sipp_options(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.collect();
    if arguments.get(1).is_some_and(|command| command == "load") {
        for argument in &mut arguments {
            if let Some(name) = ["-sf", "-inf", "-rp", "-ap"].into_iter().find(|name| argument == *name) {
                *argument = format!("-{name}").into();
            }
        }
    }
    arguments
}

pub(crate) fn run(arguments: &LoadArguments) -> Result<(), Failure> {
    let ((plan, about), common) = match &arguments.command {
        LoadCommand::Run(run) => (run.options()?.plan()?, &run.common),
        LoadCommand::Answer(answer) => (answer.options()?.plan()?, &answer.common),
    };
    for (_, text) in about.declared.iter().filter(|(name, _)| name == WARNING) {
        eprintln!("strowger: warning: {text}");
    }
    let report = carry_out(plan, &about)?;
    conclude(&report, &about, common)
}

/// Runs a plan, with a line of progress on a terminal, until its end or a signal.
fn carry_out(plan: Plan, about: &About) -> Result<Report, Failure> {
    let is_answer = plan.caller.is_none();
    let run = Run::prepare(plan)?;
    if is_answer {
        for address in run.listening().iter().take(1) {
            eprintln!("answering at {address}, seed {}; Ctrl-C ends it", about.seed);
        }
    }
    let stopper = run.stopper();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::Output)?;
    let handle = signals.handle();
    let by_signal = stopper.clone();
    let listener = std::thread::spawn(move || signals.forever().for_each(|_| by_signal.stop()));
    let shows = std::io::stderr().is_terminal();
    let progress = shows.then(|| std::thread::spawn(move || show_progress(&stopper)));
    let report = run.go();
    handle.close();
    for thread in [Some(listener), progress].into_iter().flatten() {
        // They only look on; a panic there was printed.
        let _ = thread.join();
    }
    Ok(report?)
}

fn show_progress(stopper: &Stopper) {
    let begun = Instant::now();
    while stopper.phase().is_some() {
        std::thread::sleep(PROGRESS_EVERY);
        let progress = stopper.progress();
        let (began, answered) = (progress.caller.began, progress.callee.answered);
        // Standard error may be gone; the run goes on.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{:>4} s  offered {}  carried {}  lost {}  failed {}  going on {}  answered {}",
            begun.elapsed().as_secs(),
            began.offered,
            began.carried,
            began.lost,
            began.failed,
            began.unfinished,
            answered.sent
        );
    }
    let _ = write!(std::io::stderr(), "\r\x1b[K");
}

/// Prints the report and writes it, and says by the exit code whether it is to be believed.
fn conclude(report: &Report, about: &About, common: &CommonArguments) -> Result<(), Failure> {
    if let Some(file) = &common.json {
        let json = format!("{:#}\n", report.to_json(about));
        if file.as_os_str() == "-" {
            std::io::stdout().write_all(json.as_bytes()).map_err(Failure::Output)?;
        } else {
            std::fs::write(file, json)
                .map_err(|error| Failure::No(format!("{} cannot be written: {error}", file.display())))?;
        }
    }
    let is_piped = common.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if !is_piped {
        std::io::stdout().write_all(report.to_text(about).as_bytes()).map_err(Failure::Output)?;
    }
    if let Some(why) = &report.broken_off {
        return Err(Failure::No(why.clone()));
    }
    match report.measured().and_then(strowger_traffic::engine::PhaseReport::bottleneck) {
        Some(why) => Err(Failure::No(format!("the generator was the bottleneck: {why}"))),
        None => Ok(()),
    }
}
