//! Registrations that several servers ("members") share, through an engine or by forwarding them to each other.
//!
//! One thread connects the workers with the other members. It executes the requests of a
//! [`Member`](strowger_members::Member) on an engine, or exchanges the messages of
//! [`Peers`](strowger_members::Peers), and applies the changes of other members to the location table. Workers never
//! wait for it. [`Cluster::start`] starts it; the workers write their records to [`Cluster::record_sink`].

#![forbid(unsafe_code)]

mod any_engine;
mod changes;
mod context;
mod engine;
mod log;
mod mariadb;
mod pause;
mod peers;
mod postgres;
mod process_start;
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

/// Kind of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Redis or Valkey.
    Redis,
    /// Redis or Valkey with sentinels that name the master.
    RedisSentinel,
    /// A Redis or Valkey cluster, of which some servers are listed.
    RedisCluster,
    /// PostgreSQL.
    Postgres,
    /// MariaDB or MySQL.
    MariaDb,
}

/// Connects to the engines as a member does and disconnects: checks that one of `engines` is writable. Creates
/// missing tables. Waits two seconds for each.
///
/// # Errors
/// [`EngineError::Unreachable`] with the reason for each engine.
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

/// Address and credentials of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineAddress {
    /// Host and port.
    pub authority: String,
    /// User name and password, if any.
    pub password: Option<(Option<String>, String)>,
    /// Database: a name, or a Redis database number; empty for the default. With sentinels the master's name,
    /// optionally with `/` and a number.
    pub database: String,
}

/// What a 200 to a REGISTER guarantees in addition to the member's own disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteConcern {
    /// Nothing: the other members learn of the change soon.
    None,
    /// The engine has stored the change.
    Engine,
}

/// Configuration of the shared engine.
#[derive(Debug)]
pub struct EngineConfig {
    /// Name of the cluster; other clusters may use the same engine.
    pub name: String,
    /// Identifier of this server's key.
    pub key: String,
    /// Kind of the engines.
    pub kind: EngineKind,
    /// Engines, of which a writable one is used.
    pub engines: Vec<EngineAddress>,
    /// Number of replicas that must have a change before it counts as stored.
    pub replicas: u8,
    /// Limits of the outbox.
    pub limits: Limits,
}

/// Configuration of the peers that a member forwards registrations to.
pub struct PeerTransportConfig {
    /// Socket that receives their messages.
    pub socket: UdpSocket,
    /// Addresses where they listen.
    pub peers: Vec<SocketAddr>,
    /// Common key of all members.
    pub key: TagKey,
    /// Limits of what waits for each peer.
    pub limits: PeerLimits,
}

/// How members share registrations.
pub enum SharingMode {
    /// Through an engine.
    Engine(EngineConfig),
    /// By forwarding to each other.
    Peers(PeerTransportConfig),
}

/// Identity of this member and how it shares registrations.
pub struct ClusterConfig {
    /// Id of this member.
    pub member: MemberId,
    /// Address where the others send requests for phones that only this member reaches.
    pub address: SocketAddr,
    /// How registrations are shared.
    pub mode: SharingMode,
    /// What a 200 guarantees.
    pub write_concern: WriteConcern,
    /// Whether a 200 also waits for the disk.
    pub waits_for_disk: bool,
    /// Location table, [shared](Locations::shared_by) by this member.
    pub locations: Arc<Locations>,
    /// Maximum registration period.
    pub max_lifetime: Duration,
    /// Used nonces, which the members exchange.
    pub nonces: Arc<NonceWindows>,
    /// The process's clock.
    pub now: Clock,
    /// Whether the thread does nothing until [`Cluster::resume`], because another process still is this member.
    pub starts_paused: bool,
}

/// Handle of the thread that shares registrations.
pub struct Cluster {
    thread: ClusterThread,
    /// Socket for the peers' messages.
    socket: Option<UdpSocket>,
    promise: WriteConcern,
    disk_promises: bool,
}

impl Cluster {
    /// Starts the thread. It retries an engine that does not answer; until the engine has answered once, the table is
    /// not complete. It waits two seconds for peers that do not answer.
    ///
    /// # Errors
    /// If the system cannot create a thread, or duplicate the socket or wait for it.
    pub fn start(config: ClusterConfig) -> std::io::Result<Self> {
        let (promise, disk_promises) = (config.write_concern, config.waits_for_disk);
        let socket = match &config.mode {
            SharingMode::Engine(_) => None,
            SharingMode::Peers(peers) => Some(peers.socket.try_clone()?),
        };
        Ok(Self { thread: ClusterThread::start(config)?, socket, promise, disk_promises })
    }

    /// Makes the thread send and receive nothing until [`resume`](Self::resume), for another process that may become
    /// this member. Returns whether it does so in time; it may do so later.
    #[must_use]
    pub fn pause(&self, within: Duration) -> bool {
        self.thread.pause(within)
    }

    /// Lets the thread go on after a [pause](Self::pause), or begin.
    pub fn resume(&self) {
        self.thread.resume();
    }

    /// Returns the socket for the peers' messages, if members forward to each other.
    #[must_use]
    pub fn socket(&self) -> Option<&UdpSocket> {
        self.socket.as_ref()
    }

    /// Returns the sink for the workers' records. `disk` is the sink of this member's disk, if any.
    #[must_use]
    pub fn record_sink(&self, disk: Option<Arc<dyn RecordSink>>) -> Arc<dyn RecordSink> {
        Arc::new(ClusterSink::new(self.thread.sender(), self.promise, disk, self.disk_promises))
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.thread.status()
    }

    /// Replaces the peers, if there is no engine.
    pub fn set_peers(&self, peers: Vec<SocketAddr>) {
        self.thread.set_peers(peers);
    }

    /// Stops the thread, if it runs. Allows `within` for waiting changes to reach the engine or the answering peers.
    pub fn stop(&self, within: Duration) {
        self.thread.stop(within);
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("status", &self.status()).finish()
    }
}
