//! What is asked of a service.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, not_negative, positive, share};
use crate::failover::FailoverTimes;
use crate::traffic::{Calls, Traffic, traffic};
use crate::two_stage::check_skew;

/// What is asked of a service, in its busy hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requirements {
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
    /// The share of the other contacts that are behind a NAT, whose way in the server keeps open. (It also does that for a phone
    /// on a connection that does not keep it open itself, as RFC 5626 has it.)
    pub nat_share: f64,
    /// How often it sends to each of them, s (`registrar.keepalive_interval`).
    pub keep_alive_s: f64,
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
    /// Connections that a server may have at most (`tcp.connections`).
    pub connections_per_server: f64,
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

/// The most that `tcp.connections` may be.
pub const MOST_CONNECTIONS: f64 = 1e6;

/// What `tcp.connections` is where nobody sets it.
pub const DEFAULT_CONNECTIONS: f64 = 16_384.0;

/// The share of its connections that a server has for phones: one of 16 is kept for those that it opens itself.
pub(super) const CONNECTIONS_FOR_PHONES: f64 = 15.0 / 16.0;

impl Default for Requirements {
    /// The TCP paper's subscribers (section 3.2): 0.1 erlang each in calls of 180 s, registered again each hour. All of them are
    /// behind NATs, which the server keeps open as it does unless told otherwise. Five nines; 70 % of a server's time may be
    /// used; the times of a failure are those of [`FailoverTimes`].
    fn default() -> Self {
        let times = FailoverTimes::default();
        Self {
            subscribers: 10_000.0,
            contacts_per_subscriber: 1.0,
            calls: Calls::Erlangs(0.1),
            hold_s: 180.0,
            ring_s: 10.0,
            further_requests_per_call: 0.0,
            refresh_s: times.refresh_s,
            challenged_share: 1.0,
            challenged_calls_share: 1.0,
            stateful_share: 1.0,
            connected_share: 0.0,
            nat_share: 1.0,
            keep_alive_s: 30.0,
            availability: 0.999_99,
            failover: FailoverMethod::Members,
            replication: Replication::Copies,
            utilization: 0.7,
            skew: 1.0,
            connections_per_server: MOST_CONNECTIONS,
            client_retry_s: times.client_retry_s,
            dns_ttl_s: times.dns_ttl_s,
            repair_s: times.repair_s,
            replication_s: times.replication_s,
            cache_s: times.cache_s,
        }
    }
}

impl Requirements {
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
        share("share behind a NAT", self.nat_share)?;
        positive("keep-alive interval", self.keep_alive_s)?;
        share("availability", self.availability)?;
        positive("utilization", share("utilization", self.utilization)?)?;
        let connections = positive("connections of a server", self.connections_per_server)?;
        if connections > MOST_CONNECTIONS {
            return Err(PlanError::TooMany {
                input: "connections of a server".into(),
                value: connections,
                limit: MOST_CONNECTIONS,
            });
        }
        check_skew(self.skew)?;
        self.traffic().map(|_| ())
    }

    /// Whether one member can stand in for another: it knows the registrations, or phones have registered with it, too.
    pub(super) fn members_replace_each_other(&self) -> bool {
        self.replication != Replication::None || self.failover == FailoverMethod::Client
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
    /// They do not: a cluster has one member, or phones register with each of them ([`FailoverMethod::Client`]).
    None,
    /// Each REGISTER is passed on to all members, through an engine that they share, and each keeps it in memory (section 3.3, P1
    /// to P2).
    Copies,
    /// Each member has a database; all are copies of each other (section 4.5).
    Store,
}
