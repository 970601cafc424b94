//! `[cluster]`: servers that share registrations.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{EngineUrl, OneOrMany};

/// `[cluster]`: servers ("members") that share registrations through an engine. Without it a server is alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The engine: redis://HOST:PORT for Redis or Valkey, redis+sentinel://HOST:PORT/MASTER where sentinels say which one is the master,
    /// redis+cluster://HOST:PORT for a cluster, or postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE for PostgreSQL and MariaDB.
    /// Several servers stand in one URL with commas, or in a list. The first one that can be written to is used, and another one when that
    /// fails.
    pub store: OneOrMany<EngineUrl>,
    /// This member's number, from 1 to 1023. No two members have the same.
    #[schemars(range(min = 1, max = 1023))]
    pub member: u16,
    /// Where this member takes SIP requests of the others for phones that only it reaches, as 192.0.2.1:5060. Not given: the first address
    /// that it listens on with UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// What members are called that share registrations; others may use the same engine.
    #[serde(default = "usual_name")]
    pub name: String,
    /// How many replicas of the engine must have a change before the engine counts as having it.
    #[serde(default)]
    #[schemars(range(max = 16))]
    pub replicas: u8,
    /// What the 200 to a REGISTER promises besides store.mode: disk (nothing more; the others hear of it soon), or engine (the engine
    /// has it).
    #[serde(default)]
    pub promise: Promise,
}

fn usual_name() -> String {
    "strowger".to_owned()
}

/// `cluster.promise`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Cluster::promise` says what they mean")]
pub enum Promise {
    Disk,
    #[default]
    Engine,
}
