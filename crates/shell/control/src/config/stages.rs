//! Two stages: first-stage servers that spread users over clusters, and the clusters.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::balancing::{Probe, Probing};
use super::cluster::Durability;
use super::values::{EngineUrl, OneOrMany, TargetSource};
use super::{Config, Span};

/// Default weight of a cluster.
const WEIGHT: u16 = 100;
/// Default port where members without an engine listen for each other, on their SIP address.
const PEER_PORT: u16 = 5064;

/// `[[first_stage]]`: a server that passes each request to the cluster of its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstStage {
    /// Name, as in `strowger serve --as NAME`. Default of that option: the host name.
    pub name: String,
    /// Address for requests over UDP and TCP, such as 192.0.2.1:5060. Default: server.listen; then NAME-0, NAME-1 and
    /// so on are also servers of the first stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

/// `[[second_stage]]`: a cluster that serves a share of the users. Its members share their registrations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecondStage {
    /// Name of the cluster. Users are assigned by this name, so it must not change.
    pub name: String,
    /// Weight among all clusters, which determines its share of the users. 0: no users.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Previous weight after a change: users who have not registered since are looked up in their previous cluster.
    /// 0: the cluster is new. Can be removed once registrar.expires.max has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_weight: Option<u16>,
    /// Engine for sharing registrations, like cluster.store. Default: members forward them to each other.
    #[serde(default, skip_serializing_if = "OneOrMany::is_any")]
    pub store: OneOrMany<EngineUrl>,
    /// Like cluster.replicas.
    #[serde(default)]
    #[schemars(range(max = 16))]
    pub replicas: u8,
    /// Like cluster.durability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Members of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<StageMember>,
    /// Alternative to members, with an engine: addresses from DNS ("srv:DOMAIN" or "dns:HOST:PORT"). Member NAME-0
    /// has the number 1, NAME-1 the number 2 and so on, like the pods of a Kubernetes StatefulSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetSource>,
    /// Health probes of its members by the other servers, like balancer.probe.
    #[serde(default = "default_probe")]
    pub probe: Probing,
}

/// `second_stage.members`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageMember {
    /// Name, as in `strowger serve --as NAME`.
    pub name: String,
    /// Address for requests over UDP and TCP, such as 192.0.2.11:5060.
    pub address: SocketAddr,
    /// Number in the cluster, like cluster.member. Default: position in the list, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1023))]
    pub number: Option<u16>,
    /// Without an engine: UDP address for forwarded changes. Default: port 5064 of its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
}

fn default_weight() -> u16 {
    WEIGHT
}

/// Default probes, frequent enough to detect a dead member within a second.
fn default_probe() -> Probing {
    Probing(Some(Probe { interval: Span::from_millis(250), timeout: Span::from_millis(250), ..Probe::default() }))
}

impl SecondStage {
    /// Returns the weight before the last change.
    #[must_use]
    pub fn weight_before(&self) -> u16 {
        self.previous_weight.unwrap_or(self.weight)
    }

    /// Returns the number of the member at this index.
    pub(super) fn number(&self, at: usize) -> Option<u16> {
        self.members.get(at)?.number.or_else(|| u16::try_from(at + 1).ok())
    }

    /// Whether its members share registrations.
    pub(super) fn is_shared(&self) -> bool {
        !self.store.0.is_empty() || self.members.len() > 1
    }
}

impl StageMember {
    /// Returns the address for forwarded changes.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer.unwrap_or_else(|| SocketAddr::new(self.address.ip(), PEER_PORT))
    }
}

impl Config {
    /// Whether the file is for several servers.
    #[must_use]
    pub const fn has_stages(&self) -> bool {
        !self.first_stage.is_empty() || !self.second_stage.is_empty()
    }

    /// Returns the possible names of a server of these stages.
    #[must_use]
    pub fn stage_names(&self) -> Vec<String> {
        let first = self.first_stage.iter().map(|server| server.name.clone());
        let second = self.second_stage.iter().flat_map(|cluster| {
            let listed = cluster.members.iter().map(|member| member.name.clone());
            listed.chain((!cluster.targets.is_empty()).then(|| format!("{}-0", cluster.name)))
        });
        first.chain(second).collect()
    }
}
