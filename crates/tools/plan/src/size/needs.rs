//! What is asked of a service.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, not_negative, positive, share};
use crate::traffic::{Calls, Traffic, traffic};
use crate::two_stage::check_skew;

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
    /// The share of calls whose INVITE is challenged.
    pub challenged_calls_share: f64,
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

impl Default for Needs {
    /// The TCP paper's subscribers (section 3.2): 0.1 erlang each in calls of 180 s, registered again each hour. Five nines;
    /// 70 % of a server's time may be used; a server is repaired within an hour and clients try again after half a second
    /// (RFC 3261's T1).
    fn default() -> Self {
        Self {
            subscribers: 10_000.0,
            contacts_per_subscriber: 1.0,
            calls: Calls::Erlangs(0.1),
            hold_s: 180.0,
            ring_s: 10.0,
            further_requests_per_call: 0.0,
            refresh_s: 3_600.0,
            challenged_share: 1.0,
            challenged_calls_share: 1.0,
            stateful_share: 1.0,
            connected_share: 0.0,
            availability: 0.999_99,
            failover: FailoverMethod::Members,
            replication: Replication::Copies,
            utilization: 0.7,
            skew: 1.0,
            client_retry_s: 0.5,
            dns_ttl_s: 60.0,
            repair_s: 3_600.0,
            replication_s: 0.1,
            cache_s: 0.0,
        }
    }
}

impl Needs {
    /// Requests of a call: INVITE, ACK, BYE, and those beyond.
    pub fn requests_per_call(&self) -> f64 {
        3.0 + self.further_requests_per_call
    }

    /// What they send.
    ///
    /// # Errors
    /// Numbers that cannot be.
    pub fn traffic(&self) -> Result<Traffic, PlanError> {
        let mut traffic = traffic(self.subscribers, self.refresh_s, self.calls, self.hold_s, self.requests_per_call())?;
        traffic.registers_per_s *= positive("contacts of a subscriber", self.contacts_per_subscriber)?;
        Ok(traffic)
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        positive("subscribers", self.subscribers)?;
        not_negative("further requests of a call", self.further_requests_per_call)?;
        not_negative("ring time", self.ring_s)?;
        share("challenged share of REGISTERs", self.challenged_share)?;
        share("challenged share of calls", self.challenged_calls_share)?;
        share("stateful share", self.stateful_share)?;
        share("connected share", self.connected_share)?;
        share("availability", self.availability)?;
        positive("utilization", share("utilization", self.utilization)?)?;
        check_skew(self.skew)?;
        self.traffic().map(|_| ())
    }
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
    /// All members serve; the others take over the load of one that fails (they share registrations).
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
