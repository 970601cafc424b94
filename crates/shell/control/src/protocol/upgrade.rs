//! Handing over to another process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Absolute path of the program; otherwise that of the running one, which may have been replaced since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<PathBuf>,
    /// Closes all connections instead of leaving them with the process that has them.
    #[serde(default)]
    pub close_connections: bool,
    /// Milliseconds for it to become ready; otherwise a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<u64>,
}

/// An upgrade that has succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeReport {
    /// Version of the program before.
    pub from_version: String,
    /// Version of the program that serves.
    pub version: String,
    /// Process id of the server.
    pub pid: u32,
    /// Time for which nothing was read, in microseconds.
    pub frozen_us: u64,
    /// Parts of this time, in order, in microseconds.
    pub phases: Vec<UpgradePhase>,
    /// Number of registered addresses handed over.
    pub addresses: u64,
    /// Number of transactions that the process before keeps until they end.
    pub transactions: u64,
    /// Length of the state handed over, in bytes.
    pub bytes: u64,
}

/// A part of the time for which nothing was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradePhase {
    /// What was done.
    pub name: String,
    /// How long it took, in microseconds.
    pub us: u64,
}

/// How a server has replaced an earlier process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Takeover {
    /// Version of the process before.
    pub from_version: String,
    /// Process id of the process before.
    pub from_pid: u32,
    /// Time for which nothing was read, in microseconds.
    pub frozen_us: u64,
    /// Earlier processes that still have transactions or connections, the oldest first.
    pub predecessors: Vec<Predecessor>,
}

/// An earlier process that still has transactions or connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Predecessor {
    /// Its number: each process has the next one, modulo 32.
    pub process: u8,
    /// Process id; 0 if it is unknown.
    #[serde(default)]
    pub pid: u32,
    /// Version of its program.
    #[serde(default)]
    pub version: String,
    /// Seconds since it was replaced.
    #[serde(default)]
    pub replaced_s: f64,
    /// Number of its transactions, as last reported by it.
    pub transactions: u64,
    /// Number of its connections, as last reported by it.
    pub connections: u64,
}
