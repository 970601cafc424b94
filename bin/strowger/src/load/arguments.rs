//! Arguments common to all commands that generate traffic: callees, callers and behaviour.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strowger_traffic::driver::ConnectionLifetime;
use strowger_traffic::engine::{PlanError, entropy};
use strowger_traffic::law::parse_time;
use strowger_traffic::options::{CalleeLocation, Options, ScenarioFiles, SecureOptions, Target, workload_with};
use strowger_traffic::service::{AppliesTo, ServiceLaw, ServiceTimes};
use strowger_traffic::workload::Workload;

/// Kind and destination of the traffic, without its amount.
#[derive(Debug, Args)]
pub(super) struct TrafficArguments {
    /// Destination of calls: udp:HOST:PORT, or the same with tcp, tls, ws or wss [default: directly to callees in this
    /// process]
    #[arg(long, value_name = "TARGET", value_parser = target)]
    to: Option<Target>,
    /// Same as --to
    #[arg(value_name = "TARGET", value_parser = target, conflicts_with = "to")]
    target: Option<Target>,
    /// Workload, or a weighted mix such as proxy-200:70,registration:30; load workloads lists them
    #[arg(long, default_value = "proxy-200", value_name = "WORKLOADS")]
    workload: String,
    /// Who answers calls [default: registered if --to is given, otherwise local]
    #[arg(long, value_enum)]
    callee: Option<CalleeArgument>,
    /// Arrival process: poisson, uniform, mmpp(…), ramp(…), file(PATH,unit=us), trace(CAPTURE,method=INVITE), or a
    /// distribution of the gaps such as gamma(shape=0.5)
    #[arg(long, default_value = "poisson", value_name = "LAW")]
    arrivals: String,
    /// Maximum time for the last calls to end [default: 35s]
    #[arg(long, value_parser = time, value_name = "TIME")]
    drain: Option<Duration>,
    /// Number of users on each side; for the workload users, the total [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) users: Option<u32>,
    /// Registrations per second before the run [default: as fast as they are answered]
    #[arg(long, value_name = "RATE", value_parser = above_zero)]
    register_rate: Option<f64>,
    /// Concurrent registrations per thread before the run, without a rate
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one, conflicts_with = "register_rate")]
    register_at_once: usize,
    /// Pattern of the user names: % is the number, %6 a number of six digits
    #[arg(long, default_value = "user%", value_name = "PATTERN")]
    user_pattern: String,
    /// Password of the users; % is the number
    #[arg(long, default_value = "secret", value_name = "PATTERN")]
    password: String,
    /// Table of users instead: name,password or name@domain,password per line; the first half calls, the second half
    /// is called
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,
    /// Domain of the users [default: the target's address, with its port unless it is 5060]
    #[arg(long)]
    domain: Option<String>,
    /// Source address; may be repeated [default: the one of the route to the target]
    #[arg(long, value_name = "ADDRESS")]
    from: Vec<IpAddr>,
    /// Number of callers' ports per thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    sockets: usize,
    /// Use of connections. Callees over TLS and WebSockets keep those over which they register
    #[arg(long, value_enum, default_value_t = ConnectArgument::Persistent)]
    connect: ConnectArgument,
    /// Number of shared connections per thread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    connections: usize,
    /// Maximum number of retries of a call refused with 503 and Retry-After, each after that time; 0: the call fails
    /// at once
    #[arg(long, default_value_t = 0, value_name = "N")]
    call_retries: u8,
    /// Maximum number of concurrent calls; further ones are refused and counted
    #[arg(short = 'l', long, value_name = "N")]
    max_calls: Option<usize>,
    #[command(flatten)]
    pub(super) end: EndArguments,
}

/// Settings common to both ends.
#[derive(Debug, Args)]
pub(super) struct EndArguments {
    /// A parameter of the workload, such as hold='exp(mean=3s)', or in a mix proxy-200.hold=…; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, conflicts_with = "sf")]
    set: Vec<(String, String)>,
    /// Time within which the phones of the workload avalanche start, such as 1s, or the distribution of each phone's
    /// start; same as --set spread=…
    #[arg(long, value_name = "TIME", conflicts_with = "sf")]
    spread: Option<String>,
    /// Shares of deliberately faulty calls, of lost-ack, late-cancel, no-answer, garbage and no-bye:
    /// lost-ack=1%,no-bye=0.5%
    #[arg(long, value_name = "SHARES", conflicts_with = "sf")]
    faults: Option<String>,
    /// Factor by which time in the workload's model passes faster; SIP timers are unchanged
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = above_zero)]
    speed: f64,
    /// SIPp scenario instead of a workload (-sf)
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    sf: Option<PathBuf>,
    /// Injection files of the scenario (-inf)
    #[arg(long, value_name = "FILE", requires = "sf")]
    inf: Vec<PathBuf>,
    /// Value of [service] in the scenario
    #[arg(short, long, requires = "sf")]
    service: Option<String>,
    /// Duration in ms of the scenario's pauses without a time
    #[arg(short = 'd', long, requires = "sf", value_name = "MS")]
    pause: Option<u64>,
    /// Password for [authentication] in the scenario (-ap)
    #[arg(long, requires = "sf", value_name = "SECRET")]
    ap: Option<String>,
    /// Number of threads; threads that answer at the same address share its calls
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one)]
    pub(super) threads: usize,
    /// Threads busy-poll: each occupies a core, and no reported time includes wake-ups
    #[arg(long, alias = "awake")]
    pub(super) busy_poll: bool,
    /// Over UDP, messages of equal length sent at once to one address leave as one packet that the kernel splits
    /// (UDP_SEGMENT). This saves CPU time at high rates, but a packet capture on this machine shows the joined
    /// packet, and messages of different calls may overtake each other
    #[arg(long)]
    pub(super) segmentation: bool,
    /// Disables retransmissions over UDP
    #[arg(long)]
    no_retransmissions: bool,
    /// Service time of the callee for each new request, first come first served: 1ms, exp(mean=1ms), lognormal(…); or
    /// by method, INVITE=2ms,BYE=1ms
    #[arg(long, value_name = "LAW", value_parser = ServiceTimes::parse)]
    service_time: Option<ServiceTimes>,
    /// Number of parallel servers
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least_one, requires = "service_time")]
    servers: usize,
    /// Maximum queue length; further requests are dropped and counted
    #[arg(long, requires = "service_time", value_name = "N")]
    queue: Option<usize>,
    /// Messages that need the service time, unless it is given by method
    #[arg(long, value_enum, default_value_t = AppliesArgument::New, requires = "service_time")]
    service_for: AppliesArgument,
    #[command(flatten)]
    secure: SecureArguments,
    /// Random seed [default: drawn, and always printed]
    #[arg(long)]
    seed: Option<u64>,
}

/// Certificates and sessions of TLS.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct SecureArguments {
    /// Authorities of the server's certificate, in PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Own certificate with its chain, in PEM: for callees that are called directly, and for servers that ask for one
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of --certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Accepts any certificate of the server; the report says so
    #[arg(long, conflicts_with = "ca")]
    no_verify: bool,
    /// Whether connections continue earlier TLS sessions
    #[arg(long, value_enum, default_value_t = ResumptionArgument::On)]
    resumption: ResumptionArgument,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ResumptionArgument {
    /// As phones do that come back
    On,
    /// Each handshake is a full one
    Off,
}

impl SecureArguments {
    pub(super) fn options(&self) -> SecureOptions {
        SecureOptions {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            is_unverified: self.no_verify,
            has_no_resumption: self.resumption == ResumptionArgument::Off,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CalleeArgument {
    /// This process; its callees register at the target first
    Registered,
    /// User agents at the target
    #[value(alias = "there")]
    Remote,
    /// This process; calls go directly to it
    #[value(alias = "here")]
    Local,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ConnectArgument {
    /// One per transaction
    Transaction,
    /// One per call
    Dialog,
    /// Shared ones, opened in advance
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
    /// Requests outside a dialog
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
    parse_time(text).ok_or_else(|| format!("'{text}' is not a time; write it as 500ms, 60s, 5m or 2h"))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' has no value; write NAME=VALUE"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Parses a number of at least 1.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("'{text}' is not a positive integer"))
}

/// Checks that threads and sockets do not need more ports than exist.
pub(super) fn within_ports(threads: usize, sockets: usize, from: &[IpAddr]) -> Result<(), PlanError> {
    if threads.saturating_mul(sockets) > 65_535 * from.len().max(1) {
        return Err(PlanError("--threads times --sockets is more than 65,535 ports; use fewer".to_owned()));
    }
    Ok(())
}

pub(super) fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("'{text}' is not a number above 0"))
}

impl EndArguments {
    /// Returns all parameter values, including the faults.
    fn all_set(&self) -> Vec<(String, String)> {
        let faults = self.faults.iter().map(|faults| ("faults".to_owned(), faults.clone()));
        let spread = self.spread.iter().map(|spread| ("spread".to_owned(), spread.clone()));
        self.set.iter().cloned().chain(faults).chain(spread).collect()
    }

    /// Returns the values that name this workload.
    pub(super) fn set_for(&self, workload: &str) -> Vec<(String, String)> {
        let own = |(name, value): (String, String)| {
            let (of, name) = name.split_once('.')?;
            (of == workload).then(|| (name.to_owned(), value))
        };
        self.all_set().into_iter().filter_map(own).collect()
    }

    /// Returns the workload for `--workload`, with its parameters.
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

    pub(super) fn secure(&self) -> SecureOptions {
        self.secure.options()
    }

    pub(super) const fn repeats(&self) -> bool {
        !self.no_retransmissions
    }

    pub(super) fn seed(&self) -> u64 {
        // Short enough to type.
        self.seed.unwrap_or_else(|| entropy() % 1_000_000)
    }
}

impl TrafficArguments {
    /// Returns the options, with the rate and length of [`Options::new`].
    pub(super) fn options(&self) -> Result<Options, PlanError> {
        self.options_of(&self.workload)
    }

    /// Like [`options`](Self::options), for another workload.
    pub(super) fn options_of(&self, workload: &str) -> Result<Options, PlanError> {
        let mut options = Options::new(
            self.end.workload(workload)?,
            self.to.clone().or_else(|| self.target.clone()),
            self.end.seed(),
        );
        options.scenario = self.end.scenario();
        if let Some(callee) = self.callee {
            options.callee_location = match callee {
                CalleeArgument::Registered => CalleeLocation::Registered,
                CalleeArgument::Remote => CalleeLocation::Remote,
                CalleeArgument::Local => CalleeLocation::Local,
            };
        }
        if options.to.is_none() && options.callee_location != CalleeLocation::Local {
            return Err(PlanError("--callee registered and --callee remote need --to".to_owned()));
        }
        within_ports(self.end.threads, self.sockets, &self.from)?;
        options.connection_lifetime = self.connect.into();
        (options.arrivals, options.drain) = (self.arrivals.clone(), self.drain);
        (options.users, options.pattern) = (self.users.unwrap_or(options.users), self.user_pattern.clone());
        (options.password, options.users_file) = (self.password.clone(), self.users_file.clone());
        (options.domain, options.from) = (self.domain.clone(), self.from.clone());
        (options.register_rate, options.registering_at_once) = (self.register_rate, self.register_at_once);
        (options.sockets, options.threads) = (self.sockets, self.end.threads);
        (options.is_busy_polling, options.has_segmentation) = (self.end.busy_poll, self.end.segmentation);
        (options.connections, options.retransmits) = (self.connections, self.end.repeats());
        (options.max_sessions, options.service) = (self.max_calls, self.end.service());
        (options.retries, options.secure) = (self.call_retries, self.end.secure());
        Ok(options)
    }
}
