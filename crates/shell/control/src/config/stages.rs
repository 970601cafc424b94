//! Two stages: servers of a first stage that spread users over clusters, and the clusters, as they are written.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::balancing::{Probe, Probing};
use super::cluster::Promise;
use super::values::{EngineUrl, OneOrMany, TargetSource};
use super::{Config, Span};

/// The weight of a cluster that has none given.
const WEIGHT: u16 = 100;
/// Where members without an engine listen for one another, on the address that they take SIP at.
const PEER_PORT: u16 = 5064;

/// `[[first_stage]]`: a server that passes each request to the cluster of its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstStage {
    /// What it is called: `strowger serve --as NAME`. Not given there: the machine's host name.
    pub name: String,
    /// Where it takes requests by UDP and TCP, as 192.0.2.1:5060. Not given: as server.listen says; then NAME-0, NAME-1 and so on are
    /// servers of the first stage, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

/// `[[second_stage]]`: a cluster, which has a share of the users. Its members share their registrations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecondStage {
    /// What the cluster is called. Its users are chosen by its name, so it keeps it.
    pub name: String,
    /// Its share of the users is its weight among those of all clusters. 0: nobody.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// The weight that it had before, where that has changed: who has not registered since is asked for where he was. 0: it is new. It may
    /// go when registrar.expires.max has passed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<u16>,
    /// The engine by which its members share registrations, as cluster.store. Not given: they forward them to each other.
    #[serde(default, skip_serializing_if = "OneOrMany::is_any")]
    pub store: OneOrMany<EngineUrl>,
    /// As cluster.replicas.
    #[serde(default)]
    #[schemars(range(max = 16))]
    pub replicas: u8,
    /// As cluster.promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
    /// Its members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<StageMember>,
    /// In place of members: where they are, as the DNS says ("srv:DOMAIN" or "dns:HOST:PORT"), and with an engine. Member NAME-0 has the number 1, NAME-1 the
    /// number 2 and so on, as a StatefulSet of Kubernetes calls its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetSource>,
    /// How the other servers look whether its members are alive, as balancer.probe.
    #[serde(default = "default_probe")]
    pub probe: Probing,
}

/// `second_stage.members`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageMember {
    /// What it is called: `strowger serve --as NAME`.
    pub name: String,
    /// Where it takes requests by UDP and TCP, as 192.0.2.11:5060.
    pub address: SocketAddr,
    /// Its number in the cluster, as cluster.member. Not given: its place in the list, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1023))]
    pub number: Option<u16>,
    /// Without an engine: where it takes what the others forward (UDP). Not given: port 5064 of its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
}

fn default_weight() -> u16 {
    WEIGHT
}

/// Often enough that a member that dies is left out within a second.
fn default_probe() -> Probing {
    Probing(Some(Probe { interval: Span::from_millis(250), timeout: Span::from_millis(250), ..Probe::default() }))
}

impl SecondStage {
    /// The weight that it had before the last change.
    #[must_use]
    pub fn weight_before(&self) -> u16 {
        self.was.unwrap_or(self.weight)
    }

    /// The number of the member at this place of the list.
    pub(super) fn number(&self, at: usize) -> Option<u16> {
        self.members.get(at)?.number.or_else(|| u16::try_from(at + 1).ok())
    }

    /// Whether its members share registrations.
    pub(super) fn is_shared(&self) -> bool {
        !self.store.0.is_empty() || self.members.len() > 1
    }
}

impl StageMember {
    /// Where it takes what the others forward.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer.unwrap_or_else(|| SocketAddr::new(self.address.ip(), PEER_PORT))
    }
}

impl Config {
    /// Whether one file is for several servers.
    #[must_use]
    pub const fn has_stages(&self) -> bool {
        !self.first_stage.is_empty() || !self.second_stage.is_empty()
    }

    /// The names that a server of these stages may have.
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
