//! `[cluster]`: servers that share registrations.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{EngineUrl, OneOrMany};

/// `[cluster]`: servers ("members") that share registrations, through an engine or by forwarding them to each other.
/// Without this section, the server stands alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The engine: redis://HOST:PORT for Redis or Valkey, redis+sentinel://HOST:PORT/MASTER if sentinels name the
    /// master, redis+cluster://HOST:PORT for a cluster, or postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE
    /// for PostgreSQL and MariaDB. Several servers can be given in one URL, separated by commas, or in a list. The
    /// first writable one is used, and another one if it fails. Either store or peers is required.
    #[serde(default, skip_serializing_if = "OneOrMany::is_any")]
    pub store: OneOrMany<EngineUrl>,
    /// Alternative to an engine: listening addresses of the other members (their cluster.listen), such as
    /// 192.0.2.2:5064. This member forwards each accepted REGISTER to all of them. The list may contain this member's
    /// own address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<SocketAddr>,
    /// With peers: UDP address where this member takes forwarded changes, such as 192.0.2.1:5064.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// This member's number, from 1 to 1023, unique in the cluster.
    #[schemars(range(min = 1, max = 1023))]
    pub member: u16,
    /// Address where this member takes SIP requests from other members for phones that only it can reach, such as
    /// 192.0.2.1:5060. Default: the first UDP listening address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Name of the cluster; several clusters may use the same engine.
    #[serde(default = "default_name")]
    pub name: String,
    /// Number of engine replicas that must have a change before it counts as stored in the engine.
    #[serde(default)]
    #[schemars(range(max = 16))]
    pub replicas: u8,
    /// What a 200 to a REGISTER guarantees besides store.mode: disk (nothing more; other members learn of it soon) or
    /// engine (the engine has stored it). Default: engine; with peers, disk is the only choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
}

impl Cluster {
    /// Returns what a 200 guarantees.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability.unwrap_or(if self.peers.is_empty() { Durability::Engine } else { Durability::Disk })
    }
}

fn default_name() -> String {
    "strowger".to_owned()
}

/// `cluster.durability`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Cluster::durability` says what they mean")]
pub enum Durability {
    Disk,
    Engine,
}
