//! Targets of balancers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of the balancers' targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Targets {
    /// Targets by balancer, in configuration order.
    pub targets: Vec<Target>,
}

/// A target of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Target {
    /// Id of the target, the same on every server that has it in a set of this name.
    pub id: String,
    /// Name of the balancer.
    pub set: String,
    /// URI as written.
    pub uri: String,
    /// State: `up`; `slow start`: recovered and getting part of its share; `draining`: no new calls; `down`: probes
    /// fail; `disabled`; `removed`: removed from its balancer, with calls in progress.
    pub state: String,
    /// Fraction of its full share, from 0 to 1; below 1 only in slow start.
    pub share: f64,
    /// Seconds since it went down or came back, in those states.
    #[serde(default)]
    pub since_s: Option<f64>,
    /// Whether it is draining, whatever its state.
    #[serde(default)]
    pub draining: bool,
    /// How calls detected an outage: `timeout`, `ICMP`, `no connection` or `503`; none if it answers.
    #[serde(default)]
    pub outage: Option<String>,
    /// Whether it has reached its maximum number of calls.
    #[serde(default)]
    pub full: bool,
    /// Priority; targets with a higher number are spares for lower ones.
    pub priority: u16,
    /// Weight among targets of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls; none for no limit.
    pub capacity: Option<u32>,
    /// Calls in progress.
    pub calls: u32,
    /// Transactions in progress.
    pub transactions: u32,
    /// Work of these transactions; a BYE is 1.
    pub work: f64,
    /// Mean time to the first response, in ms; none before the first response.
    pub response_time_ms: Option<f64>,
    /// Transactions since the server started.
    pub requests: u64,
    /// Number of these that got no answer, or a 503.
    pub failures: u64,
    /// What defines it: `configuration`, `set:NAME`, `list:FILE#SETID`, `srv:DOMAIN`, `dns:HOST:PORT`, or `operator`
    /// until the next reload; none if its source has removed it.
    #[serde(default)]
    pub origin: Option<String>,
}

/// A target to add to a balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTarget {
    /// The balancer's name.
    pub set: String,
    /// The target's SIP URI.
    pub uri: String,
    /// Priority; targets with a higher number are spares for lower ones.
    #[serde(default)]
    pub priority: u16,
    /// Weight among targets of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
}

/// A target changed by a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangedTarget {
    /// The target after the change.
    pub target: Target,
    /// How long the change lasts: `kept` (stored in the database), `until reload` (of the configuration) or `until
    /// restart`; `as before` if nothing changed.
    pub lasts: String,
}

/// Summary of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Balancer {
    /// Its name.
    pub name: String,
    /// Policy that chooses a target.
    pub policy: String,
    /// Number of targets.
    pub targets: u64,
    /// Number of targets that take new calls.
    pub in_service: u64,
    /// Calls in progress at the targets.
    pub calls: u64,
}
