//! Construction of a [`Plan`] from the options of a replay.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use strowger_message::{AuthParams, Head, HeaderName, NameAddr, StartLine, Uri, unquote};

use super::call::{Call, CallSide, calls, user_of};
use super::capture::{Capture, CapturedMessage};
use super::compile::{self, CompilerOptions};
use super::message::{Rewriter, UserNames};
use super::skipped::{Reason, SkipCounts};
use crate::arrival::Arrivals;
use crate::driver::ConnectionLifetime;
use crate::engine::{CallRole, Callee, Load, Mix, Phase, Plan, PlanError, SideScripts};
use crate::law::faster;
use crate::options::{
    CalleeLocation, REGISTERING_AT_ONCE, SecureOptions, Target, TransportOptions, UNSPECIFIED_ADDRESS, WARNING,
};
use crate::population::Users;
use crate::report::RunDescription;
use crate::script::{Extract, MethodId, Pattern, Script, ScriptBuilder, ScriptError, SessionResult};

/// Maximum number of calls in a replay: script numbers have 16 bits, and identical scripts share one.
pub const MAX_CALLS: usize = 65_000;
/// Maximum time that a call may take beyond its recorded duration: 64·T1, and the patience of the called end.
const DRAIN: Duration = Duration::from_secs(75);

/// Ends of the recorded calls that are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplaySides {
    /// The calling end only.
    #[default]
    Caller,
    /// The calling and the called end.
    Both,
}

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The capture file.
    pub file: PathBuf,
    /// The destination of calls.
    pub to: Option<Target>,
    /// Which ends are played.
    pub sides: ReplaySides,
    /// Where callees are, if they are played: whether they register at the target.
    pub callee_location: CalleeLocation,
    /// Speed of the replay relative to the recording.
    pub speed: f64,
    /// The domain of all users, instead of the recorded ones.
    pub domain: Option<String>,
    /// The pattern of user names, instead of the recorded ones.
    pub pattern: Option<String>,
    /// The users' password; `%` is replaced by the user's number, in order of appearance.
    pub password: String,
    /// A table of names and passwords.
    pub users_file: Option<PathBuf>,
    /// Addresses of the callers whose calls are replayed; empty for all.
    pub callers: Vec<IpAddr>,
    /// Local addresses.
    pub from: Vec<IpAddr>,
    /// Sockets of the calling end per thread.
    pub sockets: usize,
    /// Number of threads.
    pub threads: usize,
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
    /// How long the last calls may take beyond their recorded duration.
    pub drain: Option<Duration>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl ReplayOptions {
    /// Creates options that replay the callers of `file` against `to`, with the defaults that `--help` shows.
    #[must_use]
    pub fn new(file: PathBuf, to: Option<Target>, seed: u64) -> Self {
        let callee_location = if to.is_some() { CalleeLocation::Registered } else { CalleeLocation::Local };
        Self {
            file,
            to,
            sides: ReplaySides::Caller,
            callee_location,
            speed: 1.0,
            domain: None,
            pattern: None,
            password: "secret".to_owned(),
            users_file: None,
            callers: Vec::new(),
            from: Vec::new(),
            sockets: 1,
            threads: 1,
            connection_lifetime: ConnectionLifetime::default(),
            connections: 1,
            secure: SecureOptions::default(),
            retransmits: true,
            max_sessions: None,
            drain: None,
            seed,
        }
    }

    /// Returns the plan, and the description of the run for its report.
    ///
    /// # Errors
    /// If the capture cannot be read or has no calls, or the options conflict. The text says what to do.
    pub fn plan(&self) -> Result<(Plan, RunDescription), PlanError> {
        let capture = Capture::read(&self.file).map_err(|error| PlanError(error.0))?;
        self.plan_of(&capture)
    }

    /// Does the same as [`plan`](Self::plan), for a capture that has been read.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_of(&self, capture: &Capture) -> Result<(Plan, RunDescription), PlanError> {
        self.check()?;
        let mut skipped = capture.skipped.clone();
        let mut calls = calls(capture, &mut skipped);
        self.only_asked_callers(capture, &mut calls, &mut skipped);
        let ends_at = capture.messages.last().map_or(0, |message| message.at);
        let mut maker = ReplayBuilder {
            options: self,
            setting: CompilerOptions { messages: &capture.messages, speed: self.speed, ends_at },
            names: UserNames::new(self.pattern.clone()),
            passwords: self.passwords()?,
            callers: Scripts::default(),
            callees: Scripts::default(),
            rows: Vec::new(),
            called: Vec::new(),
            list: Vec::new(),
            instants: Vec::new(),
            verbs: Vec::new(),
            skipped,
        };
        maker.begin().map_err(|error| PlanError(error.to_string()))?;
        for call in &calls {
            maker.call(call);
        }
        if maker.list.is_empty() {
            return Err(PlanError(format!(
                "{} has no call that can be replayed; skipped: {}",
                self.file.display(),
                maker.skipped
            )));
        }
        self.planned(maker, capture, ends_at)
    }

    fn check(&self) -> Result<(), PlanError> {
        let wrong = |what: &str| Err(PlanError(what.to_owned()));
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return wrong("--speed must be a number above zero: 1 is as recorded, 2 is twice as fast");
        }
        if self.sides == ReplaySides::Caller && self.to.is_none() {
            return wrong("there are no callees; give the server's address (--to), or play both ends (--side both)");
        }
        if self.to.is_none() && self.callee_location != CalleeLocation::Local {
            return wrong("callees can register only at a server; give its address (--to)");
        }
        Ok(())
    }

    /// Returns whether calls go directly from one end to the other, without a server.
    fn goes_straight(&self) -> bool {
        self.sides == ReplaySides::Both && self.callee_location == CalleeLocation::Local
    }

    fn only_asked_callers(&self, capture: &Capture, calls: &mut Vec<Call>, skipped: &mut SkipCounts) {
        if self.callers.is_empty() {
            return;
        }
        calls.retain(|call| {
            let first = call.caller.items.first().and_then(|item| capture.messages.get(item.message));
            let is_asked = first.is_some_and(|first| self.callers.contains(&first.source.ip()));
            if !is_asked {
                skipped.add_many(Reason::OtherCaller, call.caller.items.len() as u64);
            }
            is_asked
        });
    }

    fn passwords(&self) -> Result<HashMap<Vec<u8>, Vec<u8>, FixedState>, PlanError> {
        let mut passwords = HashMap::with_hasher(FixedState::with_seed(8));
        let Some(file) = &self.users_file else { return Ok(passwords) };
        let users = Users::read(file, "").map_err(|error| PlanError(error.to_string()))?;
        for number in 0..users.count() {
            let (mut name, mut password) = (Vec::new(), Vec::new());
            users.push_name(number, &mut name);
            users.push_password(number, &mut password);
            passwords.insert(name, password);
        }
        Ok(passwords)
    }

    fn planned(
        &self,
        maker: ReplayBuilder<'_>,
        capture: &Capture,
        ends_at: u64,
    ) -> Result<(Plan, RunDescription), PlanError> {
        let count = u32::try_from(maker.list.len()).unwrap_or(u32::MAX);
        let called = u32::try_from(maker.called.len()).unwrap_or(0);
        let distinct = maker.callers.all.len();
        let domain = self.domain.clone().unwrap_or_else(|| self.target_host());
        let rows = maker.rows.into_iter().chain(maker.called);
        let plays_callee = self.sides == ReplaySides::Both && !maker.verbs.is_empty();
        let mut plan = self.bare_plan(Users::of_rows(&domain, "service", 3, rows))?;
        plan.caller = Some(SideScripts { scripts: maker.callers.all.into(), answers: Vec::new() });
        if plays_callee {
            let answers = maker.verbs.iter().map(|verb| (*verb, 0)).collect();
            let side = SideScripts { scripts: maker.callees.all.into(), answers };
            plan.callee = Some(Callee { side, listen: Vec::new(), service: None });
        }
        if plays_callee && self.callee_location == CalleeLocation::Registered {
            plan.phases.push(registering_phase(count..count + called, plan.threads));
        }
        let (first, last) = (maker.instants.first().copied(), maker.instants.last().copied());
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
        let rest = faster(Duration::from_nanos(ends_at.saturating_sub(last)), self.speed);
        plan.phases.push(Phase {
            name: "replay".to_owned(),
            role: CallRole::Caller,
            mix: Mix::Listed(maker.list.into()),
            load: Load::Open(Arrivals::recorded(gaps(&maker.instants, self.speed))),
            calls: Some(u64::from(count)),
            time: None,
            warm_up: Duration::ZERO,
            drain: rest.saturating_add(self.drain.unwrap_or(DRAIN)),
            callers: 0..count,
            callees: 0..count,
            is_measured: true,
            is_busy_polling: false,
        });
        let lasts = Duration::from_nanos(last.saturating_sub(first));
        let mut declared = vec![
            ("record".to_owned(), format!("{count} calls in {lasts:.1?}, {} messages", capture.messages.len())),
            ("scripts".to_owned(), format!("{distinct} different ones")),
        ];
        if self.sides == ReplaySides::Both && !plays_callee {
            let text = "no call in the capture was answered: only the calling side is played";
            declared.push((WARNING.to_owned(), text.to_owned()));
        }
        declared.extend(self.secure.declared(&plan));
        declared.extend(
            maker.skipped.iter().map(|(reason, count)| (format!("skipped {}", reason.text()), count.to_string())),
        );
        let about = RunDescription {
            workload: format!("replay of {}", self.file.display()),
            arrivals: if (self.speed - 1.0).abs() < f64::EPSILON {
                "as recorded".to_owned()
            } else {
                format!("as recorded, {} times faster", self.speed)
            },
            seed: self.seed,
            to: match plan.remote {
                Some(remote) => format!("{}:{remote}", plan.transport.as_str().to_ascii_lowercase()),
                None => "callees in this process".to_owned(),
            },
            declared,
        };
        Ok((plan, about))
    }

    /// Returns the host that replaces the recorded server in URIs.
    fn target_host(&self) -> String {
        self.to.as_ref().map_or_else(|| UNSPECIFIED_ADDRESS.to_owned(), Target::domain)
    }

    /// Returns a plan with sockets, threads and limits, but without load.
    fn bare_plan(&self, users: Users) -> Result<Plan, PlanError> {
        let means = TransportOptions {
            to: self.to.as_ref(),
            is_direct: self.goes_straight(),
            secure: &self.secure,
            from: &self.from,
            sockets: self.sockets,
            threads: self.threads,
            connecting: self.connection_lifetime,
            connections: self.connections,
            repeats: self.retransmits,
            max_sessions: self.max_sessions,
            seed: self.seed,
        };
        means.plan(users)
    }
}

/// Returns the gaps between times, divided by a speed.
pub(crate) fn gaps(instants: &[u64], speed: f64) -> Vec<u64> {
    let first = instants.first().copied().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52 ns, 52 days, is exact")]
    let scaled = instants.iter().map(|at| at.saturating_sub(first) as f64 / speed);
    let mut before = 0;
    scaled
        .map(|at| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is positive, and saturates"
            )]
            let at = at.round() as u64;
            let gap = at.saturating_sub(before);
            before = at;
            gap
        })
        .collect()
}

fn registering_phase(users: std::ops::Range<u32>, threads: usize) -> Phase {
    Phase {
        name: "registering".to_owned(),
        role: CallRole::Callee,
        mix: Mix::One(1),
        load: Load::Closed(REGISTERING_AT_ONCE * threads),
        calls: Some(u64::from(users.end - users.start)),
        time: None,
        warm_up: Duration::ZERO,
        drain: Duration::from_secs(35),
        callers: users.clone(),
        callees: users,
        is_measured: false,
        is_busy_polling: false,
    }
}

/// REGISTER of a user of the called end; the domain is in the third column.
const REGISTER: &str = "REGISTER sip:[field2] SIP/2.0
Via: SIP/2.0/[transport] [local];branch=[branch]
Max-Forwards: 70
From: <sip:[field0]@[field2]>;tag=[local_tag]
To: <sip:[field0]@[field2]>
Call-ID: [call_id]
CSeq: [cseq] REGISTER
Contact: <sip:[field0]@[local];transport=[transport]>
Expires: 3600
[authentication]
Content-Length: 0
";

fn registering() -> Result<Script, ScriptError> {
    let mut script = ScriptBuilder::new("register");
    let (again, done) = (script.label(), script.label());
    script.place_label(again).send(REGISTER).wait(&[
        (Pattern::PROVISIONAL, Extract::NOTHING, None),
        (Pattern::SUCCESS, Extract::NOTHING, Some(done)),
        (Pattern::status(401), Extract::CHALLENGE, Some(again)),
        (Pattern::status(407), Extract::CHALLENGE, Some(again)),
    ]);
    script.place_label(done).end(SessionResult::Carried);
    script.build()
}

/// Deduplicated scripts.
#[derive(Default)]
struct Scripts {
    all: Vec<Script>,
    known: HashMap<u128, u16, FixedState>,
}

impl Scripts {
    /// Returns the number of a script; `None` if there are too many.
    fn number(&mut self, script: Script) -> Option<u16> {
        let print = fingerprint(&script);
        if let Some(number) = self.known.get(&print) {
            return Some(*number);
        }
        if self.all.len() >= MAX_CALLS {
            return None;
        }
        let number = u16::try_from(self.all.len()).ok()?;
        self.all.push(script);
        self.known.insert(print, number);
        Some(number)
    }
}

/// Returns two hashes of a script's contents, which identify it.
fn fingerprint(script: &Script) -> u128 {
    struct Both(foldhash::fast::FoldHasher<'static>, foldhash::fast::FoldHasher<'static>);
    impl std::fmt::Write for Both {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            self.1.write(text.as_bytes());
            Ok(())
        }
    }
    let mut both = Both(FixedState::with_seed(9).build_hasher(), FixedState::with_seed(10).build_hasher());
    // Hashing cannot fail.
    let _ = write!(both, "{script:?}");
    u128::from(both.0.finish()) << 64 | u128::from(both.1.finish())
}

/// Builder of scripts and users from calls.
struct ReplayBuilder<'a> {
    options: &'a ReplayOptions,
    setting: CompilerOptions<'a>,
    names: UserNames,
    passwords: HashMap<Vec<u8>, Vec<u8>, FixedState>,
    callers: Scripts,
    callees: Scripts,
    /// Name, password and domain of the user of each session.
    rows: Vec<Vec<String>>,
    /// The same for each called user.
    called: Vec<Vec<String>>,
    /// The script of each session, and its start time.
    list: Vec<u16>,
    instants: Vec<u64>,
    /// Methods of the requests that begin a session at the called end.
    verbs: Vec<MethodId>,
    skipped: SkipCounts,
}

impl<'a> ReplayBuilder<'a> {
    /// Creates the called end's scripts that are not calls: the one that finds out the call, and the registration.
    fn begin(&mut self) -> Result<(), ScriptError> {
        let entry = compile::entry(&MethodId::ALL)?;
        self.callees.all = vec![entry, registering()?];
        Ok(())
    }

    fn call(&mut self, call: &Call) {
        let count = call.caller.items.len() as u64;
        if self.list.len() >= u32::MAX as usize / 2 {
            return self.skipped.add_many(Reason::Calls, count);
        }
        let callee = call.callee.as_ref().filter(|_| self.options.sides == ReplaySides::Both);
        let callee = callee.and_then(|end| self.callee(end, call));
        if callee.is_none() && self.options.goes_straight() {
            return self.skipped.add_many(Reason::NoServer, count);
        }
        match self.script(&call.caller, callee, true) {
            Ok(script) => match self.callers.number(script) {
                Some(number) => {
                    let row = self.row(call);
                    self.rows.push(row);
                    self.list.push(number);
                    self.instants.push(call.at);
                }
                None => self.skipped.add_many(Reason::Calls, count),
            },
            Err(_) => self.skipped.add_many(Reason::Unplayable, count),
        }
    }

    fn script(&mut self, end: &CallSide, call: Option<u16>, is_caller: bool) -> Result<Script, ScriptError> {
        let server = self.options.to.as_ref().filter(|_| !self.options.goes_straight()).map(Target::domain);
        let rewriting = Rewriter {
            names: &mut self.names,
            domain: self.options.domain.as_deref(),
            server: server.as_deref(),
            own: &end.own,
            peer: end.peer,
            call,
            is_caller,
        };
        let compiled = if is_caller {
            compile::caller(end, self.setting, rewriting)
        } else {
            compile::callee(end, self.setting, rewriting)
        };
        let (script, overlapping) = compiled?;
        self.skipped.add_many(Reason::Unplayable, overlapping);
        Ok(script)
    }

    /// Adds the script of the called end, and the called user to those who register.
    fn callee(&mut self, end: &CallSide, call: &Call) -> Option<u16> {
        let verb = end.items.first()?.method;
        let script = self.script(end, None, false).ok()?;
        let number = self.callees.number(script)?;
        if !self.verbs.contains(&verb) {
            self.verbs.push(verb);
        }
        let first = self.first(call)?;
        let head = Head::scan(&first.bytes).ok()?;
        let StartLine::Request { uri, .. } = head.start() else { return Some(number) };
        let Some(Uri::Sip(uri)) = Uri::parse(uri) else { return Some(number) };
        let Some(user) = uri.user else { return Some(number) };
        let is_server = uri.host().ip().is_some_and(|ip| ip == first.destination.ip());
        let domain = match &self.options.domain {
            Some(domain) => domain.clone(),
            None if is_server => self.options.target_host(),
            None => String::from_utf8_lossy(uri.host_port.host).into_owned(),
        };
        let row = self.user(user, domain);
        if !self.called.contains(&row) {
            self.called.push(row);
        }
        Some(number)
    }

    fn first(&self, call: &Call) -> Option<&'a CapturedMessage> {
        self.setting.messages.get(call.caller.items.first()?.message)
    }

    /// Returns the caller: the user name in the recorded credentials, else that of From.
    fn row(&mut self, call: &Call) -> Vec<String> {
        let messages = self.setting.messages;
        let heads = call.caller.items.iter().filter(|item| item.is_out);
        let heads = heads.filter_map(|item| Head::scan(&messages.get(item.message)?.bytes).ok());
        let mut user = Vec::new();
        for head in heads {
            if user.is_empty() {
                let from = head.first(HeaderName::From).and_then(NameAddr::parse);
                user = user_of(from.as_ref()).to_vec();
            }
            let line = head.first(HeaderName::Authorization).or(head.first(HeaderName::ProxyAuthorization));
            let Some(credentials) = line.and_then(AuthParams::parse) else { continue };
            if let Some(name) = credentials.value("username").map(unquote).filter(|name| !name.is_empty()) {
                // The name may contain its domain, which is not part of the user name if names are mapped.
                user = name.into_owned();
                break;
            }
        }
        self.user(&user, String::new())
    }

    fn user(&mut self, user: &[u8], domain: String) -> Vec<String> {
        let (number, name) = (self.names.number(user), self.names.name(user));
        let password = self.passwords.get(&name).cloned().unwrap_or_else(|| {
            let mut password = Vec::new();
            Users::generated("%", &self.options.password, "", u32::MAX).push_password(number, &mut password);
            password
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        vec![text(&name), text(&password), domain]
    }
}
