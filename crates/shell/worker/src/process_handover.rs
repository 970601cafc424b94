//! What goes from one process to the next, and between workers and the fleet on the way.

use std::os::fd::OwnedFd;

use strowger_foundation::ShardId;

use crate::migration::ShardMessage;
use crate::predecessors::{RelayKind, RelayedMessage};

/// What a worker that is frozen has still to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// REGISTERs that wait for the store.
    pub(crate) registers: usize,
    /// Messages that wait for another worker or a socket.
    pub(crate) messages: usize,
    /// Number of shards here: one that moves is nowhere.
    pub(crate) shards: usize,
    /// Number of messages taken from other workers so far.
    pub(crate) taken: u64,
}

/// A worker's descriptors and transactions for the next process.
#[derive(Debug, Default)]
pub(crate) struct WorkerHandover {
    pub(crate) sockets: Vec<ListenerHandover>,
    pub(crate) keys: Vec<u64>,
}

/// A worker's sockets of one listener, for the next process.
#[derive(Debug, Default)]
pub struct ListenerHandover {
    /// The socket; `None` if the listener is closed.
    pub socket: Option<OwnedFd>,
    /// The socket for new work, if the kernel sorts.
    pub new_work: Option<OwnedFd>,
    /// The kernel's drop counts of both, as last reported.
    pub drops: [u32; 2],
}

/// What the next process gets.
#[derive(Debug)]
pub struct FleetHandover {
    /// Sockets by worker and listener.
    pub sockets: Vec<Vec<ListenerHandover>>,
    /// [Halves of the keys](strowger_shard::ServerKey::half) of all server transactions.
    pub keys: Vec<u64>,
}

/// A message that another process has received, on its way to a worker.
#[derive(Debug)]
pub(crate) struct Relayed {
    pub(crate) kind: RelayKind,
    pub(crate) message: ShardMessage,
    pub(crate) shard: ShardId,
}

impl Relayed {
    pub(crate) fn new(kind: RelayKind, message: RelayedMessage<'_>) -> Self {
        let RelayedMessage { shard, flow, arrival, bytes } = message;
        let message = ShardMessage::Message { arrival, flow, bytes: bytes.to_vec() };
        Self { kind, message, shard }
    }
}
