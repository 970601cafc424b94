//! From what a user asks to a [`Plan`].

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Transport;

use crate::arrival::Arrivals;
use crate::driver::Connecting;
use crate::engine::{Callee, Load, Mix, Phase, Plan, PlanError, Side, Who};
use crate::population::Users;
use crate::report::About;
use crate::service::ServiceLaw;
use crate::sipp::{self, Role, Scenario};
use crate::workload::{WORKLOADS, Workload};

/// Registrations that are on their way at once, on each thread, before the run.
const REGISTERING_AT_ONCE: usize = 16;
/// Calls of a run that neither a number nor a time ends.
const DEFAULT_CALLS: u64 = 10_000;

/// A place to send to or to listen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// By what.
    pub transport: Transport,
    /// Where.
    pub address: SocketAddr,
}

impl Target {
    /// Reads `udp:127.0.0.1:5060`, `tcp:host:port`, `host` or `host:port`.
    ///
    /// # Errors
    /// What is wrong, and how it is written.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let (transport, rest) = match text.split_once(':') {
            Some((name, rest)) if matches!(name, "udp" | "tcp") => {
                (if name == "udp" { Transport::Udp } else { Transport::Tcp }, rest)
            }
            _ => (Transport::Udp, text),
        };
        let wrong = |what: &str| PlanError(format!("'{text}' {what}; a target is udp:HOST:PORT or tcp:HOST:PORT"));
        let mut found = match rest.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) if rest.parse::<IpAddr>().is_ok() || !rest.contains(':') => {
                let found = (rest, 5060).to_socket_addrs().map_err(|error| wrong(&format!("is not found: {error}")))?;
                found.collect()
            }
            Err(_) => rest.to_socket_addrs().map_err(|error| wrong(&format!("is not found: {error}")))?.collect(),
        };
        found.sort_by_key(SocketAddr::is_ipv6);
        let address = found.into_iter().next().ok_or_else(|| wrong("has no address"))?;
        Ok(Self { transport, address })
    }
}

/// Who answers the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answering {
    /// This process, whose callees register at the target first.
    #[default]
    Registered,
    /// Who is at the target.
    There,
    /// This process, to which calls go straight.
    Here,
}

/// What a user may ask of a run that calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where calls go.
    pub to: Option<Target>,
    /// What is done.
    pub workload: Workload,
    /// A scenario of SIPp's instead.
    pub scenario: Option<ScenarioFiles>,
    /// Who answers.
    pub answering: Answering,
    /// Sessions a second.
    pub rate: f64,
    /// The law of arrivals.
    pub arrivals: String,
    /// A closed loop of so many sessions instead.
    pub outstanding: Option<usize>,
    /// How many sessions.
    pub calls: Option<u64>,
    /// For how long.
    pub time: Option<Duration>,
    /// What is not counted at the beginning.
    pub warm_up: Duration,
    /// How long what has begun may take at the end; by default 64·T1 and the ring time.
    pub drain: Option<Duration>,
    /// Users on each side.
    pub users: u32,
    /// Their names' pattern.
    pub pattern: String,
    /// Their passwords' pattern.
    pub password: String,
    /// A file with users instead: the first half calls, the second half is called.
    pub users_file: Option<PathBuf>,
    /// Their domain.
    pub domain: Option<String>,
    /// Our addresses.
    pub from: Vec<IpAddr>,
    /// Sockets of the calling end on each thread.
    pub sockets: usize,
    /// Threads.
    pub threads: usize,
    /// How connections are used.
    pub connecting: Connecting,
    /// Shared connections on each thread.
    pub connections: usize,
    /// Whether messages are repeated.
    pub repeats: bool,
    /// Sessions at most.
    pub max_sessions: Option<usize>,
    /// The server that the callee emulates.
    pub service: Option<ServiceLaw>,
    /// What randomness begins with.
    pub seed: u64,
}

impl Options {
    /// A run of `workload` to `to`, with the rest as `--help` says.
    #[must_use]
    pub fn new(workload: Workload, to: Option<Target>, seed: u64) -> Self {
        Self {
            to,
            workload,
            scenario: None,
            answering: if to.is_some() { Answering::Registered } else { Answering::Here },
            rate: 10.0,
            arrivals: "poisson".to_owned(),
            outstanding: None,
            calls: None,
            time: None,
            warm_up: Duration::ZERO,
            drain: None,
            users: 1_000,
            pattern: "user%".to_owned(),
            password: "secret".to_owned(),
            users_file: None,
            domain: None,
            from: Vec::new(),
            sockets: 1,
            threads: 1,
            connecting: Connecting::default(),
            connections: 1,
            repeats: true,
            max_sessions: None,
            service: None,
            seed,
        }
    }

    /// The plan, and what its report says of it.
    ///
    /// # Errors
    /// What does not fit together, with the remedy.
    pub fn plan(&self) -> Result<(Plan, About), PlanError> {
        if let Some(files) = &self.scenario {
            return self.scenario_plan(files);
        }
        let users = self.population()?;
        let (callers, callees) = halves(&users, self.users, self.users_file.is_some());
        let mut plan = self.bare_plan(users)?;
        plan.caller = Some(Side { scripts: self.workload.callers.clone().into(), answers: Vec::new() });
        let answers_here = self.answering != Answering::There && !self.workload.callees.is_empty();
        if answers_here {
            let side = Side { scripts: self.workload.callees.clone().into(), answers: self.workload.answers.clone() };
            plan.callee = Some(Callee { side, listen: None, service: self.service.clone() });
        } else if self.service.is_some() {
            return Err(PlanError(
                "--service-time is the callee's: use it with load answer, or with --callee here".to_owned(),
            ));
        }
        let drain = self.drain.unwrap_or(plan.t1 * 64 + Duration::from_secs(3));
        if let (Answering::Registered, Some(script), true) = (self.answering, self.workload.registering, answers_here) {
            plan.phases.push(Phase {
                name: "registering".to_owned(),
                who: Who::Callee,
                mix: Mix::One(script),
                load: Load::Closed(REGISTERING_AT_ONCE * plan.threads),
                calls: Some(u64::from(callees.end - callees.start)),
                time: None,
                warm_up: Duration::ZERO,
                drain,
                callers: callees.clone(),
                callees: callees.clone(),
                is_measured: false,
            });
        }
        let (phase, law) = self.calling(self.workload.name.clone(), drain, (callers, callees))?;
        plan.phases.push(phase);
        let to = match plan.remote {
            Some(remote) => format!("{}:{remote}", plan.transport.as_str().to_ascii_lowercase()),
            None => "callees in this process".to_owned(),
        };
        let about =
            About { workload: self.workload.name.clone(), arrivals: law, seed: self.seed, to, declared: Vec::new() };
        Ok((plan, about))
    }

    /// Sockets, threads and limits, and nothing to do yet.
    fn bare_plan(&self, users: Users) -> Result<Plan, PlanError> {
        let mut plan = Plan::new(users, self.seed);
        plan.transport = self.to.map_or(Transport::Udp, |to| to.transport);
        plan.remote = self.to.filter(|_| self.answering != Answering::Here).map(|to| to.address);
        plan.addresses = if self.from.is_empty() { vec![self.own_address()?] } else { self.from.clone() };
        (plan.sockets, plan.threads) = (self.sockets.max(1), self.threads.max(1));
        (plan.connecting, plan.connections) = (self.connecting, self.connections.max(1));
        plan.repeats = self.repeats;
        plan.max_sessions = self.max_sessions.unwrap_or(plan.max_sessions * plan.threads).div_ceil(plan.threads);
        Ok(plan)
    }

    /// The phase that is measured, and its law of arrivals in words.
    fn calling(
        &self,
        name: String,
        drain: Duration,
        (callers, callees): (Range<u32>, Range<u32>),
    ) -> Result<(Phase, String), PlanError> {
        let (load, law) = match self.outstanding {
            Some(count) => (Load::Closed(count.max(1)), format!("{count} at once")),
            None => {
                let arrivals =
                    Arrivals::parse(&self.arrivals, self.rate).map_err(|error| PlanError(error.to_string()))?;
                let law = describe(&arrivals);
                (Load::Open(arrivals), law)
            }
        };
        let default_calls = self.time.is_none().then_some(DEFAULT_CALLS);
        let phase = Phase {
            name,
            who: Who::Caller,
            mix: self.workload.mix.clone(),
            load,
            calls: self.calls.or(default_calls),
            time: self.time,
            warm_up: self.warm_up,
            drain,
            callers,
            callees,
            is_measured: true,
        };
        Ok((phase, law))
    }

    /// A scenario that calls.
    fn scenario_plan(&self, files: &ScenarioFiles) -> Result<(Plan, About), PlanError> {
        let to = self.to.ok_or_else(|| PlanError("a scenario needs to know whom it calls; give --to".to_owned()))?;
        let (scenario, sipp) = files.read(to, self.seed)?;
        if scenario.role != Role::Caller {
            let file = files.file.display();
            return Err(PlanError(format!("{file} begins with receiving: it is for strowger load answer --sf {file}")));
        }
        let domain = self.domain.clone().unwrap_or_else(|| to.address.ip().to_string());
        let there = Self { answering: Answering::There, ..self.clone() };
        let mut plan = there.bare_plan(scenario.users(&domain, &sipp))?;
        plan.caller = Some(scenario.side());
        plan.t1 = scenario.t1.unwrap_or(plan.t1);
        let drain = self.drain.unwrap_or(plan.t1 * 64 + Duration::from_secs(3));
        let everybody = 0..plan.users.count();
        let (phase, arrivals) = self.calling(scenario.script.name.clone(), drain, (everybody.clone(), everybody))?;
        plan.phases.push(phase);
        let about = About {
            workload: files.file.display().to_string(),
            arrivals,
            seed: self.seed,
            to: format!("{}:{}", to.transport.as_str().to_ascii_lowercase(), to.address),
            declared: warnings(&scenario),
        };
        Ok((plan, about))
    }

    fn population(&self) -> Result<Users, PlanError> {
        let domain = match (&self.domain, self.to) {
            (Some(domain), _) => domain.clone(),
            (None, Some(to)) => to.address.ip().to_string(),
            (None, None) => "127.0.0.1".to_owned(),
        };
        match &self.users_file {
            Some(file) => Users::read(file, &domain).map_err(|error| PlanError(error.to_string())),
            None => {
                let count =
                    self.users.max(1).checked_mul(2).ok_or_else(|| PlanError("--users is too large".to_owned()))?;
                Ok(Users::generated(&self.pattern, &self.password, &domain, count))
            }
        }
    }

    /// The address by which this machine reaches the target.
    fn own_address(&self) -> Result<IpAddr, PlanError> {
        let Some(to) = self.to else { return Ok(IpAddr::from([127, 0, 0, 1])) };
        let any = if to.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(to.address)?;
            socket.local_addr()
        });
        socket.map(|local| local.ip()).map_err(|error| {
            PlanError(format!(
                "no way leads to {}: {error}; correct --to, or say by which address with --from",
                to.address
            ))
        })
    }
}

/// A scenario of SIPp's, and what SIPp's command line says of it.
#[derive(Clone, Debug)]
pub struct ScenarioFiles {
    /// The scenario (`-sf`).
    pub file: PathBuf,
    /// Injection files (`-inf`).
    pub tables: Vec<PathBuf>,
    /// `-s`.
    pub service: Option<String>,
    /// The password of `[authentication]` (`-ap`).
    pub password: Option<String>,
    /// The pauses that say no time (`-d`).
    pub pause: Duration,
}

impl ScenarioFiles {
    /// Reads them.
    fn read(&self, target: Target, seed: u64) -> Result<(Scenario, sipp::Options), PlanError> {
        let mut options = sipp::Options { pause: self.pause, seed, ..sipp::Options::default() };
        options.is_ipv6 = target.address.is_ipv6();
        options.service = self.service.clone().unwrap_or(options.service);
        options.auth_password = self.password.clone().unwrap_or(options.auth_password);
        let tables: Result<Vec<_>, _> = self.tables.iter().map(|file| sipp::Table::read(file).map(Arc::new)).collect();
        let scenario = tables.and_then(|tables| Scenario::read(&self.file, &tables, &options));
        Ok((scenario.map_err(|note| PlanError(note.to_string()))?, options))
    }
}

/// What a scenario asks for and does not get, as a report declares it.
fn warnings(scenario: &Scenario) -> Vec<(String, String)> {
    scenario.warnings.iter().map(|note| (WARNING.to_owned(), note.to_string())).collect()
}

/// What [`About::declared`] calls a warning.
pub const WARNING: &str = "warning";

/// Who calls and who is called.
fn halves(users: &Users, count: u32, is_file: bool) -> (Range<u32>, Range<u32>) {
    let half = if is_file { (users.count() / 2).max(1) } else { count.max(1) };
    let second = if users.count() > half { half..users.count() } else { 0..half };
    (0..half, second)
}

fn describe(arrivals: &Arrivals) -> String {
    match arrivals.rate() {
        Some(rate) => format!("{arrivals} at {rate:.1}/s"),
        None => arrivals.to_string(),
    }
}

/// What a user may ask of a run that only answers.
#[derive(Clone, Debug)]
pub struct AnswerOptions {
    /// Where it listens.
    pub listen: Target,
    /// Whose callee it is.
    pub workload: Workload,
    /// A scenario of SIPp's instead.
    pub scenario: Option<ScenarioFiles>,
    /// How many calls it answers before it ends.
    pub calls: Option<u64>,
    /// How long it answers.
    pub time: Option<Duration>,
    /// Threads.
    pub threads: usize,
    /// Whether messages are repeated.
    pub repeats: bool,
    /// The server that it emulates.
    pub service: Option<ServiceLaw>,
    /// What randomness begins with.
    pub seed: u64,
}

impl AnswerOptions {
    /// The plan, and what its report says of it.
    ///
    /// # Errors
    /// Where the workload has nobody who is called.
    pub fn plan(&self) -> Result<(Plan, About), PlanError> {
        let ip = self.listen.address.ip();
        let (side, users, t1, name, declared) = match &self.scenario {
            Some(files) => {
                let (scenario, sipp) = files.read(self.listen, self.seed)?;
                let file = files.file.display();
                if scenario.role != Role::Callee {
                    return Err(PlanError(format!(
                        "{file} begins with sending: it is for strowger load run --sf {file}"
                    )));
                }
                let users = scenario.users(&ip.to_string(), &sipp);
                (scenario.side(), users, scenario.t1, file.to_string(), warnings(&scenario))
            }
            None if self.workload.callees.is_empty() => {
                return Err(PlanError(format!("in the workload {} nobody is called", self.workload.name)));
            }
            None => {
                let side =
                    Side { scripts: self.workload.callees.clone().into(), answers: self.workload.answers.clone() };
                let users = Users::generated("user%", "", &ip.to_string(), 1);
                (side, users, None, self.workload.name.clone(), Vec::new())
            }
        };
        let mut plan = Plan::new(users, self.seed);
        plan.transport = self.listen.transport;
        plan.addresses = vec![ip];
        plan.t1 = t1.unwrap_or(plan.t1);
        (plan.threads, plan.repeats) = (self.threads.max(1), self.repeats);
        plan.callee = Some(Callee { side, listen: Some(self.listen.address), service: self.service.clone() });
        plan.phases.push(Phase {
            name: format!("answering {name}"),
            who: Who::Callee,
            mix: Mix::One(0),
            load: Load::None,
            calls: self.calls,
            time: self.time,
            warm_up: Duration::ZERO,
            drain: plan.t1 * 64,
            callers: 0..1,
            callees: 0..1,
            is_measured: true,
        });
        let about = About {
            workload: name,
            arrivals: "as they come".to_owned(),
            seed: self.seed,
            to: format!("{}:{}", self.listen.transport.as_str().to_ascii_lowercase(), self.listen.address),
            declared,
        };
        Ok((plan, about))
    }
}

/// A workload by its name.
///
/// # Errors
/// Which there are.
pub fn workload(name: &str) -> Result<Workload, PlanError> {
    let found = Workload::by_name(name).map_err(|error| PlanError(error.to_string()))?;
    found.ok_or_else(|| PlanError(format!("there is no workload '{name}'; there are {}", WORKLOADS.join(", "))))
}
