//! Construction of a [`Plan`] from the options of a run.

mod secure;
mod transport;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::arrival::Arrivals;
use crate::driver::ConnectionLifetime;
use crate::engine::{
    Activity, Avalanche, CallRole, Callee, GapFrom, Load, Mix, Phase, Plan, PlanError, SideScripts, longest,
};
use crate::law::faster;
use crate::population::Users;
use crate::report::RunDescription;
use crate::script::{Script, Template};
use crate::service::ServiceLaw;
use crate::sipp::{self, Role, Scenario};
use crate::workload::{Workload, unregistering};
pub use secure::SecureOptions;
pub use transport::Target;
pub(crate) use transport::{TransportOptions, UNSPECIFIED_ADDRESS};

/// Default number of concurrent registrations per thread before the run.
pub(crate) const REGISTERING_AT_ONCE: usize = 16;
/// Margin of a registration's lifetime over the refresh interval, as a share of the latter: 15 minutes for 10.
const SPARE_OF_REFRESH: f64 = 0.5;
/// Default number of calls if neither a number nor a time is given.
const DEFAULT_CALLS: u64 = 10_000;

/// Where the callees are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CalleeLocation {
    /// In this process; they register at the target first.
    #[default]
    Registered,
    /// At the target.
    Remote,
    /// In this process; calls go to it directly.
    Local,
}

/// Options of a run that makes calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// The destination of calls.
    pub to: Option<Target>,
    /// The workload.
    pub workload: Workload,
    /// A SIPp scenario instead of the workload.
    pub scenario: Option<ScenarioFiles>,
    /// Where the callees are.
    pub callee_location: CalleeLocation,
    /// Arrival rate, in sessions per second.
    pub rate: f64,
    /// The arrival process.
    pub arrivals: String,
    /// Number of concurrent sessions of a closed loop, instead of the arrival process.
    pub outstanding: Option<usize>,
    /// Number of sessions.
    pub calls: Option<u64>,
    /// Duration; for a model, in the model's time and by default the model's.
    pub time: Option<Duration>,
    /// The beginning that is not counted; for a model, in its time.
    pub warm_up: Duration,
    /// How long arrivals continue, uncounted, after the time: see [`Plan::cool_down`].
    pub cool_down: Duration,
    /// Number of retries after a 503 with Retry-After: see [`Plan::retries`].
    pub retries: u8,
    /// Time for sessions in progress to end. The default is 64·T1 plus the ring, talk and wait times of both ends by
    /// the laws of their scripts. For a model of users, whose calls end at any time, it is 64·T1.
    pub drain: Option<Duration>,
    /// Number of users on each side; for a model of users, of all users.
    pub users: u32,
    /// Registrations per second before the run. By default they are made as fast as they are answered, several at
    /// once.
    pub register_rate: Option<f64>,
    /// Number of concurrent registrations per thread before the run, if no rate is given.
    pub registering_at_once: usize,
    /// Pattern of user names.
    pub pattern: String,
    /// Pattern of passwords.
    pub password: String,
    /// A file of users instead: the first half are callers, the second half callees.
    pub users_file: Option<PathBuf>,
    /// The users' domain.
    pub domain: Option<String>,
    /// Local addresses.
    pub from: Vec<IpAddr>,
    /// Sockets of the calling end per thread.
    pub sockets: usize,
    /// Number of threads.
    pub threads: usize,
    /// Whether they wait awake while it is measured: see [`Phase::is_busy_polling`].
    pub is_busy_polling: bool,
    /// Whether messages that leave at once are joined: see [`Plan::has_segmentation`].
    pub has_segmentation: bool,
    /// Lifetime of connections.
    pub connection_lifetime: ConnectionLifetime,
    /// Shared connections per thread.
    pub connections: usize,
    /// Certificates and sessions of TLS.
    pub secure: SecureOptions,
    /// Whether messages are retransmitted.
    pub retransmits: bool,
    /// Maximum number of sessions.
    pub max_sessions: Option<usize>,
    /// The server that the callee emulates.
    pub service: Option<ServiceLaw>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Options {
    /// Creates options for a run of `workload` against `to`, with the defaults that `--help` shows.
    #[must_use]
    pub fn new(workload: Workload, to: Option<Target>, seed: u64) -> Self {
        let warm_up = workload.warm_up;
        let callee_location = if to.is_some() { CalleeLocation::Registered } else { CalleeLocation::Local };
        Self {
            to,
            workload,
            scenario: None,
            callee_location,
            rate: 10.0,
            arrivals: "poisson".to_owned(),
            outstanding: None,
            calls: None,
            time: None,
            warm_up,
            cool_down: Duration::ZERO,
            retries: 0,
            drain: None,
            users: 1_000,
            register_rate: None,
            registering_at_once: REGISTERING_AT_ONCE,
            pattern: "user%".to_owned(),
            password: "secret".to_owned(),
            users_file: None,
            domain: None,
            from: Vec::new(),
            sockets: 1,
            threads: 1,
            is_busy_polling: false,
            has_segmentation: false,
            connection_lifetime: ConnectionLifetime::default(),
            connections: 1,
            secure: SecureOptions::default(),
            retransmits: true,
            max_sessions: None,
            service: None,
            seed,
        }
    }

    /// Returns the plan, and the description of the run for its report.
    ///
    /// # Errors
    /// If options conflict; says what to do.
    pub fn plan(&self) -> Result<(Plan, RunDescription), PlanError> {
        if let Some(files) = &self.scenario {
            return self.scenario_plan(files);
        }
        let users = self.population()?;
        let (callers, callees) = match self.is_of_users() {
            true => (0..users.count(), 0..users.count()),
            false if self.users_file.is_some() && !self.calls_somebody() => (0..users.count(), 0..users.count()),
            false => halves(&users, self.users, self.users_file.is_some()),
        };
        if !self.cool_down.is_zero() && (self.time.is_none() || self.is_of_users()) {
            return Err(PlanError("--cool-down needs --time and a workload with an arrival rate".to_owned()));
        }
        let mut plan = self.bare_plan(users)?;
        plan.caller = Some(SideScripts { scripts: self.workload.callers.clone().into(), answers: Vec::new() });
        let answers_here = self.callee_location != CalleeLocation::Remote && !self.workload.callees.is_empty();
        if answers_here {
            let mut scripts = self.workload.callees.clone();
            // The last script removes the registrations.
            scripts.push(unregistering().map_err(|error| PlanError(error.to_string()))?);
            let side = SideScripts { scripts: scripts.into(), answers: self.workload.answers.clone() };
            let listen = self.workload.listen.into_iter().collect();
            plan.callee = Some(Callee { side, listen, service: self.service.clone() });
        } else if self.service.is_some() {
            return Err(PlanError(
                "--service-time is the callee's: use it with load answer, or with --callee local".to_owned(),
            ));
        }
        let sides = [&self.workload.callers, &self.workload.callees];
        let drain = self.drain_of(&plan, if self.is_of_users() { [&[], &[]] } else { sides.map(Vec::as_slice) });
        let registers = self.callee_location == CalleeLocation::Registered && answers_here;
        if let (Some(script), true) = (self.workload.registering, registers) {
            plan.phases.push(self.registering("registering", script, drain, &callees, plan.threads));
        }
        let (mut phase, mut law) = self.calling(self.workload.name.clone(), drain, (callers, callees.clone()))?;
        if self.is_of_users() {
            law = self.of_users(&mut phase, registers)?;
        }
        if let Some(how) = &self.workload.avalanche {
            law = self.of_phones(&mut phase, how)?;
        }
        plan.phases.push(phase);
        if self.workload.registering.is_some() && registers {
            let script = u16::try_from(self.workload.callees.len()).unwrap_or(u16::MAX);
            plan.phases.push(self.registering("unregistering", script, drain, &callees, plan.threads));
        }
        let to = match plan.remote {
            Some(remote) => format!("{}:{remote}", plan.transport.as_str().to_ascii_lowercase()),
            None => "callees in this process".to_owned(),
        };
        let mut declared = self.workload.declared.clone();
        if !registers && self.workload.activities.iter().any(|activity| activity.who == CallRole::Callee) {
            let text = "none: callees are elsewhere, or there is no server in between";
            declared.push(("registrations".to_owned(), text.to_owned()));
        }
        declared.extend(self.slow_registering(&plan));
        declared.extend(self.secure.declared(&plan));
        let about =
            RunDescription { workload: self.workload.name.clone(), arrivals: law, seed: self.seed, to, declared };
        Ok((plan, about))
    }

    /// Returns a warning if registering takes so long that the first registrations expire before they are refreshed:
    /// users begin to refresh only when all are registered.
    fn slow_registering(&self, plan: &Plan) -> Option<(String, String)> {
        let phase = plan.phases.iter().find(|phase| !phase.is_measured)?;
        let refreshes = |activity: &&Activity| activity.who == CallRole::Callee && activity.gap_from == GapFrom::Begin;
        let refresh = self.workload.activities.iter().find(refreshes)?.gap.mean()?;
        let (Load::Open(arrivals), Some(count)) = (&phase.load, phase.calls) else { return None };
        #[expect(clippy::cast_precision_loss, reason = "a number of users")]
        let takes = count as f64 / arrivals.rate()?;
        let may_take = refresh * SPARE_OF_REFRESH;
        (takes > may_take).then(|| {
            let text = format!(
                "registering {count} users takes {takes:.0} s, but must take at most {may_take:.0} s: the first registrations expire before they \
                 are refreshed; raise --register-rate, or use fewer users"
            );
            (WARNING.to_owned(), text)
        })
    }

    /// Returns whether the load consists of recurring activities of users, not of arrivals at a rate.
    const fn is_of_users(&self) -> bool {
        !self.workload.activities.is_empty()
    }

    /// Returns whether the sessions have a user at the other end. Registrations do not.
    fn calls_somebody(&self) -> bool {
        let names_callee = |script: &Script| script.templates.iter().any(Template::names_callee);
        !self.workload.callees.is_empty() || self.workload.callers.iter().any(names_callee)
    }

    /// Returns how long sessions may continue after the last one has begun: retransmissions to the end, and the
    /// pauses of these scripts.
    fn drain_of(&self, plan: &Plan, sides: [&[Script]; 2]) -> Duration {
        let leisure = || sides.iter().fold(Duration::ZERO, |sum, scripts| sum.saturating_add(longest(scripts)));
        self.drain.unwrap_or_else(|| (plan.t1 * 64 + Duration::from_secs(3)).saturating_add(leisure()))
    }

    /// Returns the phase before the run in which callees register, or the one after it in which they unregister.
    fn registering(&self, name: &str, script: u16, drain: Duration, users: &Range<u32>, threads: usize) -> Phase {
        let load = match self.register_rate {
            Some(rate) => Load::Open(Arrivals::uniform(rate)),
            None => Load::Closed(self.registering_at_once.max(1) * threads),
        };
        Phase {
            name: name.to_owned(),
            role: CallRole::Callee,
            mix: Mix::One(script),
            load,
            calls: Some(u64::from(users.end - users.start)),
            time: None,
            warm_up: Duration::ZERO,
            drain,
            callers: users.clone(),
            callees: users.clone(),
            is_measured: false,
            is_busy_polling: false,
        }
    }

    /// Turns the phase into one of users, and returns its description. Only callees in this process can register.
    fn of_users(&self, phase: &mut Phase, registers: bool) -> Result<String, PlanError> {
        if self.calls.is_some() || self.outstanding.is_some() {
            return Err(PlanError(format!(
                "the workload {} runs for a time (--time) with so many users (--users), not for a number of calls",
                self.workload.name
            )));
        }
        let done = |activity: &&Activity| registers || activity.who == CallRole::Caller;
        let habits: Vec<_> = self.workload.activities.iter().filter(done).cloned().collect();
        let text: Vec<_> = habits.iter().map(|activity| activity.gap.to_string()).collect();
        let text = format!("of {} users, each after {}", phase.callers.end - phase.callers.start, text.join(" and "));
        phase.mix = habits.first().map_or(Mix::One(0), |activity| activity.mix.clone());
        phase.load = Load::Activities(habits.into());
        phase.calls = None;
        phase.time = self.time.or(self.workload.time).map(|time| faster(time, self.workload.speed));
        phase.warm_up = faster(self.warm_up, self.workload.speed);
        Ok(text)
    }

    /// Turns the phase into one of phones after a power cut, and returns its description.
    fn of_phones(&self, phase: &mut Phase, how: &Avalanche) -> Result<String, PlanError> {
        if self.calls.is_some() || self.outstanding.is_some() || !self.warm_up.is_zero() {
            return Err(PlanError(format!(
                "the workload {} ends when all phones (--users) are registered; it has no number of calls and no warm-up",
                self.workload.name
            )));
        }
        phase.load = Load::Avalanche(Arc::new(how.clone()));
        phase.calls = None;
        phase.time = self.time.or(self.workload.time);
        Ok(format!("of {} phones, each after {}", phase.callers.end - phase.callers.start, how.start))
    }

    /// Returns a plan with sockets, threads and limits, but without load.
    fn bare_plan(&self, users: Users) -> Result<Plan, PlanError> {
        let means = TransportOptions {
            to: self.to.as_ref(),
            is_direct: self.callee_location == CalleeLocation::Local,
            secure: &self.secure,
            from: &self.from,
            sockets: self.sockets,
            threads: self.threads,
            connecting: self.workload.connection_lifetime.unwrap_or(self.connection_lifetime),
            connections: self.connections,
            repeats: self.retransmits,
            max_sessions: self.max_sessions,
            seed: self.seed,
        };
        let (retries, cool_down) = (self.retries, self.cool_down);
        Ok(Plan { has_segmentation: self.has_segmentation, retries, cool_down, ..means.plan(users)? })
    }

    /// Returns the measured phase, and the description of its arrivals.
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
            role: CallRole::Caller,
            mix: self.workload.mix.clone(),
            load,
            calls: self.calls.or(default_calls),
            time: self.time,
            warm_up: self.warm_up,
            drain,
            callers,
            callees,
            is_measured: true,
            is_busy_polling: self.is_busy_polling,
        };
        Ok((phase, law))
    }

    /// Returns the plan of a scenario that makes calls.
    fn scenario_plan(&self, files: &ScenarioFiles) -> Result<(Plan, RunDescription), PlanError> {
        let to =
            self.to.as_ref().ok_or_else(|| PlanError("a calling scenario needs a target; give --to".to_owned()))?;
        let (scenario, sipp) = files.read(to, self.seed)?;
        if scenario.role != Role::Caller {
            let file = files.file.display();
            return Err(PlanError(format!("{file} begins with <recv>: it is for strowger load answer --sf {file}")));
        }
        let domain = self.domain.clone().unwrap_or_else(|| to.domain());
        let there = Self { callee_location: CalleeLocation::Remote, ..self.clone() };
        let mut plan = there.bare_plan(scenario.users(&domain, &sipp))?;
        plan.caller = Some(scenario.side());
        plan.t1 = scenario.t1.unwrap_or(plan.t1);
        let drain = self.drain_of(&plan, [std::slice::from_ref(&scenario.script), &[]]);
        let everybody = 0..plan.users.count();
        let (phase, arrivals) = self.calling(scenario.script.name.clone(), drain, (everybody.clone(), everybody))?;
        plan.phases.push(phase);
        let about = RunDescription {
            workload: files.file.display().to_string(),
            arrivals,
            seed: self.seed,
            to: format!("{}:{}", to.transport.as_str().to_ascii_lowercase(), to.address),
            declared: warnings(&scenario).into_iter().chain(self.secure.declared(&plan)).collect(),
        };
        Ok((plan, about))
    }

    fn population(&self) -> Result<Users, PlanError> {
        let usual = || self.to.as_ref().map_or_else(|| UNSPECIFIED_ADDRESS.to_owned(), Target::domain);
        let domain = self.domain.clone().unwrap_or_else(usual);
        match &self.users_file {
            Some(file) => Users::read(file, &domain).map_err(|error| PlanError(error.to_string())),
            None => {
                let count = self
                    .users
                    .max(1)
                    .checked_mul(if self.is_of_users() { 1 } else { 2 })
                    .ok_or_else(|| PlanError("--users is too large".to_owned()))?;
                Ok(Users::generated(&self.pattern, &self.password, &domain, count))
            }
        }
    }
}

/// A SIPp scenario, with the options of SIPp's command line.
#[derive(Clone, Debug)]
pub struct ScenarioFiles {
    /// The scenario file (`-sf`).
    pub file: PathBuf,
    /// Injection files (`-inf`).
    pub tables: Vec<PathBuf>,
    /// `-s`.
    pub service: Option<String>,
    /// The password of `[authentication]` (`-ap`).
    pub password: Option<String>,
    /// The length of pauses that do not specify one (`-d`).
    pub pause: Duration,
}

impl ScenarioFiles {
    /// Reads the files.
    fn read(&self, target: &Target, seed: u64) -> Result<(Scenario, sipp::Options), PlanError> {
        let mut options = sipp::Options { pause: self.pause, seed, ..sipp::Options::default() };
        options.is_ipv6 = target.address.is_ipv6();
        options.service = self.service.clone().unwrap_or(options.service);
        options.auth_password = self.password.clone().unwrap_or(options.auth_password);
        let tables: Result<Vec<_>, _> = self.tables.iter().map(|file| sipp::Table::read(file).map(Arc::new)).collect();
        let scenario = tables.and_then(|tables| Scenario::read(&self.file, &tables, &options));
        Ok((scenario.map_err(|note| PlanError(note.to_string()))?, options))
    }
}

/// Returns the unsupported requests of a scenario, as declared in a report.
fn warnings(scenario: &Scenario) -> Vec<(String, String)> {
    scenario.warnings.iter().map(|note| (WARNING.to_owned(), note.to_string())).collect()
}

/// What [`RunDescription::declared`] calls a warning.
pub const WARNING: &str = "warning";

/// Splits users into callers and callees.
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

/// Options of a run that only answers.
#[derive(Clone, Debug)]
pub struct AnswerOptions {
    /// Addresses to listen at, at least one. All must have the same transport; several are possible over UDP only.
    pub listen: Vec<Target>,
    /// The workload whose callee is played.
    pub workload: Workload,
    /// A SIPp scenario instead of the workload.
    pub scenario: Option<ScenarioFiles>,
    /// Number of calls after which it ends.
    pub calls: Option<u64>,
    /// Time after which it ends.
    pub time: Option<Duration>,
    /// Number of threads.
    pub threads: usize,
    /// Whether they wait awake: see [`Phase::is_busy_polling`].
    pub is_busy_polling: bool,
    /// Whether messages that leave at once are joined: see [`Plan::has_segmentation`].
    pub has_segmentation: bool,
    /// Certificates and sessions of TLS.
    pub secure: SecureOptions,
    /// Whether messages are retransmitted.
    pub retransmits: bool,
    /// The server to emulate, one for each address.
    pub service: Option<ServiceLaw>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl AnswerOptions {
    /// Returns the first address, which users' URIs contain, and all addresses to listen at.
    fn listening(&self) -> Result<(&Target, Vec<SocketAddr>), PlanError> {
        let first = self.listen.first();
        let first =
            first.ok_or_else(|| PlanError("there is no address to answer at; give one (--listen)".to_owned()))?;
        if self.listen.iter().any(|target| target.transport != first.transport) {
            return Err(PlanError(
                "one process answers over one transport (--listen); start another process for the other".to_owned(),
            ));
        }
        let addresses: Vec<_> = self.listen.iter().map(|target| target.address).collect();
        if let Some(ip) = addresses.iter().map(SocketAddr::ip).find(IpAddr::is_unspecified) {
            return Err(PlanError(format!(
                "{ip} cannot be used in the Contact of an answer. Give the address at which callers reach \
                 this machine to --listen"
            )));
        }
        Ok((first, addresses))
    }

    /// Returns the plan, and the description of the run for its report.
    ///
    /// # Errors
    /// If the workload has no callee, or addresses do not fit together.
    pub fn plan(&self) -> Result<(Plan, RunDescription), PlanError> {
        let (first, addresses) = self.listening()?;
        let ip = first.address.ip();
        let (side, users, t1, name, declared) = match &self.scenario {
            Some(files) => {
                let (scenario, sipp) = files.read(first, self.seed)?;
                let file = files.file.display();
                if scenario.role != Role::Callee {
                    return Err(PlanError(format!(
                        "{file} begins with <send>: it is for strowger load run --sf {file}"
                    )));
                }
                let users = scenario.users(&ip.to_string(), &sipp);
                (scenario.side(), users, scenario.t1, file.to_string(), warnings(&scenario))
            }
            None if self.workload.callees.is_empty() => {
                return Err(PlanError(format!("the workload {} has no callee", self.workload.name)));
            }
            None => {
                let side = SideScripts {
                    scripts: self.workload.callees.clone().into(),
                    answers: self.workload.answers.clone(),
                };
                let users = Users::generated("user%", "", &ip.to_string(), 1);
                (side, users, None, self.workload.name.clone(), Vec::new())
            }
        };
        let mut plan = Plan::new(users, self.seed);
        plan.transport = first.transport;
        self.secure.apply(&mut plan)?;
        plan.addresses = vec![ip];
        plan.t1 = t1.unwrap_or(plan.t1);
        (plan.threads, plan.retransmits, plan.has_segmentation) =
            (self.threads.max(1), self.retransmits, self.has_segmentation);
        // Calls in progress may continue for as long as the callee's own laws allow; the caller's are not known here.
        let drain = (plan.t1 * 64).saturating_add(longest(&side.scripts));
        let to: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        plan.callee = Some(Callee { side, listen: addresses, service: self.service.clone() });
        plan.phases.push(Phase {
            name: format!("answering {name}"),
            role: CallRole::Callee,
            mix: Mix::One(0),
            load: Load::None,
            calls: self.calls,
            time: self.time,
            warm_up: Duration::ZERO,
            drain,
            callers: 0..1,
            callees: 0..1,
            is_measured: true,
            is_busy_polling: self.is_busy_polling,
        });
        let about = RunDescription {
            workload: name,
            arrivals: "as they arrive".to_owned(),
            seed: self.seed,
            to: format!("{}:{}", first.transport.as_str().to_ascii_lowercase(), to.join(", ")),
            declared,
        };
        Ok((plan, about))
    }
}

/// Returns a workload by name, or several by weight, with their defaults.
///
/// # Errors
/// Lists the workloads.
pub fn workload(text: &str) -> Result<Workload, PlanError> {
    workload_with(text, &[], 1.0)
}

/// Does the same as [`workload`], with values of parameters and a speed relative to the model.
///
/// # Errors
/// Says what is wrong, and what to do.
pub fn workload_with(text: &str, set: &[(String, String)], speed: f64) -> Result<Workload, PlanError> {
    Workload::parse(text, set, speed).map_err(|error| PlanError(error.to_string()))
}
