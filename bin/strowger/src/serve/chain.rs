//! The processes that have replaced one another, as one of them sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use strowger_control::protocol::Takeover;
use strowger_takeover::{Relay, RelayEnd};
use strowger_worker::Predecessors;

/// The place of a server's process among those that have replaced one another.
#[derive(Default)]
pub(super) struct Chain {
    /// Number of this process.
    pub(super) process: u8,
    /// Seed of nonces, the same for all.
    pub(super) nonce_seed: u64,
    /// Earlier processes that still have transactions.
    pub(super) predecessors: Vec<PredecessorRelay>,
    /// The same, as the workers know them.
    pub(super) known_predecessors: Option<Arc<Predecessors>>,
    /// How this process has replaced an earlier one.
    pub(super) takeover: Option<Takeover>,
    /// The relay from the process that has replaced this one.
    pub(super) successor: Option<Relay>,
    /// Whether another process has replaced this one.
    pub(super) is_succeeded: bool,
    /// Set when that process wants all connections to be closed.
    pub(super) closes_connections: Arc<AtomicBool>,
    /// Set when that process has ended.
    pub(super) is_alone: Arc<AtomicBool>,
}

impl Chain {
    /// Returns the place of a process that has not been replaced.
    pub(super) fn new(process: u8, nonce_seed: u64) -> Self {
        Self { process, nonce_seed, ..Self::default() }
    }
}

/// A process before this one that still has transactions.
pub(super) struct PredecessorRelay {
    pub(super) process: u8,
    /// `None` while the relay is handed over.
    pub(super) relay: Option<Relay>,
    /// The socket of a relay that has been stopped, in case that the handover fails.
    pub(super) stopped: Option<RelayEnd>,
    /// Number of its transactions, as last reported.
    pub(super) transactions: Arc<AtomicU64>,
    /// Number of its connections.
    pub(super) connections: Arc<AtomicU64>,
    pub(super) has_ended: Arc<AtomicBool>,
}
