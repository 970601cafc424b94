//! What is said of clusters that users are spread over.

use serde::{Deserialize, Serialize};

/// Other weights that are thought of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightProposal {
    /// Names of clusters, and the weight that each would have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<(String, u16)>,
    /// Whether all weights are to be chosen so that each member has the same load.
    #[serde(default)]
    pub even: bool,
}

/// The clusters as they are, and as they would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clusters {
    /// The clusters, in the order of the configuration.
    pub clusters: Vec<ClusterShare>,
    /// The share of the users that would move, from 0 to 1, where other weights are thought of.
    pub moves: Option<f64>,
    /// The share of the users that has moved lately: who has not registered since is asked for where he was.
    pub moved: f64,
    /// How many seconds it takes until all of those must have registered again.
    pub moving_s: Option<u64>,
    /// The share of the load that the users have who cannot be told apart by weights: those of the busiest slot of 65,536.
    pub busiest: f64,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterShare {
    /// Its name.
    pub name: String,
    /// Its members, as far as they are known.
    pub members: u64,
    /// Of these, those that take requests; none where this server does not ask them.
    pub in_service: Option<u64>,
    /// As it is.
    pub now: Share,
    /// As it would be.
    pub then: Option<Share>,
}

/// What a cluster has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Its weight.
    pub weight: u16,
    /// Its share of all possible users, from 0 to 1.
    pub share: f64,
    /// Users that this server knows.
    pub users: u64,
    /// Requests lately, of which those of five minutes ago count half.
    pub requests: u64,
    /// Of these, calls.
    pub calls: u64,
    /// Its share of the requests, from 0 to 1.
    pub load: f64,
}
