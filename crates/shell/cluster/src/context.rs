//! Member context and limits common to all engines.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_members::Position;
use strowger_registrar::{Locations, MemberId};

use crate::{Clock, ClusterConfig, EngineAddress, EngineConfig};

/// Timeout of a request to an engine.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a page of the whole state.
pub(crate) const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a follow request waits for new entries, and the polling interval for an engine that cannot wait itself.
pub(crate) const FOLLOW_FOR: Duration = Duration::from_millis(1_000);
pub(crate) const FOLLOW_EVERY: Duration = Duration::from_millis(20);
/// Minimum number of entries kept in a log, and the truncation interval in entries for engines that do not truncate
/// at each append.
pub(crate) const LOG_ENTRIES: u32 = 20_000;
pub(crate) const CUT_EVERY: u64 = 1_000;
/// Maximum number of entries read at once from each log.
pub(crate) const READ_ENTRIES: u32 = 256;
/// Maximum number of changes read at once from a database.
pub(crate) const READ_CHANGES: u32 = 5_000;

/// This member as engines see it.
pub(crate) struct EngineContext {
    pub(crate) name: String,
    pub(crate) member: MemberId,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    /// Process start, in ms since 1970.
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
    /// Creates the context. `incarnation` is the process start, in ms since 1970.
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

    /// Returns the number of the next heartbeat.
    pub(crate) fn next_heartbeat(&self) -> u64 {
        self.heartbeats.set(self.heartbeats.get() + 1);
        self.heartbeats.get()
    }

    /// Returns the epoch of valid connections. All connections of an epoch lead to one engine.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Invalidates all connections of an epoch after one has failed: another engine may be writable, and reads must
    /// use it too.
    pub(crate) fn invalidate(&self, epoch: u64) {
        if self.epoch.get() == epoch {
            self.epoch.set(epoch + 1);
        }
    }

    /// Returns the store time in ms.
    pub(crate) fn store_ms(&self) -> u64 {
        self.locations.store_ms((self.now)())
    }

    /// Returns the names of all engines, for messages.
    pub(crate) fn engines(&self) -> String {
        self.engines.iter().map(|engine| engine.authority.clone()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the error message for an append to a log that ends elsewhere.
    pub(crate) fn log_mismatch(&self, end: Position, after: Position) -> String {
        let number = self.member.get();
        let at = |position: Position| format!("{}-{}", position.incarnation, position.number);
        format!(
            "the log of member {number} ends at {} instead of {}: the engine lost changes, which are sent again, or another server \
             is member {number} too",
            at(end),
            at(after)
        )
    }
}
