//! What is asked of a service.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, not_negative, positive, share};
use crate::traffic::{Calls, Traffic, traffic};

/// What is asked of a service, in its busy hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// How many.
    pub subscribers: f64,
    /// Registered contacts of each.
    pub contacts_per_subscriber: f64,
    /// How much they call.
    pub calls: Calls,
    /// How long a call lasts, s.
    pub hold_s: f64,
    /// How long it rings, s.
    pub ring_s: f64,
    /// Requests of a call beyond INVITE, ACK and BYE.
    pub further_requests_per_call: f64,
    /// How often a contact registers again, s.
    pub refresh_s: f64,
    /// The share of REGISTERs that are challenged.
    pub challenged_share: f64,
    /// f_s: the share of calls that are kept with transactions.
    pub stateful_share: f64,
    /// The share of contacts that hold a TCP connection.
    pub connected_share: f64,
    /// The availability that is promised: 0.99999 is five nines.
    pub availability: f64,
    /// What happens when a server fails.
    pub failover: FailoverMethod,
    /// How members of a cluster know each other's registrations.
    pub replication: Replication,
    /// The share of a server's time, memory and network that may be used, with one of its group gone.
    pub utilization: f64,
    /// The busiest cluster's load over the mean cluster's.
    pub skew: f64,
    /// T_R: after how long a client tries elsewhere, s.
    pub client_retry_s: f64,
    /// T_D: how long DNS records are kept, s.
    pub dns_ttl_s: f64,
    /// T_M: mean time to repair, s.
    pub repair_s: f64,
    /// T_d: how long a registration takes to the other members, s.
    pub replication_s: f64,
    /// T_c: how long it stays in memory alone before that, s.
    pub cache_s: f64,
}

/// What happens when a server fails (failover paper, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailoverMethod {
    /// Phones know all members, register with each, and try the next (section 3.1).
    Client,
    /// DNS names a primary and backups, which stand by (section 3.2).
    Dns,
    /// A backup takes over the primary's address, and stands by until then (section 3.4).
    Takeover,
    /// All members serve; the others take over the load of one that fails (DESIGN: another member of the cluster).
    Members,
}

/// How members of a cluster know each other's registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replication {
    /// Each REGISTER is passed on to all members, which keep it in memory (section 3.3, P1 to P2).
    Copies,
    /// Each member has a database; all are copies of each other (section 4.5).
    Store,
}
