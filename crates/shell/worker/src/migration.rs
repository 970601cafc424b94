//! Migration of shards between workers.
//!
//! A shard moves as one value, between two rounds. No message for it is lost or overtaken:
//!
//! 1. A [`MigrationPlan`] states which shards go where. One worker creates it, and every worker receives it, those
//!    that lose shards first.
//! 2. A worker that receives the plan sends to the new owner from then on, and sends the old owner a barrier through
//!    its ring: whatever precedes the barrier is older than anything sent to the new owner.
//! 3. The old owner keeps the shard until it has the barriers of all other workers, and releases it at the end of
//!    that round. By then, everything older has been handled, and the shard's output has been sent and handed to the
//!    store.
//! 4. The new owner holds messages for the shard until the shard arrives, then delivers them in order.
//!
//! Answers from DNS and the store come to the worker that asked and are forwarded. Only one plan runs at a time, so a
//! worker that has released a shard knows where it is. Closed connections are reported to all workers, in the same
//! order relative to plans for all of them ([`WorkerHandle::lock_broadcast`]): before a plan the old owner notifies
//! the shard, after it the new owner does, behind all input of the connection. So each shard is notified exactly
//! once.
//!
//! [`WorkerHandle::lock_broadcast`]: crate::worker_handle::WorkerHandle::lock_broadcast

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_locate::{LocateResult, QueryId};
use strowger_message::MAX_STREAM_MESSAGE;

use crate::record_result::RecordResult;
use crate::streams::ClosedConnection;

/// Maximum number of messages that a worker holds for shards in transit. Further ones are dropped and counted like
/// drops of a full ring.
pub const MAX_HELD_MESSAGES: usize = 4096;

/// The same limit in bytes.
pub const MAX_HELD_BYTES: usize = 8 * 1024 * 1024;

/// Number of held messages at which streams are no longer read for such shards.
const STREAMS_HELD: usize = MAX_HELD_MESSAGES / 8;

/// The same threshold in bytes.
const STREAMS_HELD_BYTES: usize = MAX_HELD_BYTES / 8;

const _: () = assert!(STREAMS_HELD_BYTES + MAX_STREAM_MESSAGE < MAX_HELD_BYTES);

/// The move of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardMove {
    pub(crate) shard: ShardId,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Shards that move together.
#[derive(Debug)]
pub(crate) struct MigrationPlan {
    moves: Vec<ShardMove>,
    /// Number of shards that have not arrived.
    left: AtomicUsize,
}

impl MigrationPlan {
    /// Returns the workers that shards move from, each once.
    pub(crate) fn sources(&self) -> Vec<usize> {
        let mut givers: Vec<usize> = self.moves.iter().map(|one| one.from).collect();
        givers.sort_unstable();
        givers.dedup();
        givers
    }

    /// Creates a plan. Each move must change the worker, and each shard may occur once.
    pub(crate) fn new(moves: Vec<ShardMove>) -> Self {
        debug_assert!(moves.iter().all(|one| one.from != one.to), "a move leads elsewhere");
        let left = AtomicUsize::new(moves.len());
        Self { moves, left }
    }

    #[cfg(test)]
    pub(crate) fn moves(&self) -> &[ShardMove] {
        &self.moves
    }

    #[cfg(test)]
    pub(crate) fn finish(&self) {
        self.left.store(0, Ordering::Release);
    }

    #[cfg(test)]
    pub(crate) fn begin_again(&self) {
        self.left.store(self.moves.len(), Ordering::Release);
    }

    /// Returns whether all shards have arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

/// Bindings to be removed.
#[derive(Clone, Debug)]
pub(crate) struct BindingRemoval {
    pub(crate) aor: Box<[u8]>,
    pub(crate) reason: RemovalReason,
}

/// Reason for the removal.
#[derive(Clone, Debug)]
pub(crate) enum RemovalReason {
    /// The user must no longer be reached.
    Bar,
    /// An operator removes all registrations, or only that of this contact.
    Unregister(Option<Box<[u8]>>),
}

/// A message to one shard.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    Message {
        arrival: Timestamp,
        flow: Flow,
        bytes: Vec<u8>,
    },
    Answer(QueryId, LocateResult),
    /// An engine's datagram.
    Media(SocketAddr, Box<[u8]>),
    /// The result, and tokens that are dropped once it has been handled.
    RecordResult(RecordResult, Vec<Arc<()>>),
    RemoveBindings(BindingRemoval),
    FlowFailed(Flow),
    Closed(ClosedConnection),
}

/// Migration state of one worker.
#[derive(Debug, Default)]
pub(crate) struct MigrationState {
    /// The plan by which shards leave this worker.
    leaving: Option<Arc<MigrationPlan>>,
    /// Number of other workers that have confirmed the plan with a barrier.
    barriers: usize,
    /// Shards that will arrive, with their plans.
    awaited: Vec<(ShardId, Arc<MigrationPlan>)>,
    /// Messages held for them, in order.
    held: Vec<(ShardId, ShardMessage)>,
    /// Number of SIP messages in `held`.
    messages: usize,
    /// Total length of these.
    bytes: usize,
}

impl MigrationState {
    fn is_awaited(&self, id: ShardId) -> bool {
        self.awaited.iter().any(|(shard, _)| *shard == id)
    }
}
mod moves;
