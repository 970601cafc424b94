//! Registrations that several servers ("members") share through an engine.
//!
//! One thread stands between the workers and the engine: it carries out what a [`Member`](strowger_members::Member) asks for, and has
//! the location table take what other members have changed. Workers never wait for it. [`Cluster::start`] begins it,
//! [`Cluster::keeper`] is what the workers give their records to.

#![forbid(unsafe_code)]

mod changes;
mod engine;
mod keeper;
mod log;
mod mariadb;
mod own;
mod postgres;
mod redis;
mod thread;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_registrar::{Locations, MemberId};
use strowger_worker::Keep;

use crate::keeper::Keeper;
use crate::thread::Running;

pub use crate::engine::EngineError;
pub use strowger_members::{Limits, Status};

/// The process's monotonic clock, as a function.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

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
pub enum Promise {
    /// Nothing: the other members hear of it soon.
    Nothing,
    /// The engine has it.
    Engine,
}

/// Which member this is, of what, and where the engine is.
pub struct ClusterConfig {
    /// What the members are called together; others may use the same engine.
    pub name: String,
    /// This member.
    pub member: MemberId,
    /// What tells this server's key from others.
    pub key: String,
    /// Where the others send requests for phones that only this one reaches.
    pub address: SocketAddr,
    /// What the engines are.
    pub kind: EngineKind,
    /// The engines, of which one that can be written to is used.
    pub engines: Vec<EngineAddress>,
    /// What is promised.
    pub promise: Promise,
    /// Of an engine that has replicas, how many must have a change before it counts as there.
    pub replicas: u8,
    /// Whether the disk promises something too.
    pub disk_promises: bool,
    /// The table, [shared](Locations::shared_by) by this member.
    pub locations: Arc<Locations>,
    /// How long a registration lasts at most.
    pub longest: Duration,
    /// The process's clock.
    pub now: Now,
    /// Bounds of what waits.
    pub limits: Limits,
}

/// The thread that shares registrations.
pub struct Cluster {
    running: Running,
    promise: Promise,
    disk_promises: bool,
}

impl Cluster {
    /// Starts the thread. An engine that does not answer is asked again; until it has answered once the table is not complete.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(config: ClusterConfig) -> std::io::Result<Self> {
        let (promise, disk_promises) = (config.promise, config.disk_promises);
        Ok(Self { running: Running::start(config)?, promise, disk_promises })
    }

    /// What the workers give their records to: `disk` is who keeps them on this member's disk, if anybody does.
    #[must_use]
    pub fn keeper(&self, disk: Option<Arc<dyn Keep>>) -> Arc<dyn Keep> {
        Arc::new(Keeper::new(self.running.sender(), self.promise, disk, self.disk_promises))
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> Status {
        self.running.status()
    }

    /// Ends it: what waits for the engine has so long to get there.
    pub fn stop(&self, within: Duration) {
        self.running.stop(within);
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("status", &self.status()).finish()
    }
}
