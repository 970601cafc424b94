//! The server's status.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Balancer, CallSetup, Cluster, Store, Takeover};

/// Status of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the server.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Number of registered contacts.
    pub registrations: u64,
    /// Number of addresses of record with a contact.
    pub addresses: u64,
    /// Number of users in the directory.
    pub users: u64,
    /// Number of transactions in progress.
    pub transactions: u64,
    /// Number of worker threads.
    pub workers: u64,
    /// Load of each worker; empty from a server that does not report it.
    #[serde(default)]
    pub loads: Vec<WorkerLoad>,
    /// Whether the server is shutting down.
    pub draining: bool,
    /// Overload control; default from a server without it.
    #[serde(default)]
    pub overload: Overload,
    /// Listening addresses.
    pub listeners: Vec<String>,
    /// Domains that the server is responsible for.
    pub domains: Vec<String>,
    /// Storage of registrations; none from a server that keeps them in memory only.
    #[serde(default)]
    pub store: Option<Store>,
    /// Other members that share registrations; none for a server without a cluster.
    #[serde(default)]
    pub cluster: Option<Cluster>,
    /// Database that users are copied from; none for a server with its own users.
    #[serde(default)]
    pub users_database: Option<Database>,
    /// Database that receives call records; none if the server writes to none.
    #[serde(default)]
    pub calls_database: Option<Database>,
    /// Trunks that the server registers with.
    #[serde(default)]
    pub trunks: Vec<Trunk>,
    /// Next hops that do not answer.
    #[serde(default)]
    pub outages: Vec<Outage>,
    /// The balancers.
    #[serde(default)]
    pub balancers: Vec<Balancer>,
    /// How it has replaced an earlier process; none for a server that was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takeover: Option<Takeover>,
    /// Certificates for TLS.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    /// Media engines, if calls go through them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<MediaEngine>,
    /// Fingerprint of the server's key. Servers with the same key show the same value.
    #[serde(default)]
    pub key: String,
    /// Times of call setup since the start.
    #[serde(default)]
    pub call_setup: CallSetup,
    /// Counters since the start, by section (`sockets`, `workers`, `shards`, `connections`, `transports`, `dns`,
    /// `names`, `targets`, `bans`, `cdr`) and name. `connections.open`, `transports.*_open`, `names.entries`, `avoided`,
    /// `balanced`, `down` and `draining` of `targets`, and `banned` and `suspects` of `bans` are current values.
    #[schema(value_type = BTreeMap<String, BTreeMap<String, u64>>)]
    pub counters: Counters,
}

/// Counters by section and name.
pub type Counters = BTreeMap<String, BTreeMap<String, u64>>;

/// Load of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerLoad {
    /// Number of shards it runs.
    pub shards: u64,
    /// Fraction of time spent working, from 0 to 1.
    pub load: f64,
    /// Whether it busy-polls the rest of the time; the system then shows a busy core.
    #[serde(default)]
    pub awake: bool,
}

/// State of overload control.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Overload {
    /// Number of workers that refuse new work.
    pub limiting: u64,
    /// Share of new calls refused or dropped, from 0 to 1.
    pub shed: f64,
    /// New work admitted per second by the limiting workers.
    pub admitted_per_s: u64,
    /// Time that new work waits before it is read, in µs.
    pub wait_us: u64,
    /// What separates calls in progress from new work: `kernel`, `worker`, or `nobody` if control is off or there is
    /// no UDP listener.
    pub sorted_by: String,
    /// Number of workers for which the kernel drops what would be refused.
    pub filtered_by_kernel: u64,
}

/// A next hop that does not answer, under one of its names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outage {
    /// Its URI as a gateway or in the configuration; none if only the address is known.
    pub uri: Option<String>,
    /// Gateway set that it belongs to.
    pub set: Option<String>,
    /// Trunk that it is a target of.
    pub trunk: Option<String>,
    /// Transport, address and port.
    pub address: String,
    /// How the outage was last detected: `timeout`, `ICMP`, `no connection` or `503`.
    pub cause: String,
    /// Seconds since the outage was first detected.
    pub since_s: f64,
    /// Seconds for which other next hops are preferred; none if it has not been tried since.
    pub avoided_s: Option<f64>,
}

/// A trunk that the server registers with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trunk {
    /// Name in the configuration.
    pub name: String,
    /// `registering`, `registered`, `failing`, `refused`, `leaving` or `stopped`.
    pub state: String,
    /// Seconds in this state.
    pub since_s: f64,
    /// Seconds until the registration expires, also while refreshing fails; none if not registered.
    pub expires_s: Option<f64>,
    /// Status of the last final response to the latest request; none if there was none.
    pub last_answer: Option<u16>,
    /// Seconds until the next request; none while one is pending.
    pub next_try_s: Option<f64>,
}

/// A shared database of users and gateways, or of call records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Database {
    /// Addresses of the database servers; one of them is used.
    pub databases: Vec<String>,
    /// Why the database cannot be followed or written.
    pub trouble: Option<String>,
    /// Duration of the trouble, in seconds.
    pub trouble_s: Option<f64>,
}

/// A certificate of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Certificate {
    /// Its file.
    pub file: String,
    /// The domains that it speaks for (RFC 5922).
    pub domains: Vec<String>,
    /// Days until it expires, rounded down; negative if it has expired, none if unknown.
    pub expires_days: Option<i64>,
}

/// A media engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MediaEngine {
    /// Its address for commands.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Whether it answers.
    pub is_up: bool,
}
