//! The place of a server's process in a chain of upgrades.

use std::sync::Arc;

use strowger_control::protocol::Takeover;
use strowger_takeover::Relay;

use super::predecessors::EarlierProcesses;
use super::retirement::SuccessorState;

/// The place of a server's process among those that have replaced one another.
#[derive(Default)]
pub(super) struct Chain {
    /// Number of this process.
    pub(super) process: u8,
    /// Seed of nonces, the same for all.
    pub(super) nonce_seed: u64,
    pub(super) predecessors: EarlierProcesses,
    /// How this process has replaced an earlier one.
    pub(super) takeover: Option<Takeover>,
    /// The relay from the process that has replaced this one.
    pub(super) successor: Option<Relay>,
    /// Whether another process has replaced this one.
    pub(super) is_succeeded: bool,
    /// What is known of that process.
    pub(super) successor_state: Arc<SuccessorState>,
}

impl Chain {
    /// Returns the place of a process that has not been replaced.
    pub(super) fn new(process: u8, nonce_seed: u64) -> Self {
        Self { process, nonce_seed, ..Self::default() }
    }
}
