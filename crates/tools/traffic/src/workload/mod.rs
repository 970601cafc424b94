//! The workloads that are known by name: one line each in [`WORKLOADS`].

mod avalanche;
mod basic;
mod calls;
mod faults;
mod messaging;
mod mid_call;
mod mixed;
mod parameters;
pub mod sipstone;
mod users;

use std::net::SocketAddr;
use std::time::Duration;

pub use calls::{CallTimes, callee, caller, registering, unregistering};
pub use faults::{Fault, Faults};
pub use messaging::{PublishParameters, SubscribeParameters};
pub use mid_call::{MidCall, MidCallRequest};
pub use parameters::{Parameter, Parameters, WorkloadError};
pub use users::CONFORMING;

use crate::engine::{Activity, Avalanche, Mix};
use crate::script::{MethodId, Script};

/// What both ends of a run do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// The caller's scripts.
    pub callers: Vec<Script>,
    /// Which of them an arrival begins.
    pub mix: Mix,
    /// The callee's scripts.
    pub callees: Vec<Script>,
    /// Which of them answers which request; of several for one method, that of the caller's [`Script::class`].
    pub answers: Vec<(MethodId, u16)>,
    /// The script of [`callees`](Self::callees) by which callees register before the run, where they must.
    pub registering: Option<u16>,
    /// Where the callee in this process must listen, because requests name its address.
    pub listen: Option<SocketAddr>,
    /// What users do again and again, instead of arrivals.
    pub activities: Vec<Activity>,
    /// Phones that register after a power cut, instead of arrivals.
    pub avalanche: Option<Avalanche>,
    /// How long it is measured where nobody says otherwise, and what is not counted before; times of the model.
    pub time: Option<Duration>,
    /// The beginning that is not counted.
    pub warm_up: Duration,
    /// How many times faster than the model time runs.
    pub speed: f64,
    /// What reports declare.
    pub declared: Vec<(String, String)>,
}

/// A workload that is known by name.
#[derive(Clone, Copy, Debug)]
pub struct NamedWorkload {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// The paper that it is from; empty where it is from none.
    pub paper: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Makes it; name, declared parameters and speed are filled in behind it.
    pub make: fn(&Parameters) -> Result<Workload, WorkloadError>,
    /// Whether its times are a model's, which may run faster.
    pub is_model: bool,
}

/// All of them.
pub const WORKLOADS: &[NamedWorkload] = &[
    known("proxy-200", "calls: INVITE, 180, 200, ACK, BYE, 200", "", basic::TIMES, basic::proxy_200),
    known("baseline", "the same with 250 ms of ringing and of talk", "", basic::FAULTS, basic::baseline),
    known("registration", "one REGISTER a session, of the users in turn", "", &[], basic::registration),
    avalanche::KNOWN,
    users::KNOWN,
    known(
        "mid-call",
        "calls with hold, UPDATE, INFO and session refreshes, from either side",
        "",
        mid_call::MID_CALL,
        mid_call::mid_call,
    ),
    known("message", "one MESSAGE a session (RFC 3428)", "", messaging::MESSAGE, messaging::message),
    known("publish", "PUBLISH, its refreshes and removal (RFC 3903)", "", messaging::PUBLISH, messaging::publish),
    known(
        "subscribe",
        "SUBSCRIBE, NOTIFYs, refreshes, the end (RFC 6665)",
        "",
        messaging::SUBSCRIBE,
        messaging::subscribe,
    ),
    known("presence", "message, publish and subscribe by weight", "", messaging::PRESENCE, messaging::presence),
    known(
        "outbound",
        "calls to an address that is none of the server's domains",
        "SIPstone",
        sipstone::OUTBOUND,
        sipstone::outbound,
    ),
    known("redirect", "INVITE, 302, ACK", "SIPstone", &[], sipstone::redirect),
    known(
        "proxy-480",
        "INVITE to who is not registered: 480, ACK",
        "SIPstone",
        sipstone::PROXY_480,
        sipstone::proxy_480,
    ),
];

const fn known(
    name: &'static str,
    about: &'static str,
    paper: &'static str,
    parameters: &'static [Parameter],
    make: fn(&Parameters) -> Result<Workload, WorkloadError>,
) -> NamedWorkload {
    NamedWorkload { name, about, paper, parameters, make, is_model: false }
}

impl NamedWorkload {
    /// The workload of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        WORKLOADS.iter().find(|known| known.name == name)
    }

    /// Makes it with these parameters.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn build(&self, parameters: &Parameters) -> Result<Workload, WorkloadError> {
        let named = |error: WorkloadError| WorkloadError(format!("{}: {error}", self.name));
        let workload = (self.make)(parameters).map_err(named)?;
        let mut declared = parameters.declared();
        declared.extend(workload.declared);
        Ok(Workload { name: self.name.to_owned(), speed: parameters.speed(), declared, ..workload })
    }
}

impl Workload {
    /// A workload in which nothing is done yet; for `..Workload::empty()`.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            name: String::new(),
            callers: Vec::new(),
            mix: Mix::One(0),
            callees: Vec::new(),
            answers: Vec::new(),
            registering: None,
            listen: None,
            activities: Vec::new(),
            avalanche: None,
            time: None,
            warm_up: Duration::ZERO,
            speed: 1.0,
            declared: Vec::new(),
        }
    }

    /// The workload of this name, with its defaults; `None` where there is none.
    ///
    /// # Errors
    /// Never for the built-in ones.
    pub fn by_name(name: &str) -> Result<Option<Self>, WorkloadError> {
        NamedWorkload::find(name).map(|known| known.build(&Parameters::new(known.parameters))).transpose()
    }

    /// What `--workload` says: a name, or several with weights, `proxy-200:70,registration:30`; with values of parameters,
    /// each `name=value` or, of one member of a mix, `workload.name=value`; so many times faster than the model.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    pub fn parse(text: &str, set: &[(String, String)], speed: f64) -> Result<Self, WorkloadError> {
        mixed::parse(text, set, speed)
    }

    /// Calls that are answered, after the times that are given.
    ///
    /// # Errors
    /// Never.
    pub fn calls(name: &str, times: &CallTimes) -> Result<Self, WorkloadError> {
        Ok(Self { name: name.to_owned(), ..basic::answered(times)? })
    }
}

/// The names of all, for messages.
#[must_use]
pub fn names() -> String {
    let names: Vec<_> = WORKLOADS.iter().map(|known| known.name).collect();
    names.join(", ")
}
