//! What others reach a worker by: a doorbell, and what they leave for it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strowger_foundation::ShardId;
use strowger_locate::{LocateResult, QueryId};
use strowger_shard::Snapshot;

use crate::calls::WorkerQuery;
use crate::datagram_socket::MAX_DELIVERY_FAILURES;
use crate::handover::WorkerWaker;
use crate::migration::{BindingRemoval, MigrationPlan};
use crate::record_sink::RecordResult;
use crate::status::StatusCell;
use crate::streams::ClosedConnection;

/// What others reach a worker by.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) waker: WorkerWaker,
    pub(crate) snapshot_update: Mutex<Option<SnapshotUpdate>>,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) status: StatusCell,
    /// Questions to the DNS that wait for their answers.
    pub(crate) questions: AtomicUsize,
    mailbox: Mutex<Mailbox>,
    /// Whether there is anything in `post`.
    has_mail_flag: AtomicBool,
    /// Whether shards have come.
    has_arrivals: AtomicBool,
    /// All workers' together: see [`turn`](Self::turn).
    announcing: Arc<Mutex<()>>,
}

/// A snapshot and its version.
#[derive(Debug)]
pub(crate) struct SnapshotUpdate {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) version: u64,
}

/// What a worker's shards must hear, and may not miss. Bounded by the connections that there are, the questions that were
/// asked and the records that wait: it is emptied every round.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    pub(crate) closed: Vec<ClosedConnection>,
    /// With how many of `closed` were told before.
    pub(crate) plans: Vec<(usize, Arc<MigrationPlan>)>,
    /// Peers that nothing can be sent to, as another worker's socket was told; at most [`LOST_LIMIT`].
    pub(crate) unreachable: Vec<SocketAddr>,
    pub(crate) answers: Vec<(ShardId, QueryId, LocateResult)>,
    pub(crate) store_results: Vec<RecordResult>,
    /// Let go when all of `stored` is dealt with.
    pub(crate) tokens: Vec<Arc<()>>,
    pub(crate) removals: Vec<(ShardId, BindingRemoval)>,
    pub(crate) queries: Vec<WorkerQuery>,
}

impl WorkerHandle {
    /// What others reach a worker by; `announcing` is all workers' together.
    pub(crate) fn new(doorbell: WorkerWaker, announcing: Arc<Mutex<()>>) -> Self {
        Self {
            waker: doorbell,
            snapshot_update: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            status: StatusCell::default(),
            questions: AtomicUsize::new(0),
            mailbox: Mutex::default(),
            has_mail_flag: AtomicBool::new(false),
            has_arrivals: AtomicBool::new(false),
            announcing,
        }
    }

    /// The turn to tell all workers of a plan or of closed connections. Who has it tells everyone before the next one does, so
    /// all workers hear of these in one order.
    pub(crate) fn lock_broadcast(&self) -> MutexGuard<'_, ()> {
        self.announcing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the newest snapshot; one that was not fetched yet is superseded.
    pub(crate) fn publish(&self, mail: SnapshotUpdate) {
        *self.snapshot_update.lock().unwrap_or_else(PoisonError::into_inner) = Some(mail);
        self.waker.wake_always();
    }

    /// Leaves word of connections that are closed. Whoever does so has the turn, and rings.
    pub(crate) fn notify_closed(&self, closed: &[ClosedConnection]) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).closed.extend_from_slice(closed);
        self.has_mail_flag.store(true, Ordering::Release);
    }

    /// Leaves the answer to a question that was asked.
    pub(crate) fn answer(&self, shard: ShardId, query: QueryId, answer: LocateResult) {
        self.questions.fetch_sub(1, Ordering::Relaxed);
        self.answer_unasked(shard, query, answer);
    }

    /// Leaves the answer to a question that nobody was asked.
    pub(crate) fn answer_unasked(&self, shard: ShardId, query: QueryId, answer: LocateResult) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).answers.push((shard, query, answer));
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Leaves word of a peer that nothing can be sent to, as far as there is room. Whoever does so rings.
    pub(crate) fn notify_unreachable(&self, peer: SocketAddr) {
        let mut post = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        if post.unreachable.len() < MAX_DELIVERY_FAILURES && !post.unreachable.contains(&peer) {
            post.unreachable.push(peer);
            self.has_mail_flag.store(true, Ordering::Release);
        }
    }

    /// Leaves word of what became of records.
    pub(crate) fn notify_store_results(
        &self,
        mut stored: Vec<RecordResult>,
        tokens: impl IntoIterator<Item = Arc<()>>,
    ) {
        let mut post = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        post.store_results.append(&mut stored);
        post.tokens.extend(tokens);
        drop(post);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Leaves word of a user who may not be called any more, or not at one contact.
    pub(crate) fn notify_removal(&self, shard: ShardId, forgotten: BindingRemoval) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).removals.push((shard, forgotten));
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake_always();
    }

    /// Leaves a plan by which shards move. Whoever does so has the turn.
    pub(crate) fn notify_plan(&self, plan: &Arc<MigrationPlan>) {
        let mut post = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        let before = post.closed.len();
        post.plans.push((before, Arc::clone(plan)));
        drop(post);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Leaves word that shards have come, which stand elsewhere.
    pub(crate) fn notify_arrivals(&self) {
        self.has_arrivals.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether shards have come that were not asked for yet.
    pub(crate) fn take_arrival_flag(&self) -> bool {
        self.has_arrivals.load(Ordering::Acquire) && self.has_arrivals.swap(false, Ordering::AcqRel)
    }

    /// Leaves a question of the control plane.
    pub(crate) fn query(&self, inquiry: WorkerQuery) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).queries.push(inquiry);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake_always();
    }

    /// Whether anything was left.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail_flag.load(Ordering::Acquire)
    }

    /// Whether anything was left, post or shards.
    pub(crate) fn has_pending(&self) -> bool {
        self.has_mail() || self.has_arrivals.load(Ordering::Acquire)
    }

    /// Takes what was left.
    pub(crate) fn take_mailbox(&self) -> Option<Mailbox> {
        let is_there = self.has_mail() && self.has_mail_flag.swap(false, Ordering::AcqRel);
        is_there.then(|| std::mem::take(&mut *self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.waker.wake_always();
    }
}
