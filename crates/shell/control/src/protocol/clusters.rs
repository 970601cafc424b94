//! Messages about the clusters that users are spread over.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Proposed weights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightProposal {
    /// Cluster names with their proposed weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<(String, u16)>,
    /// Whether to choose all weights so that each member has the same load.
    #[serde(default)]
    pub even: bool,
}

/// Current and proposed state of the clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Clusters {
    /// Clusters, in configuration order.
    pub clusters: Vec<ClusterShare>,
    /// Share of users that would move under the proposed weights, from 0 to 1.
    pub moves: Option<f64>,
    /// Share of users that moved with the last change; those who have not registered since are looked up in their
    /// previous cluster.
    pub moved: f64,
    /// Seconds until all moved users must have registered again.
    pub moving_s: Option<u64>,
    /// Share of load from users that weights cannot separate: those of the busiest of 65,536 slots.
    pub busiest: f64,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterShare {
    /// Its name.
    pub name: String,
    /// Number of known members.
    pub members: u64,
    /// Number of members in service; none if this server does not probe them.
    pub in_service: Option<u64>,
    /// Current state.
    pub now: Share,
    /// Proposed state.
    pub then: Option<Share>,
}

/// A cluster's share of users and load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// Its weight.
    pub weight: u16,
    /// Share of all possible users, from 0 to 1.
    pub share: f64,
    /// Number of its users known to this server.
    pub users: u64,
    /// Recent requests, with a half-life of five minutes.
    pub requests: u64,
    /// Calls among these.
    pub calls: u64,
    /// Share of the requests, from 0 to 1.
    pub load: f64,
}
