//! Registrations that several servers ("members") share, through an engine or by forwarding them to each other.
//!
//! One thread stands between the workers and the others: it carries out what a [`Member`](strowger_members::Member) asks of an engine, or
//! sends and receives what [`Peers`](strowger_members::Peers) say to each other, and has the location table take what other members have
//! changed. Workers never wait for it. [`Cluster::start`] begins it, [`Cluster::keeper`] is what the workers give their records to.

#![forbid(unsafe_code)]

mod changes;
mod context;
mod engine;
mod log;
mod mariadb;
mod peers;
mod postgres;
mod redis;
mod report;
mod sink;
mod table;
mod thread;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::NonceWindows;
use strowger_foundation::{TagKey, Timestamp};
use strowger_registrar::{Locations, MemberId};
use strowger_worker::RecordSink;

use crate::sink::ClusterSink;
use crate::thread::ClusterThread;

pub use crate::engine::EngineError;
pub use strowger_members::{Limits, PeerLimits, PeerStatus, Status};

/// The process's monotonic clock, as a function.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Redis or Valkey.
    Redis,
    /// Redis or Valkey, of which sentinels say which one is the master.
    RedisSentinel,
    /// A cluster of Redis or Valkey, of which some servers are named.
    RedisCluster,
    /// PostgreSQL.
    Postgres,
    /// MariaDB or MySQL.
    MariaDb,
}

/// Connects to an engine as a member does, and lets go of it: whether one of `engines` can be written to. Tables that are missing are made.
/// Waits for each of them for two seconds.
///
/// # Errors
/// [`EngineError::Unreachable`], which says why of each.
pub fn check_engines(kind: EngineKind, engines: &[EngineAddress]) -> Result<(), EngineError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| EngineError::Unreachable(error.to_string()))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        match kind {
            EngineKind::Redis | EngineKind::RedisSentinel | EngineKind::RedisCluster => {
                redis::check(kind, engines).await
            }
            EngineKind::Postgres => postgres::connect_to_one(engines).await.map(drop),
            EngineKind::MariaDb => mariadb::connect_to_one(engines).await.map(drop),
        }
    })
}

/// Where an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineAddress {
    /// Host and port.
    pub authority: String,
    /// The user's name and password, where there is one.
    pub password: Option<(Option<String>, String)>,
    /// The database: a name, or a number of Redis; empty for the usual one. Of sentinels the master's name, and a number behind a slash.
    pub database: String,
}

/// What a 200 to a REGISTER promises besides what the member's own disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteConcern {
    /// Nothing: the other members hear of it soon.
    None,
    /// The engine has it.
    Engine,
}

/// The engine that members share.
#[derive(Debug)]
pub struct EngineConfig {
    /// What the members are called together; others may use the same engine.
    pub name: String,
    /// What tells this server's key from others.
    pub key: String,
    /// What the engines are.
    pub kind: EngineKind,
    /// The engines, of which one that can be written to is used.
    pub engines: Vec<EngineAddress>,
    /// Of an engine that has replicas, how many must have a change before it counts as there.
    pub replicas: u8,
    /// Bounds of what waits.
    pub limits: Limits,
}

/// The peers that a member forwards registrations to.
pub struct PeerTransportConfig {
    /// What they send comes to it.
    pub socket: UdpSocket,
    /// Where they listen for what this one sends.
    pub peers: Vec<SocketAddr>,
    /// The key that all have.
    pub key: TagKey,
    /// What may wait for each of them.
    pub limits: PeerLimits,
}

/// How members share registrations.
pub enum SharingMode {
    /// Through an engine.
    Engine(EngineConfig),
    /// By forwarding them to each other.
    Peers(PeerTransportConfig),
}

/// Which member this is, and how it shares.
pub struct ClusterConfig {
    /// This member.
    pub member: MemberId,
    /// Where the others send requests for phones that only this one reaches.
    pub address: SocketAddr,
    /// How it shares.
    pub mode: SharingMode,
    /// What is promised.
    pub write_concern: WriteConcern,
    /// Whether the disk promises something too.
    pub waits_for_disk: bool,
    /// The table, [shared](Locations::shared_by) by this member.
    pub locations: Arc<Locations>,
    /// How long a registration lasts at most.
    pub max_lifetime: Duration,
    /// What was used of nonces, which the members tell each other.
    pub nonces: Arc<NonceWindows>,
    /// The process's clock.
    pub now: Clock,
}

/// The thread that shares registrations.
pub struct Cluster {
    thread: ClusterThread,
    promise: WriteConcern,
    disk_promises: bool,
}

impl Cluster {
    /// Starts the thread. An engine that does not answer is asked again; until it has answered once the table is not complete. Peers that
    /// do not answer are waited for for two seconds.
    ///
    /// # Errors
    /// When the system has no thread left, or cannot wait for the socket.
    pub fn start(config: ClusterConfig) -> std::io::Result<Self> {
        let (promise, disk_promises) = (config.write_concern, config.waits_for_disk);
        Ok(Self { thread: ClusterThread::start(config)?, promise, disk_promises })
    }

    /// What the workers give their records to: `disk` is who keeps them on this member's disk, if anybody does.
    #[must_use]
    pub fn record_sink(&self, disk: Option<Arc<dyn RecordSink>>) -> Arc<dyn RecordSink> {
        Arc::new(ClusterSink::new(self.thread.sender(), self.promise, disk, self.disk_promises))
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> Status {
        self.thread.status()
    }

    /// Forwards registrations to these peers from now on, where there is no engine.
    pub fn set_peers(&self, peers: Vec<SocketAddr>) {
        self.thread.set_peers(peers);
    }

    /// Ends it: what waits for the engine or for peers that answer has so long to get there.
    pub fn stop(&self, within: Duration) {
        self.thread.stop(within);
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("status", &self.status()).finish()
    }
}
