//! What all commands that make traffic are told: whom they call, as whom, and how.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strowger_traffic::driver::ConnectionLifetime;
use strowger_traffic::engine::{PlanError, entropy};
use strowger_traffic::law::parse_time;
use strowger_traffic::options::{CalleeLocation, Options, ScenarioFiles, Target, workload_with};
use strowger_traffic::service::{AppliesTo, ServiceLaw, ServiceTimes};
use strowger_traffic::workload::Workload;

/// What is done, and to whom; all but how much of it.
#[derive(Debug, Args)]
pub(super) struct TrafficArguments {
    /// Where calls go: udp:HOST:PORT or tcp:HOST:PORT [default: straight to callees in this process]
    #[arg(long, value_name = "TARGET", value_parser = target)]
    to: Option<Target>,
    /// As --to
    #[arg(value_name = "TARGET", value_parser = target, conflicts_with = "to")]
    target: Option<Target>,
    /// What is done: a workload, or several by weight as proxy-200:70,registration:30; load workloads lists them
    #[arg(long, default_value = "proxy-200", value_name = "WORKLOADS")]
    workload: String,
    /// Who answers [default: registered where --to is given, else here]
    #[arg(long, value_enum)]
    callee: Option<CalleeArgument>,
    /// poisson, uniform, mmpp(…), ramp(…), file(PATH,unit=us), trace(CAPTURE,method=INVITE), or a law of the gaps as gamma(shape=0.5)
    #[arg(long, default_value = "poisson", value_name = "LAW")]
    arrivals: String,
    /// How long the last calls may take [default: 35s]
    #[arg(long, value_parser = time, value_name = "TIME")]
    drain: Option<Duration>,
    /// Users on each side; of the workload users, all [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) users: Option<u32>,
    /// Registrations a second before the run [default: as fast as they are answered]
    #[arg(long, value_name = "RATE", value_parser = above_zero)]
    register_rate: Option<f64>,
    /// Registrations at once before the run, on each thread, where there is no rate
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one, conflicts_with = "register_rate")]
    register_at_once: usize,
    /// Their names: % is the number, %6 one of six digits
    #[arg(long, default_value = "user%", value_name = "PATTERN")]
    user_pattern: String,
    /// Their password; % is the number
    #[arg(long, default_value = "secret", value_name = "PATTERN")]
    password: String,
    /// A table of users instead: name,password or name@domain,password in each line; the first half calls, the second is called
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,
    /// The domain of the users [default: the target's address, with its port where that is not 5060]
    #[arg(long)]
    domain: Option<String>,
    /// Addresses to send from; may be given several times [default: the one that leads to the target]
    #[arg(long, value_name = "ADDRESS")]
    from: Vec<IpAddr>,
    /// Ports of the callers, on each thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    sockets: usize,
    /// How connections are used, over TCP
    #[arg(long, value_enum, default_value_t = ConnectArgument::Persistent)]
    connect: ConnectArgument,
    /// Shared connections, on each thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    connections: usize,
    /// Who is refused with 503 and Retry-After tries again when that time is over, so many times at most; at 0 it gives up at once
    #[arg(long, default_value_t = 0, value_name = "N")]
    call_retries: u8,
    /// Calls at once at most; more are refused and counted
    #[arg(short = 'l', long, value_name = "N")]
    max_calls: Option<usize>,
    #[command(flatten)]
    pub(super) end: EndArguments,
}

/// What both ends are told.
#[derive(Debug, Args)]
pub(super) struct EndArguments {
    /// A parameter of the workload, as hold='exp(mean=3s)'; of one in a mix, as proxy-200.hold=…; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, conflicts_with = "sf")]
    set: Vec<(String, String)>,
    /// Within which time the phones of the workload avalanche come on, as 1s, or a law of when each does; as --set spread=…
    #[arg(long, value_name = "TIME", conflicts_with = "sf")]
    spread: Option<String>,
    /// Shares of calls that go wrong on purpose, of lost-ack, late-cancel, no-answer, garbage and no-bye: lost-ack=1%,no-bye=0.5%
    #[arg(long, value_name = "SHARES", conflicts_with = "sf")]
    faults: Option<String>,
    /// Lets the time of the workload's model run so many times faster; SIP's own timers are left alone
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = above_zero)]
    speed: f64,
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
    /// Threads; several that answer at one address share its calls
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    pub(super) threads: usize,
    /// Threads wait awake: each takes a processor of its own, and what its wake-ups take is in no time that is told
    #[arg(long)]
    pub(super) awake: bool,
    /// Over UDP, messages of one length that leave at once for one address leave as one packet, which the kernel cuts apart
    /// (UDP_SEGMENT): spares this machine's processor at high rates, but whatever looks at packets here sees the one, and messages
    /// of one call may overtake those of others
    #[arg(long)]
    pub(super) segmentation: bool,
    /// Sends nothing again, over UDP
    #[arg(long)]
    no_retransmissions: bool,
    /// The callee takes so long for each new request, first come first served: 1ms, exp(mean=1ms), lognormal(…); for requests of a
    /// method, INVITE=2ms,BYE=1ms
    #[arg(long, value_name = "LAW", value_parser = ServiceTimes::parse)]
    service_time: Option<ServiceTimes>,
    /// So many at once
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one, requires = "service_time")]
    servers: usize,
    /// So many wait at most; more are dropped and counted
    #[arg(long, requires = "service_time", value_name = "N")]
    queue: Option<usize>,
    /// Which messages need the service time, of those that it has no method of
    #[arg(long, value_enum, default_value_t = AppliesArgument::New, requires = "service_time")]
    service_for: AppliesArgument,
    /// What randomness begins with [default: drawn, and always printed]
    #[arg(long)]
    seed: Option<u64>,
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
pub(super) enum ConnectArgument {
    /// One for each transaction
    Transaction,
    /// One for each call
    Dialog,
    /// Shared ones, opened before
    Persistent,
    /// Shared ones, opened by the first calls
    PersistentWithOpen,
}

impl From<ConnectArgument> for ConnectionLifetime {
    fn from(argument: ConnectArgument) -> Self {
        match argument {
            ConnectArgument::Transaction => Self::Transaction,
            ConnectArgument::Dialog => Self::Dialog,
            ConnectArgument::Persistent => Self::Persistent,
            ConnectArgument::PersistentWithOpen => Self::PersistentWithOpen,
        }
    }
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

pub(super) fn target(text: &str) -> Result<Target, PlanError> {
    Target::parse(text)
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| format!("'{text}' is no time; write it as 500ms, 60s, 5m or 2h"))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' has no value; write it as NAME=VALUE"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// A number that is at least 1.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("'{text}' is no whole number above 0"))
}

/// Threads and sockets that need no more ports than there are.
pub(super) fn within_ports(threads: usize, sockets: usize, from: &[IpAddr]) -> Result<(), PlanError> {
    if threads.saturating_mul(sockets) > 65_535 * from.len().max(1) {
        return Err(PlanError("--threads and --sockets together are more than 65,535 ports; use fewer".to_owned()));
    }
    Ok(())
}

pub(super) fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("'{text}' is no number above 0"))
}

impl EndArguments {
    /// The values of parameters, the faults among them.
    fn all_set(&self) -> Vec<(String, String)> {
        let faults = self.faults.iter().map(|faults| ("faults".to_owned(), faults.clone()));
        let spread = self.spread.iter().map(|spread| ("spread".to_owned(), spread.clone()));
        self.set.iter().cloned().chain(faults).chain(spread).collect()
    }

    /// Those of them that say that they are of this workload.
    pub(super) fn set_for(&self, workload: &str) -> Vec<(String, String)> {
        let own = |(name, value): (String, String)| {
            let (of, name) = name.split_once('.')?;
            (of == workload).then(|| (name.to_owned(), value))
        };
        self.all_set().into_iter().filter_map(own).collect()
    }

    /// What `--workload` names, with its parameters.
    pub(super) fn workload(&self, name: &str) -> Result<Workload, PlanError> {
        workload_with(name, &self.all_set(), self.speed)
    }

    pub(super) fn service(&self) -> Option<ServiceLaw> {
        let applies = match self.service_for {
            AppliesArgument::New => AppliesTo::New,
            AppliesArgument::Requests => AppliesTo::Requests,
            AppliesArgument::All => AppliesTo::All,
        };
        let queue = self.queue.unwrap_or(usize::MAX);
        let servers = self.servers.max(1);
        self.service_time.clone().map(|times| ServiceLaw { times, servers, queue, applies })
    }

    pub(super) fn scenario(&self) -> Option<ScenarioFiles> {
        self.sf.clone().map(|file| ScenarioFiles {
            file,
            tables: self.inf.clone(),
            service: self.service.clone(),
            password: self.ap.clone(),
            pause: Duration::from_millis(self.pause.unwrap_or(0)),
        })
    }

    pub(super) const fn repeats(&self) -> bool {
        !self.no_retransmissions
    }

    pub(super) fn seed(&self) -> u64 {
        // Short enough to be typed again.
        self.seed.unwrap_or_else(|| entropy() % 1_000_000)
    }
}

impl TrafficArguments {
    /// The options, with the rate and the length that [`Options::new`] gives.
    pub(super) fn options(&self) -> Result<Options, PlanError> {
        self.options_of(&self.workload)
    }

    /// As [`options`](Self::options), of another workload.
    pub(super) fn options_of(&self, workload: &str) -> Result<Options, PlanError> {
        let mut options = Options::new(self.end.workload(workload)?, self.to.or(self.target), self.end.seed());
        options.scenario = self.end.scenario();
        if let Some(callee) = self.callee {
            options.callee_location = match callee {
                CalleeArgument::Registered => CalleeLocation::Registered,
                CalleeArgument::There => CalleeLocation::Remote,
                CalleeArgument::Here => CalleeLocation::Local,
            };
        }
        if options.to.is_none() && options.callee_location != CalleeLocation::Local {
            return Err(PlanError("--callee registered and --callee there need --to".to_owned()));
        }
        within_ports(self.end.threads, self.sockets, &self.from)?;
        options.connection_lifetime = self.connect.into();
        (options.arrivals, options.drain) = (self.arrivals.clone(), self.drain);
        (options.users, options.pattern) = (self.users.unwrap_or(options.users), self.user_pattern.clone());
        (options.password, options.users_file) = (self.password.clone(), self.users_file.clone());
        (options.domain, options.from) = (self.domain.clone(), self.from.clone());
        (options.register_rate, options.registering_at_once) = (self.register_rate, self.register_at_once);
        (options.sockets, options.threads) = (self.sockets, self.end.threads);
        (options.is_busy_polling, options.has_segmentation) = (self.end.awake, self.end.segmentation);
        (options.connections, options.retransmits) = (self.connections, self.end.repeats());
        (options.max_sessions, options.service) = (self.max_calls, self.end.service());
        options.retries = self.call_retries;
        Ok(options)
    }
}
