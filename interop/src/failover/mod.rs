//! Failover methods as they are deployed, and what callers notice of each. The servers of one method run, clients
//! call and register at a steady rate, something fails, and each call and each acknowledged registration is accounted
//! for.
//!
//! A failover method is a [`Method`]: a file in this folder and a line in [`METHODS`].

mod clients;
mod database;
mod flows;
mod members;
mod name_server;
mod pair;
mod phones;
mod request;
mod series;
mod srv;
mod stages;
mod takeover;
mod two_servers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::machine::Machine;
use crate::{Server, poll};

pub use clients::{Clients, History, Plan};
pub use database::DATABASE;
pub use flows::SECOND_FLOW;
pub use members::members_on_this_machine;
pub use phones::Phones;
pub use series::{Attempt, LATE, Series};
pub use srv::SRV;
pub use stages::{FIRST_STAGE, STAGES_BY_ENGINE, STAGES_BY_PEERS};
pub use takeover::{TAKEOVER, Takeover};
pub use two_servers::{SECOND_BY_ENGINE, SECOND_BY_PEERS};

/// All failover methods.
pub const METHODS: [&dyn Method; 9] = [
    &SECOND_BY_PEERS,
    &SECOND_BY_ENGINE,
    &SECOND_FLOW,
    &SRV,
    &TAKEOVER,
    &DATABASE,
    &STAGES_BY_PEERS,
    &STAGES_BY_ENGINE,
    &FIRST_STAGE,
];

/// Number of phones that are called.
const PHONES: usize = 20;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The first server's process (SIGKILL). Its machine reports the closed port.
    Process,
    /// The first server's machine. It sends nothing more.
    Machine,
    /// The engine, or the first server's database.
    Engine,
    /// The first server's process and its database at the same time.
    ProcessAndEngine,
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Process => "server",
            Self::Machine => "machine",
            Self::Engine => "engine",
            Self::ProcessAndEngine => "server and engine",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parameters of a failover method for the formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// T_R: time without an answer after which the sender tries another server. Zero if no sender has to wait.
    pub retry: Duration,
    /// T_D: time for which senders keep trying the failed server.
    pub detection: Duration,
    /// T_d: time until a registration reaches the other server.
    pub replication: Duration,
}

impl Times {
    /// Returns the times for clients that try the next server after a timeout. They do not wait if the machine
    /// reports a closed port.
    const fn of_clients(fault: Fault, replication: Duration) -> Option<Times> {
        let wait = match fault {
            Fault::Machine => RETRY,
            Fault::Process | Fault::ProcessAndEngine => Duration::ZERO,
            Fault::Engine => return None,
        };
        Some(Times { retry: wait, detection: wait, replication })
    }
}

/// A failover method.
pub trait Method: fmt::Debug + Sync {
    /// Returns the name, as given on the command line.
    fn name(&self) -> &'static str;
    /// Returns a description of one line.
    fn describe(&self) -> &'static str;
    /// Returns the faults that can be injected.
    fn faults(&self) -> &'static [Fault];
    /// Returns whether all required programs are installed. If not, prints what is skipped.
    fn is_available(&self) -> bool;
    /// Returns the times that determine what callers notice, or `None` if calls do not depend on what fails.
    fn times(&self, fault: Fault) -> Option<Times>;
    /// Starts the servers and registers the phones.
    ///
    /// # Panics
    /// If something does not start.
    fn start(&self) -> Box<dyn Deployment>;
}

/// The running servers of a failover method.
pub trait Deployment: fmt::Debug {
    /// Returns the clients' machine.
    fn clients(&self) -> &Machine;
    /// Returns the servers in the clients' order of preference.
    fn servers(&self) -> Vec<SocketAddr>;
    /// Returns the time without an answer after which clients try the next server.
    fn retry(&self) -> Duration {
        RETRY
    }
    /// Returns the phones that are called.
    fn phones(&self) -> &Phones;
    /// Injects a fault.
    fn strike(&mut self, fault: Fault);
    /// Returns the server that must then have all registrations.
    fn survivor(&self) -> &Server;
    /// Repairs what has failed.
    ///
    /// # Panics
    /// If it does not come back.
    fn mend(&mut self, fault: Fault);
}

/// Time without an answer after which clients try the next server: T1 (RFC 3261 §17), when they would retransmit.
pub const RETRY: Duration = Duration::from_millis(500);

/// Maximum time for a change to reach the other member.
const SETTLED: Duration = Duration::from_secs(5);

/// Rates and durations of the clients' load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls per second.
    pub calls: f64,
    /// Registrations of new users per second.
    pub registrations: f64,
    /// Time before the fault.
    pub before: Duration,
    /// Time for which clients continue after the fault.
    pub after: Duration,
    /// Time after which an attempt has failed.
    pub patience: Duration,
    /// Callee in addition to the phones of the method.
    pub callee: Option<&'static str>,
}

impl Load {
    /// Load that suffices to see an outage.
    pub const SHORT: Load = Load {
        calls: 50.0,
        registrations: 25.0,
        before: Duration::from_secs(1),
        after: Duration::from_secs(3),
        patience: Duration::from_secs(8),
        callee: None,
    };
}

/// What callers noticed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Calls.
    pub calls: Series,
    /// Registrations.
    pub registrations: Series,
    /// Registrations answered with 200.
    pub acknowledged: u64,
    /// Acknowledged registrations that the survivor lacks before the repair.
    pub away: u64,
    /// Acknowledged registrations that it still lacks after the repair.
    pub lost: u64,
    /// Number of refused requests by status.
    pub refused: BTreeMap<u16, u64>,
}

/// Starts a failover method, injects a fault under this load, and returns what callers noticed.
///
/// # Panics
/// If something does not start.
#[must_use]
pub fn run(method: &dyn Method, fault: Fault, load: &Load) -> Outcome {
    let mut site = method.start();
    observe(site.as_mut(), fault, load)
}

/// Like [`run`], for a method that is already running.
///
/// # Panics
/// If its servers cannot be queried.
#[must_use]
pub fn observe(site: &mut dyn Deployment, fault: Fault, load: &Load) -> Outcome {
    let plan = Plan {
        servers: site.servers(),
        retry: site.retry(),
        patience: load.patience,
        calls: load.calls,
        registrations: load.registrations,
        callees: callees().into_iter().chain(load.callee.map(str::to_owned)).collect(),
        contact: site.phones().address(),
    };
    let clients = Clients::start(site.clients(), plan);
    thread::sleep(load.before);
    site.strike(fault);
    thread::sleep(load.after);
    let History { calls, registrations, acknowledged, refused } = clients.finish();
    let away = settled(site, &acknowledged);
    let lost = if away == 0 {
        0
    } else {
        site.mend(fault);
        settled(site, &acknowledged)
    };
    let acknowledged = acknowledged.len() as u64;
    Outcome { calls: Series::of(&calls), registrations: Series::of(&registrations), acknowledged, away, lost, refused }
}

/// Returns how many of these users the survivor lacks after the time allowed for replication.
fn settled(site: &dyn Deployment, users: &[String]) -> u64 {
    let missing = || missing(site.survivor(), users);
    poll(SETTLED, || (missing() == 0).then_some(0)).unwrap_or_else(missing)
}

/// Returns the names of the called users.
fn callees() -> Vec<String> {
    (0..PHONES).map(|number| format!("phone{number}")).collect()
}

/// Returns how many of these users a server lacks.
fn missing(server: &Server, users: &[String]) -> u64 {
    let registered: BTreeSet<String> = server.registered();
    users.iter().filter(|user| !registered.contains(&format!("{user}@example.com"))).count() as u64
}
