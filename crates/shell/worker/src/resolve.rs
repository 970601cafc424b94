//! DNS queries: sent on a worker's thread, answered on any other.

use std::mem;
use std::sync::Arc;

use strowger_foundation::ShardId;
use strowger_locate::{LocateError, LocateQuery, LocateResult, QueryId};

use crate::worker_handle::WorkerHandle;

/// Maximum number of pending queries per worker. Further ones are answered with [`LocateError::NoAnswer`] at once and
/// counted.
pub const MAX_DNS_QUERIES: usize = 8192;

/// Resolver for the queries of all workers.
pub trait Resolve: Send + Sync {
    /// Starts a query. Called on a worker's thread, so it must not block. It may answer at once.
    fn resolve(&self, question: LocateQuery, reply: Reply);
}

/// Path back to the shard that asked. Dropping it without an answer reports [`LocateError::NoAnswer`].
#[derive(Debug)]
pub struct Reply {
    handle: Arc<WorkerHandle>,
    shard: ShardId,
    query: QueryId,
    is_sent: bool,
}

impl Reply {
    pub(crate) fn new(contact: Arc<WorkerHandle>, shard: ShardId, query: QueryId) -> Self {
        Self { handle: contact, shard, query, is_sent: false }
    }

    /// Sends the answer. Callable from any thread; never blocks.
    pub fn send(mut self, answer: LocateResult) {
        self.deliver(answer);
    }

    fn deliver(&mut self, answer: LocateResult) {
        if !mem::replace(&mut self.is_sent, true) {
            self.handle.answer_lookup(self.shard, self.query, answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.deliver(Err(LocateError::NoAnswer));
    }
}
