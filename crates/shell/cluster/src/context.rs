//! What every engine has to know of this member, and the bounds that all of them keep.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_members::Position;
use strowger_registrar::{Locations, MemberId};

use crate::{Clock, ClusterConfig, EngineAddress, EngineConfig};

/// An engine that is silent for so long is given up.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for a part of the whole state.
pub(crate) const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it is asked for something new, and how often where it cannot wait by itself.
pub(crate) const FOLLOW_FOR: Duration = Duration::from_millis(1_000);
pub(crate) const FOLLOW_EVERY: Duration = Duration::from_millis(20);
/// Entries that a log keeps at least, and after how many it is cut where that is not done with each.
pub(crate) const LOG_ENTRIES: u32 = 20_000;
pub(crate) const CUT_EVERY: u64 = 1_000;
/// Entries that are read at once, of each log.
pub(crate) const READ_ENTRIES: u32 = 256;
/// Changes that are read at once from a database.
pub(crate) const READ_CHANGES: u32 = 5_000;

/// This member, as it writes to an engine.
pub(crate) struct EngineContext {
    pub(crate) name: String,
    pub(crate) member: MemberId,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    /// When the process began, in milliseconds since 1970.
    pub(crate) incarnation: u64,
    pub(crate) engines: Vec<EngineAddress>,
    pub(crate) replicas: u8,
    pub(crate) max_lifetime: Duration,
    locations: Arc<Locations>,
    now: Clock,
    heartbeats: Cell<u64>,
    epoch: Cell<u64>,
}

impl EngineContext {
    /// `incarnation` is the time at which the process began, in milliseconds since 1970.
    pub(crate) fn new(config: &ClusterConfig, engine: &EngineConfig, incarnation: u64) -> Self {
        Self {
            name: engine.name.clone(),
            member: config.member,
            address: config.address,
            key: engine.key.clone(),
            incarnation,
            engines: engine.engines.clone(),
            replicas: engine.replicas,
            max_lifetime: config.max_lifetime,
            locations: Arc::clone(&config.locations),
            now: Arc::clone(&config.now),
            heartbeats: Cell::new(0),
            epoch: Cell::new(0),
        }
    }

    /// The number of the next sign of life.
    pub(crate) fn next_heartbeat(&self) -> u64 {
        self.heartbeats.set(self.heartbeats.get() + 1);
        self.heartbeats.get()
    }

    /// Which connections are good: those that were made in this epoch. They lead to one engine.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Gives up all connections of an epoch in which one failed: another engine may be the one to be written to, and what is read has to come
    /// from there too.
    pub(crate) fn invalidate(&self, epoch: u64) {
        if self.epoch.get() == epoch {
            self.epoch.set(epoch + 1);
        }
    }

    /// The store time in milliseconds.
    pub(crate) fn store_ms(&self) -> u64 {
        self.locations.store_ms((self.now)())
    }

    /// All engines, for people.
    pub(crate) fn engines(&self) -> String {
        self.engines.iter().map(|engine| engine.authority.clone()).collect::<Vec<_>>().join(", ")
    }

    /// Why nothing is appended to a log that ends elsewhere.
    pub(crate) fn log_mismatch(&self, end: Position, after: Position) -> String {
        let number = self.member.get();
        let at = |position: Position| format!("{}-{}", position.incarnation, position.number);
        format!(
            "the log of member {number} ends at {} and not at {}: the engine has forgotten changes, which are told again, or another server \
             is member {number} too",
            at(end),
            at(after)
        )
    }
}
