//! `[cluster]`: servers that share registrations.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{EngineUrl, OneOrMany};

/// `[cluster]`: servers ("members") that share registrations, through an engine or by forwarding them to each other. Without it a server is alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The engine: redis://HOST:PORT for Redis or Valkey, redis+sentinel://HOST:PORT/MASTER where sentinels say which one is the master,
    /// redis+cluster://HOST:PORT for a cluster, or postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE for PostgreSQL and MariaDB.
    /// Several servers stand in one URL with commas, or in a list. The first one that can be written to is used, and another one when that
    /// fails. Either this or peers is given.
    #[serde(default, skip_serializing_if = "OneOrMany::is_any")]
    pub store: OneOrMany<EngineUrl>,
    /// In place of an engine: where the other members listen (their cluster.listen), as 192.0.2.2:5064. Each REGISTER that this member accepts is
    /// forwarded to all of them. This member's own address may be in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<SocketAddr>,
    /// With peers: where this member takes what the others forward (UDP), as 192.0.2.1:5064.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// This member's number, from 1 to 1023. No two members have the same.
    #[schemars(range(min = 1, max = 1023))]
    pub member: u16,
    /// Where this member takes SIP requests of the others for phones that only it reaches, as 192.0.2.1:5060. Not given: the first address
    /// that it listens on with UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// What members are called that share registrations; others may use the same engine.
    #[serde(default = "default_name")]
    pub name: String,
    /// How many replicas of the engine must have a change before the engine counts as having it.
    #[serde(default)]
    #[schemars(range(max = 16))]
    pub replicas: u8,
    /// What the 200 to a REGISTER promises besides store.mode: disk (nothing more; the others hear of it soon), or engine (the engine
    /// has it). Not given: engine; with peers: disk, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<Promise>,
}

impl Cluster {
    /// What a 200 promises.
    #[must_use]
    pub fn promise(&self) -> Promise {
        self.promise.unwrap_or(if self.peers.is_empty() { Promise::Engine } else { Promise::Disk })
    }
}

fn default_name() -> String {
    "strowger".to_owned()
}

/// `cluster.promise`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Cluster::promise` says what they mean")]
pub enum Promise {
    Disk,
    Engine,
}
