//! From what a user asks to a [`Plan`].

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
pub use transport::Target;
pub(crate) use transport::{TransportOptions, UNSPECIFIED_ADDRESS};

/// Registrations that are on their way at once, on each thread, before the run.
pub(crate) const REGISTERING_AT_ONCE: usize = 16;
/// The part of the mean time to a refresh by which registrations outlast it: 15 minutes against 10.
const SPARE_OF_REFRESH: f64 = 0.5;
/// Calls of a run that neither a number nor a time ends.
const DEFAULT_CALLS: u64 = 10_000;

/// Who answers the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CalleeLocation {
    /// This process, whose callees register at the target first.
    #[default]
    Registered,
    /// Who is at the target.
    Remote,
    /// This process, to which calls go straight.
    Local,
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
    pub callee_location: CalleeLocation,
    /// Sessions a second.
    pub rate: f64,
    /// The law of arrivals.
    pub arrivals: String,
    /// A closed loop of so many sessions instead.
    pub outstanding: Option<usize>,
    /// How many sessions.
    pub calls: Option<u64>,
    /// For how long; of a model, in its time, and by default as long as it says.
    pub time: Option<Duration>,
    /// What is not counted at the beginning; of a model, in its time.
    pub warm_up: Duration,
    /// How long arrivals go on, uncounted, behind the time: see [`Plan::cool_down`].
    pub cool_down: Duration,
    /// How often who was refused with 503 and Retry-After tries again: see [`Plan::retries`].
    pub retries: u8,
    /// How long what has begun may take at the end; by default 64·T1, and as long as those who call and those who are called
    /// may ring, talk and wait by the laws of their scripts. Of a model of users, whose calls end as they like, 64·T1.
    pub drain: Option<Duration>,
    /// Users on each side; of a model of users, all.
    pub users: u32,
    /// Registrations a second before the run; by default as fast as they are answered, some at once.
    pub register_rate: Option<f64>,
    /// Registrations that are on their way at once before the run, on each thread, where there is no rate.
    pub registering_at_once: usize,
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
    /// Whether they wait awake while it is measured: see [`Phase::is_busy_polling`].
    pub is_busy_polling: bool,
    /// Whether messages that leave at once are joined: see [`Plan::has_segmentation`].
    pub has_segmentation: bool,
    /// How connections are used.
    pub connection_lifetime: ConnectionLifetime,
    /// Shared connections on each thread.
    pub connections: usize,
    /// Whether messages are repeated.
    pub retransmits: bool,
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
        let warm_up = workload.warm_up;
        Self {
            to,
            workload,
            scenario: None,
            callee_location: if to.is_some() { CalleeLocation::Registered } else { CalleeLocation::Local },
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
            retransmits: true,
            max_sessions: None,
            service: None,
            seed,
        }
    }

    /// The plan, and what its report says of it.
    ///
    /// # Errors
    /// What does not fit together, with the remedy.
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
            return Err(PlanError(
                "--cool-down goes on behind the measured time; give that (--time), and a workload that comes at a rate"
                    .to_owned(),
            ));
        }
        let mut plan = self.bare_plan(users)?;
        plan.caller = Some(SideScripts { scripts: self.workload.callers.clone().into(), answers: Vec::new() });
        let answers_here = self.callee_location != CalleeLocation::Remote && !self.workload.callees.is_empty();
        if answers_here {
            let mut scripts = self.workload.callees.clone();
            // The last one ends their registrations.
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
        if !registers && self.workload.activities.iter().any(|habit| habit.who == CallRole::Callee) {
            let text = "none from here: those who are called are elsewhere, or there is no server between";
            declared.push(("registrations".to_owned(), text.to_owned()));
        }
        declared.extend(self.slow_registering(&plan));
        let about =
            RunDescription { workload: self.workload.name.clone(), arrivals: law, seed: self.seed, to, declared };
        Ok((plan, about))
    }

    /// A warning where those who registered first are forgotten before the last one has: who refreshes its registration begins with
    /// that only when all are registered.
    fn slow_registering(&self, plan: &Plan) -> Option<(String, String)> {
        let phase = plan.phases.iter().find(|phase| !phase.is_measured)?;
        let refreshes = |habit: &&Activity| habit.who == CallRole::Callee && habit.gap_from == GapFrom::Begin;
        let refresh = self.workload.activities.iter().find(refreshes)?.gap.mean()?;
        let (Load::Open(arrivals), Some(count)) = (&phase.load, phase.calls) else { return None };
        #[expect(clippy::cast_precision_loss, reason = "a number of users")]
        let takes = count as f64 / arrivals.rate()?;
        let may_take = refresh * SPARE_OF_REFRESH;
        (takes > may_take).then(|| {
            let text = format!(
                "registering {count} users takes {takes:.0} s and may take {may_take:.0} s, or the first registrations end before they \
                 are refreshed; raise --register-rate, or use fewer users"
            );
            (WARNING.to_owned(), text)
        })
    }

    /// Whether users do what they do again and again, instead of coming at a rate.
    const fn is_of_users(&self) -> bool {
        !self.workload.activities.is_empty()
    }

    /// Whether there is a user at the other end: registrations have none.
    fn calls_somebody(&self) -> bool {
        let names_callee = |script: &Script| script.templates.iter().any(Template::names_callee);
        !self.workload.callees.is_empty() || self.workload.callers.iter().any(names_callee)
    }

    /// How long sessions may still take when the last one has begun: messages that are repeated to the end, and what these
    /// scripts do at their leisure.
    fn drain_of(&self, plan: &Plan, sides: [&[Script]; 2]) -> Duration {
        let leisure = || sides.iter().fold(Duration::ZERO, |sum, scripts| sum.saturating_add(longest(scripts)));
        self.drain.unwrap_or_else(|| (plan.t1 * 64 + Duration::from_secs(3)).saturating_add(leisure()))
    }

    /// The phase before the run in which those who are called register, and the one behind it in which they do so no more.
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

    /// Makes the phase one of users, and says so in words. Only who is called here can register here.
    fn of_users(&self, phase: &mut Phase, registers: bool) -> Result<String, PlanError> {
        if self.calls.is_some() || self.outstanding.is_some() {
            return Err(PlanError(format!(
                "the workload {} runs for a time (--time) with so many users (--users), not for a number of calls",
                self.workload.name
            )));
        }
        let done = |habit: &&Activity| registers || habit.who == CallRole::Caller;
        let habits: Vec<_> = self.workload.activities.iter().filter(done).cloned().collect();
        let text: Vec<_> = habits.iter().map(|habit| habit.gap.to_string()).collect();
        let text = format!("of {} users, each after {}", phase.callers.end - phase.callers.start, text.join(" and "));
        phase.mix = habits.first().map_or(Mix::One(0), |habit| habit.mix.clone());
        phase.load = Load::Activities(habits.into());
        phase.calls = None;
        phase.time = self.time.or(self.workload.time).map(|time| faster(time, self.workload.speed));
        phase.warm_up = faster(self.warm_up, self.workload.speed);
        Ok(text)
    }

    /// Makes the phase one of phones after a power cut, and says so in words.
    fn of_phones(&self, phase: &mut Phase, how: &Avalanche) -> Result<String, PlanError> {
        if self.calls.is_some() || self.outstanding.is_some() || !self.warm_up.is_zero() {
            return Err(PlanError(format!(
                "the workload {} is over when all phones (--users) are registered; it has no number of calls and no warm-up",
                self.workload.name
            )));
        }
        phase.load = Load::Avalanche(Arc::new(how.clone()));
        phase.calls = None;
        phase.time = self.time.or(self.workload.time);
        Ok(format!("of {} phones, each after {}", phase.callers.end - phase.callers.start, how.start))
    }

    /// Sockets, threads and limits, and nothing to do yet.
    fn bare_plan(&self, users: Users) -> Result<Plan, PlanError> {
        let means = TransportOptions {
            to: self.to,
            is_direct: self.callee_location == CalleeLocation::Local,
            from: &self.from,
            sockets: self.sockets,
            threads: self.threads,
            connecting: self.connection_lifetime,
            connections: self.connections,
            repeats: self.retransmits,
            max_sessions: self.max_sessions,
            seed: self.seed,
        };
        let (retries, cool_down) = (self.retries, self.cool_down);
        Ok(Plan { has_segmentation: self.has_segmentation, retries, cool_down, ..means.plan(users)? })
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

    /// A scenario that calls.
    fn scenario_plan(&self, files: &ScenarioFiles) -> Result<(Plan, RunDescription), PlanError> {
        let to = self.to.ok_or_else(|| PlanError("a scenario needs to know whom it calls; give --to".to_owned()))?;
        let (scenario, sipp) = files.read(to, self.seed)?;
        if scenario.role != Role::Caller {
            let file = files.file.display();
            return Err(PlanError(format!("{file} begins with receiving: it is for strowger load answer --sf {file}")));
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
            declared: warnings(&scenario),
        };
        Ok((plan, about))
    }

    fn population(&self) -> Result<Users, PlanError> {
        let usual = || self.to.map_or_else(|| UNSPECIFIED_ADDRESS.to_owned(), |to| to.domain());
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

/// What [`RunDescription::declared`] calls a warning.
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
    /// Where it listens, at least at one address. All of the same transport; only over UDP at several.
    pub listen: Vec<Target>,
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
    /// Whether they wait awake: see [`Phase::is_busy_polling`].
    pub is_busy_polling: bool,
    /// Whether messages that leave at once are joined: see [`Plan::has_segmentation`].
    pub has_segmentation: bool,
    /// Whether messages are repeated.
    pub retransmits: bool,
    /// The server that it emulates; one behind each address.
    pub service: Option<ServiceLaw>,
    /// What randomness begins with.
    pub seed: u64,
}

impl AnswerOptions {
    /// Where it listens: the first address, which names its users, and all of them.
    fn listening(&self) -> Result<(Target, Vec<SocketAddr>), PlanError> {
        let first = self.listen.first().copied();
        let first =
            first.ok_or_else(|| PlanError("there is no address to answer at; give one (--listen)".to_owned()))?;
        if self.listen.iter().any(|target| target.transport != first.transport) {
            return Err(PlanError("one process answers by one transport (--listen); start another one".to_owned()));
        }
        let addresses: Vec<_> = self.listen.iter().map(|target| target.address).collect();
        if let Some(ip) = addresses.iter().map(SocketAddr::ip).find(IpAddr::is_unspecified) {
            return Err(PlanError(format!(
                "{ip} is no address that an answer can say: calls go on to what Contact names. Give the address by which callers reach \
                 this machine to --listen"
            )));
        }
        Ok((first, addresses))
    }

    /// The plan, and what its report says of it.
    ///
    /// # Errors
    /// Where the workload has nobody who is called, or addresses do not go together.
    pub fn plan(&self) -> Result<(Plan, RunDescription), PlanError> {
        let (first, addresses) = self.listening()?;
        let ip = first.address.ip();
        let (side, users, t1, name, declared) = match &self.scenario {
            Some(files) => {
                let (scenario, sipp) = files.read(first, self.seed)?;
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
        plan.addresses = vec![ip];
        plan.t1 = t1.unwrap_or(plan.t1);
        (plan.threads, plan.retransmits, plan.has_segmentation) =
            (self.threads.max(1), self.retransmits, self.has_segmentation);
        // Calls that have begun may go on for as long as the callee's own laws say; the caller's are not known here.
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
            arrivals: "as they come".to_owned(),
            seed: self.seed,
            to: format!("{}:{}", first.transport.as_str().to_ascii_lowercase(), to.join(", ")),
            declared,
        };
        Ok((plan, about))
    }
}

/// A workload by its name, or several by weight, with their defaults.
///
/// # Errors
/// Which there are.
pub fn workload(text: &str) -> Result<Workload, PlanError> {
    workload_with(text, &[], 1.0)
}

/// As [`workload`], with values of its parameters, and so many times faster than its model.
///
/// # Errors
/// What is wrong, and the remedy.
pub fn workload_with(text: &str, set: &[(String, String)], speed: f64) -> Result<Workload, PlanError> {
    Workload::parse(text, set, speed).map_err(|error| PlanError(error.to_string()))
}
