//! Requirements of a service.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, not_negative, positive, share};
use crate::failover::FailoverTimes;
use crate::traffic::{Calls, Traffic, traffic};
use crate::two_stage::check_skew;

/// Requirements of a service in its busy hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requirements {
    /// Number of subscribers.
    pub subscribers: f64,
    /// Registered contacts per subscriber.
    pub contacts_per_subscriber: f64,
    /// Call volume.
    pub calls: Calls,
    /// Duration of a call, s.
    pub hold_s: f64,
    /// Ringing time, s.
    pub ring_s: f64,
    /// Requests per call besides INVITE, ACK and BYE.
    pub further_requests_per_call: f64,
    /// Interval between a contact's registrations, s.
    pub refresh_s: f64,
    /// Share of REGISTERs that are challenged.
    pub challenged_share: f64,
    /// Share of calls whose INVITE is challenged.
    pub challenged_calls_share: f64,
    /// f_s: share of calls that are forwarded statefully.
    pub stateful_share: f64,
    /// Share of contacts with a TCP connection.
    pub connected_share: f64,
    /// Share of the other contacts behind a NAT whose binding the server keeps open.
    ///
    /// The server does the same for a phone on a connection that does not keep it open itself, as in RFC 5626.
    pub nat_share: f64,
    /// Interval of keep-alives to each of them, s (`registrar.keepalive_interval`).
    pub keep_alive_s: f64,
    /// Required availability: 0.99999 is five nines.
    pub availability: f64,
    /// Failover method.
    pub failover: FailoverMethod,
    /// How members of a cluster share registrations.
    pub replication: Replication,
    /// Highest utilization of a server's processor, memory and network after one of its group has failed.
    pub utilization: f64,
    /// Load of the busiest cluster relative to the mean.
    pub skew: f64,
    /// Highest number of connections of a server (`tcp.connections`).
    pub connections_per_server: f64,
    /// T_R: time until a client tries another server, s.
    pub client_retry_s: f64,
    /// T_D: TTL of DNS records, s.
    pub dns_ttl_s: f64,
    /// T_M: mean time to repair, s.
    pub repair_s: f64,
    /// T_d: time to replicate a registration to the other members, s.
    pub replication_s: f64,
    /// T_c: time that a registration stays only in memory before replication, s.
    pub cache_s: f64,
}

/// Highest accepted value of `tcp.connections`.
pub const MOST_CONNECTIONS: f64 = 1e6;

/// Default of `tcp.connections`.
pub const DEFAULT_CONNECTIONS: f64 = 16_384.0;

/// Share of a server's connections for phones: one in 16 is reserved for connections that it opens itself.
pub(super) const CONNECTIONS_FOR_PHONES: f64 = 15.0 / 16.0;

impl Default for Requirements {
    /// Returns the TCP paper's subscribers (section 3.2): 0.1 erlang each, in calls of 180 s, registering every hour.
    ///
    /// All are behind NATs whose bindings the server keeps open, as by default. The availability is five nines, the
    /// highest utilization 70 %, and the times of a failure are those of [`FailoverTimes`].
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
    /// Returns the requests per call: INVITE, ACK, BYE and the further ones.
    pub fn requests_per_call(&self) -> f64 {
        3.0 + self.further_requests_per_call
    }

    /// Returns the traffic of the subscribers.
    ///
    /// # Errors
    /// Invalid numbers.
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

    /// Returns whether one member can replace another: it has the registrations, or phones have registered with it as
    /// well.
    pub(super) fn members_replace_each_other(&self) -> bool {
        self.replication != Replication::None || self.failover == FailoverMethod::Client
    }
}

/// Failover method (failover paper, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailoverMethod {
    /// Phones know all members, register with each and try the next (section 3.1).
    Client,
    /// DNS names a primary and backups on standby (section 3.2).
    Dns,
    /// A backup on standby takes over the primary's address (section 3.4).
    Takeover,
    /// All members serve and share registrations; when one fails, the others take over its load.
    Members,
}

/// How members of a cluster share registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replication {
    /// Not at all: a cluster has one member, or phones register with each ([`FailoverMethod::Client`]).
    None,
    /// Each REGISTER is passed on to all members through a shared engine, and each member holds it in memory (section
    /// 3.3, P1 to P2).
    Copies,
    /// Each member has a database, and all databases are replicas of each other (section 4.5).
    Store,
}
