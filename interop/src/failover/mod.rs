//! Ways to fail over, each as it is set up, and what callers notice of it: servers of one way run, clients call and register at a
//! steady rate, something dies, and each call and each acknowledged registration is accounted for.
//!
//! A way is a [`Method`]: a file here, and a line in [`METHODS`].

mod clients;
mod database;
mod flows;
mod members;
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
pub use flows::FLOWS;
pub use members::members_on_this_machine;
pub use phones::Phones;
pub use series::{Attempt, LATE, Series};
pub use srv::SRV;
pub use stages::{FIRST_STAGE, STAGES_BY_ENGINE, STAGES_BY_PEERS};
pub use takeover::{TAKEOVER, Takeover};
pub use two_servers::{SECOND_BY_ENGINE, SECOND_BY_PEERS};

/// All ways.
pub const METHODS: [&dyn Method; 9] = [
    &SECOND_BY_PEERS,
    &SECOND_BY_ENGINE,
    &FLOWS,
    &SRV,
    &TAKEOVER,
    &DATABASE,
    &STAGES_BY_PEERS,
    &STAGES_BY_ENGINE,
    &FIRST_STAGE,
];

/// How many phones are called.
const PHONES: usize = 20;

/// What dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The first server's process (SIGKILL); its machine says that nobody listens.
    Process,
    /// The first server's machine: nothing comes from it any more.
    Machine,
    /// The engine, or the first server's database.
    Engine,
    /// The first server's process and its database at once.
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

/// The times that formulas of a failover are told of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// T_R: after how much silence who asks asks another server; zero where there is nobody who does.
    pub retry: Duration,
    /// T_D: for how long who asks goes on asking for the one that died.
    pub detection: Duration,
    /// T_d: how long a registration takes to the other server.
    pub replication: Duration,
}

impl Times {
    /// Of those who ask the next server where one is silent: where its machine says that nobody listens they do not wait.
    const fn of_clients(fault: Fault, replication: Duration) -> Option<Times> {
        let wait = match fault {
            Fault::Machine => RETRY,
            Fault::Process | Fault::ProcessAndEngine => Duration::ZERO,
            Fault::Engine => return None,
        };
        Some(Times { retry: wait, detection: wait, replication })
    }
}

/// A way to fail over.
pub trait Method: fmt::Debug + Sync {
    /// Its name, as a user asks for it.
    fn name(&self) -> &'static str;
    /// What it is, in a line.
    fn describe(&self) -> &'static str;
    /// What can be done to it.
    fn faults(&self) -> &'static [Fault];
    /// Whether all programs are installed that it needs; else says what is skipped.
    fn is_available(&self) -> bool;
    /// The times that decide what callers notice of this; nothing where calls do not ask what dies.
    fn times(&self, fault: Fault) -> Option<Times>;
    /// Starts its servers, and registers its phones.
    ///
    /// # Panics
    /// When something does not start.
    fn start(&self) -> Box<dyn Deployment>;
}

/// Servers of one way that run.
pub trait Deployment: fmt::Debug {
    /// Where clients are.
    fn clients(&self) -> &Machine;
    /// Whom they ask, in this order.
    fn servers(&self) -> Vec<SocketAddr>;
    /// After how much silence they ask the next one.
    fn retry(&self) -> Duration {
        RETRY
    }
    /// Those who are called.
    fn phones(&self) -> &Phones;
    /// Lets something die.
    fn strike(&mut self, fault: Fault);
    /// The server that is to have all registrations then.
    fn survivor(&self) -> &Server;
    /// Brings back what has died.
    ///
    /// # Panics
    /// When it does not come back.
    fn mend(&mut self, fault: Fault);
}

/// After how much silence clients ask the next server: T1 of RFC 3261 §17 once, before they would send again.
pub const RETRY: Duration = Duration::from_millis(500);

/// How long what one member tells the other may be on its way.
const SETTLED: Duration = Duration::from_secs(5);

/// How much is asked for, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls a second.
    pub calls: f64,
    /// Registrations of new users a second.
    pub registrations: f64,
    /// How long all is well.
    pub before: Duration,
    /// How long clients go on after the fault.
    pub after: Duration,
    /// How long a client waits before it has failed.
    pub patience: Duration,
    /// Who is called besides the phones of the way.
    pub callee: Option<&'static str>,
}

impl Load {
    /// What is enough to see an outage.
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
    /// Registrations that were answered with 200.
    pub acknowledged: u64,
    /// Those of them that the survivor does not have while what died stays dead.
    pub away: u64,
    /// Those of them that it does not have either once that is back.
    pub lost: u64,
    /// How many requests were refused, by status.
    pub refused: BTreeMap<u16, u64>,
}

/// Starts a way, lets something die under this load, and tells what callers noticed.
///
/// # Panics
/// When something does not start.
#[must_use]
pub fn run(method: &dyn Method, fault: Fault, load: &Load) -> Outcome {
    let mut site = method.start();
    observe(site.as_mut(), fault, load)
}

/// The same of one that runs already.
///
/// # Panics
/// When its servers cannot be asked.
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

/// How many of these users the survivor does not have once it was given time to hear of them.
fn settled(site: &dyn Deployment, users: &[String]) -> u64 {
    let missing = || missing(site.survivor(), users);
    poll(SETTLED, || (missing() == 0).then_some(0)).unwrap_or_else(missing)
}

/// Who is called.
fn callees() -> Vec<String> {
    (0..PHONES).map(|number| format!("phone{number}")).collect()
}

/// How many of these users a server does not have.
fn missing(server: &Server, users: &[String]) -> u64 {
    let registered: BTreeSet<String> = server.registered();
    users.iter().filter(|user| !registered.contains(&format!("{user}@example.com"))).count() as u64
}
