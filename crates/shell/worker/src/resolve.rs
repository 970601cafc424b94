//! Questions to the DNS: asked on a worker's thread, answered by any other.

use std::mem;
use std::sync::Arc;

use strowger_foundation::ShardId;
use strowger_locate::{LocateError, LocateQuery, LocateResult, QueryId};

use crate::worker_handle::WorkerHandle;

/// Questions of one worker that may wait for their answers; past it the next ones are answered with
/// [`Failure::NoAnswer`] at once and counted.
pub const MAX_DNS_QUERIES: usize = 8192;

/// Who answers the questions of all workers.
pub trait Resolve: Send + Sync {
    /// Takes a question. Called on a worker's thread: it must not wait. It may answer at once.
    fn resolve(&self, question: LocateQuery, reply: Reply);
}

/// The way back to the shard that asked. Dropped without an answer it says [`Failure::NoAnswer`].
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

    /// Answers, from any thread. Never waits.
    pub fn send(mut self, answer: LocateResult) {
        self.deliver(answer);
    }

    fn deliver(&mut self, answer: LocateResult) {
        if !mem::replace(&mut self.is_sent, true) {
            self.handle.answer(self.shard, self.query, answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.deliver(Err(LocateError::NoAnswer));
    }
}
