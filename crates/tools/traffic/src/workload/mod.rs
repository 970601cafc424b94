//! Workloads by name; [`WORKLOADS`] has one entry for each.

mod avalanche;
mod basic;
mod calls;
mod faults;
mod handshake;
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

use crate::driver::ConnectionLifetime;
use crate::engine::{Activity, Avalanche, Mix};
use crate::script::{MethodId, Script};

/// Scripts and load of both ends of a run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name.
    pub name: String,
    /// The caller's scripts.
    pub callers: Vec<Script>,
    /// Selects the script that an arrival starts.
    pub mix: Mix,
    /// The callee's scripts.
    pub callees: Vec<Script>,
    /// The script that answers each method. If several answer one method, the caller's [`Script::class`] decides.
    pub answers: Vec<(MethodId, u16)>,
    /// The script of [`callees`](Self::callees) that registers callees before the run, if they must be registered.
    pub registering: Option<u16>,
    /// How the workload uses connections, whatever the options say.
    pub connection_lifetime: Option<ConnectionLifetime>,
    /// The address at which the callee in this process must listen because requests contain it.
    pub listen: Option<SocketAddr>,
    /// Recurring activities of users, instead of arrivals.
    pub activities: Vec<Activity>,
    /// Phones that register after a power cut, instead of arrivals.
    pub avalanche: Option<Avalanche>,
    /// The default duration, in the model's time.
    pub time: Option<Duration>,
    /// The beginning that is not counted, in the model's time.
    pub warm_up: Duration,
    /// How many times faster than the model's time the run is.
    pub speed: f64,
    /// Assumptions that reports declare.
    pub declared: Vec<(String, String)>,
}

/// A workload with a name.
#[derive(Clone, Copy, Debug)]
pub struct NamedWorkload {
    /// The name.
    pub name: &'static str,
    /// A description in one sentence.
    pub about: &'static str,
    /// The paper that it comes from; empty if there is none.
    pub paper: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Builds it; the name, declared parameters and speed are set afterwards.
    pub make: fn(&Parameters) -> Result<Workload, WorkloadError>,
    /// Whether its times are those of a model, which may run faster.
    pub is_model: bool,
}

/// All workloads.
pub const WORKLOADS: &[NamedWorkload] = &[
    known("proxy-200", "calls: INVITE, 180, 200, ACK, BYE, 200", "", basic::TIMES, basic::proxy_200),
    known("baseline", "the same, with 250 ms of ringing and talk", "", basic::FAULTS, basic::baseline),
    known(
        "handshake",
        "a connection, one request (OPTIONS or REGISTER) and its end per session",
        "",
        handshake::PARAMETERS,
        handshake::handshake,
    ),
    known("registration", "one REGISTER per session, users in turn", "", &[], basic::registration),
    avalanche::KNOWN,
    users::KNOWN,
    known(
        "mid-call",
        "calls with hold, UPDATE, INFO and session refreshes, from either side",
        "",
        mid_call::MID_CALL,
        mid_call::mid_call,
    ),
    known("message", "one MESSAGE per session (RFC 3428)", "", messaging::MESSAGE, messaging::message),
    known("publish", "PUBLISH, refreshes and removal (RFC 3903)", "", messaging::PUBLISH, messaging::publish),
    known(
        "subscribe",
        "SUBSCRIBE, NOTIFYs, refreshes and the end (RFC 6665)",
        "",
        messaging::SUBSCRIBE,
        messaging::subscribe,
    ),
    known("presence", "message, publish and subscribe by weight", "", messaging::PRESENCE, messaging::presence),
    known(
        "outbound",
        "calls to an address outside the server's domains",
        "SIPstone",
        sipstone::OUTBOUND,
        sipstone::outbound,
    ),
    known("redirect", "INVITE, 302, ACK", "SIPstone", &[], sipstone::redirect),
    known(
        "proxy-480",
        "INVITE to an unregistered user: 480, ACK",
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
    /// Returns the workload with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        WORKLOADS.iter().find(|known| known.name == name)
    }

    /// Builds it with these parameters.
    ///
    /// # Errors
    /// Says what is wrong with them.
    pub fn build(&self, parameters: &Parameters) -> Result<Workload, WorkloadError> {
        let named = |error: WorkloadError| WorkloadError(format!("{}: {error}", self.name));
        let workload = (self.make)(parameters).map_err(named)?;
        let mut declared = parameters.declared();
        declared.extend(workload.declared);
        Ok(Workload { name: self.name.to_owned(), speed: parameters.speed(), declared, ..workload })
    }
}

impl Workload {
    /// Returns a workload without scripts, for use as `..Workload::empty()`.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            name: String::new(),
            callers: Vec::new(),
            mix: Mix::One(0),
            callees: Vec::new(),
            answers: Vec::new(),
            registering: None,
            connection_lifetime: None,
            listen: None,
            activities: Vec::new(),
            avalanche: None,
            time: None,
            warm_up: Duration::ZERO,
            speed: 1.0,
            declared: Vec::new(),
        }
    }

    /// Returns the workload with this name and its defaults; `None` if there is none.
    ///
    /// # Errors
    /// Never for the built-in ones.
    pub fn by_name(name: &str) -> Result<Option<Self>, WorkloadError> {
        NamedWorkload::find(name).map(|known| known.build(&Parameters::new(known.parameters))).transpose()
    }

    /// Parses the value of `--workload`: a name, or several with weights, such as `proxy-200:70,registration:30`.
    /// `set` has values of parameters, as `name=value` or, for one member of a mix, `workload.name=value`. `speed` is
    /// relative to the model.
    ///
    /// # Errors
    /// Says what is wrong, and what to do.
    pub fn parse(text: &str, set: &[(String, String)], speed: f64) -> Result<Self, WorkloadError> {
        mixed::parse(text, set, speed)
    }

    /// Returns the workload of answered calls with these times.
    ///
    /// # Errors
    /// Never.
    pub fn calls(name: &str, times: &CallTimes) -> Result<Self, WorkloadError> {
        Ok(Self { name: name.to_owned(), ..basic::answered(times)? })
    }
}

/// Returns the names of all workloads, for messages.
#[must_use]
pub fn names() -> String {
    let names: Vec<_> = WORKLOADS.iter().map(|known| known.name).collect();
    names.join(", ")
}
