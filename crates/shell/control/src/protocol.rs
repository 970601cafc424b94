//! What is said over the control socket: one JSON object a line, a request and then its response.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What a running server can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How it is.
    Status,
    /// Who is registered.
    Registrations {
        /// Only this address of record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// At most so many contacts.
        limit: usize,
    },
    /// To read its configuration and its users again.
    Reload,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Registrations`].
    Registrations(Registrations),
    /// To [`Request::Reload`]: what was done.
    Reloaded(String),
    /// To anything: why not.
    Error(String),
}

/// Totals by part and name.
pub type Counters = BTreeMap<String, BTreeMap<String, u64>>;

/// How a server is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Contacts that are registered.
    pub registrations: u64,
    /// Addresses of record with a contact.
    pub addresses: u64,
    /// Users in the directory.
    pub users: u64,
    /// Transactions in progress.
    pub transactions: u64,
    /// Threads that handle messages.
    pub workers: u64,
    /// Whether it is being stopped.
    pub draining: bool,
    /// Where it listens.
    pub listeners: Vec<String>,
    /// What it is responsible for.
    pub domains: Vec<String>,
    /// Totals since the start, by part (`sockets`, `workers`, `shards`) and name.
    pub counters: Counters,
}

/// Who is registered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Registrations {
    /// The contacts, up to the limit.
    pub registrations: Vec<Registration>,
    /// Whether there are more.
    pub more: bool,
}

/// One contact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// The address of record.
    pub aor: String,
    /// The contact's URI; what a peer wrote, with control characters escaped.
    pub contact: String,
    /// Seconds until it ends.
    pub expires_s: u64,
    /// Where its REGISTER came from.
    pub source: SocketAddr,
    /// Its preference, 0 to 1.
    pub q: f64,
}

/// The most contacts in one answer.
pub const MAX_LISTED: usize = 10_000;
