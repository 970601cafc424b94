//! Handle by which other threads reach a worker: a waker and a mailbox.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use strowger_foundation::ShardId;
use strowger_locate::{LocateResult, QueryId};
use strowger_shard::Snapshot;

use crate::calls::WorkerQuery;
use crate::datagram_socket::MAX_DELIVERY_FAILURES;
use crate::handover::WorkerWaker;
use crate::listener_socket::SocketUpdate;
use crate::migration::{BindingRemoval, MigrationPlan};
use crate::options::WorkerSettings;
use crate::predecessors::{Predecessors, RelayKind, RelayedMessage};
use crate::process_handover::Relayed;
use crate::record_result::RecordResult;
use crate::status::StatusCell;
use crate::streams::ClosedConnection;

/// Handle by which other threads reach a worker.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) waker: WorkerWaker,
    pub(crate) snapshot_update: Mutex<Option<SnapshotUpdate>>,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) status: StatusCell,
    /// Number of pending DNS queries.
    pub(crate) questions: AtomicUsize,
    mailbox: Mutex<Mailbox>,
    /// Whether `mailbox` holds anything.
    has_mail_flag: AtomicBool,
    /// Whether migrated shards have arrived.
    has_arrivals: AtomicBool,
    /// Shared by all workers: see [`lock_broadcast`](Self::lock_broadcast).
    announcing: Arc<Mutex<()>>,
}

/// Queries each worker. The answers are in the order of `workers`; `None` stands for one that does not answer in time.
pub(crate) fn query_workers<T>(
    workers: &[Arc<WorkerHandle>],
    make_query: impl Fn(SyncSender<T>) -> WorkerQuery,
) -> Vec<Option<T>> {
    query_workers_until(workers, Instant::now() + QUERY_TIMEOUT, make_query)
}

/// Queries each worker like [`query_workers`], and waits for answers until `deadline`.
pub(crate) fn query_workers_until<T>(
    workers: &[Arc<WorkerHandle>],
    deadline: Instant,
    make_query: impl Fn(SyncSender<T>) -> WorkerQuery,
) -> Vec<Option<T>> {
    let ask = |worker: &Arc<WorkerHandle>| {
        let (reply, answer) = mpsc::sync_channel(1);
        worker.query(make_query(reply));
        answer
    };
    let answers: Vec<_> = workers.iter().map(ask).collect();
    let wait = |answer: Receiver<T>| answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    answers.into_iter().map(wait).collect()
}

/// Maximum number of answers of media engines that wait for a worker.
const MAX_MEDIA_ANSWERS: usize = 8192;

/// Maximum number of messages received by another process that wait for a worker. Further ones are dropped and counted.
const MAX_RELAYED: usize = 16_384;

/// Time limit for workers to answer a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// A snapshot and its version.
#[derive(Debug)]
pub(crate) struct SnapshotUpdate {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) version: u64,
}

/// Notifications that a worker's shards must not miss. Bounded by the number of connections, pending queries and
/// waiting records, since it is emptied every round.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    pub(crate) closed: Vec<ClosedConnection>,
    /// Plans, each with the number of `closed` entries that precede it.
    pub(crate) plans: Vec<(usize, Arc<MigrationPlan>)>,
    /// Peers reported unreachable by another worker's socket; at most [`MAX_DELIVERY_FAILURES`].
    pub(crate) unreachable: Vec<SocketAddr>,
    pub(crate) answers: Vec<(ShardId, QueryId, LocateResult)>,
    /// Answers of media engines; at most [`MAX_MEDIA_ANSWERS`].
    pub(crate) media: Vec<(ShardId, SocketAddr, Box<[u8]>)>,
    /// Further ones, which the shards ask for again.
    pub(crate) media_drops: u64,
    /// Messages that another process has received; at most [`MAX_RELAYED`].
    pub(crate) relayed: Vec<Relayed>,
    /// Further ones, which their senders repeat.
    pub(crate) relay_drops: u64,
    pub(crate) store_results: Vec<RecordResult>,
    /// Dropped once all of `store_results` have been handled.
    pub(crate) tokens: Vec<Arc<()>>,
    pub(crate) removals: Vec<(ShardId, BindingRemoval)>,
    pub(crate) queries: Vec<WorkerQuery>,
    /// Changes of sockets and settings, in order.
    pub(crate) updates: Vec<WorkerUpdate>,
}

/// A change of a running worker.
#[derive(Debug)]
pub(crate) struct WorkerUpdate {
    pub(crate) sockets: Vec<SocketUpdate>,
    pub(crate) settings: Option<Arc<WorkerSettings>>,
    /// Predecessors that still have transactions, if they have changed.
    pub(crate) predecessors: Option<Option<Arc<Predecessors>>>,
    /// Told when it is done.
    pub(crate) done: SyncSender<()>,
}

impl WorkerHandle {
    /// Creates a handle; `announcing` is shared by all workers.
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

    /// Locks broadcasts of plans and closed connections. The holder notifies all workers before the next one starts,
    /// so all workers see these notifications in the same order.
    pub(crate) fn lock_broadcast(&self) -> MutexGuard<'_, ()> {
        self.announcing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the latest snapshot, replacing one that has not been fetched.
    pub(crate) fn publish(&self, update: SnapshotUpdate) {
        *self.snapshot_update.lock().unwrap_or_else(PoisonError::into_inner) = Some(update);
        self.waker.wake_always();
    }

    /// Reports closed connections. The caller holds the broadcast lock and wakes the worker.
    pub(crate) fn notify_closed(&self, closed: &[ClosedConnection]) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).closed.extend_from_slice(closed);
        self.has_mail_flag.store(true, Ordering::Release);
    }

    /// Delivers the answer to a pending query.
    pub(crate) fn answer_lookup(&self, shard: ShardId, query: QueryId, answer: LocateResult) {
        self.questions.fetch_sub(1, Ordering::Relaxed);
        self.answer_unasked(shard, query, answer);
    }

    /// Delivers the answer to a query that was never sent.
    pub(crate) fn answer_unasked(&self, shard: ShardId, query: QueryId, answer: LocateResult) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).answers.push((shard, query, answer));
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Delivers an answer of a media engine if there is room.
    pub(crate) fn notify_media(&self, shard: ShardId, engine: SocketAddr, message: Box<[u8]>) {
        let mut post = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        if post.media.len() < MAX_MEDIA_ANSWERS {
            post.media.push((shard, engine, message));
        } else {
            post.media_drops += 1;
        }
        drop(post);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Delivers a message that another process has received, if there is room.
    pub(crate) fn notify_relayed(&self, kind: RelayKind, message: RelayedMessage<'_>) {
        let mut post = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        if post.relayed.len() < MAX_RELAYED {
            post.relayed.push(Relayed::new(kind, message));
        } else {
            post.relay_drops += 1;
        }
        drop(post);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Reports an unreachable peer if there is room. The caller wakes the worker.
    pub(crate) fn notify_unreachable(&self, peer: SocketAddr) {
        let mut post = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        if post.unreachable.len() < MAX_DELIVERY_FAILURES && !post.unreachable.contains(&peer) {
            post.unreachable.push(peer);
            self.has_mail_flag.store(true, Ordering::Release);
        }
    }

    /// Reports the results of records.
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

    /// Reports a user who must no longer be reached, at all or at one contact.
    pub(crate) fn notify_removal(&self, shard: ShardId, forgotten: BindingRemoval) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).removals.push((shard, forgotten));
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake_always();
    }

    /// Delivers a migration plan. The caller holds the broadcast lock.
    pub(crate) fn notify_plan(&self, plan: &Arc<MigrationPlan>) {
        let mut post = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        let before = post.closed.len();
        post.plans.push((before, Arc::clone(plan)));
        drop(post);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Reports that migrated shards have arrived; they are stored elsewhere.
    pub(crate) fn notify_arrivals(&self) {
        self.has_arrivals.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns whether shards have arrived, and clears the flag.
    pub(crate) fn take_arrival_flag(&self) -> bool {
        self.has_arrivals.load(Ordering::Acquire) && self.has_arrivals.swap(false, Ordering::AcqRel)
    }

    /// Delivers a query of the control plane.
    pub(crate) fn query(&self, query: WorkerQuery) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).queries.push(query);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake_always();
    }

    /// Delivers a change of sockets and settings.
    pub(crate) fn update(&self, update: WorkerUpdate) {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner).updates.push(update);
        self.has_mail_flag.store(true, Ordering::Release);
        self.waker.wake_always();
    }

    /// Returns whether the mailbox holds anything.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail_flag.load(Ordering::Acquire)
    }

    /// Returns whether the mailbox holds anything or shards have arrived.
    pub(crate) fn has_pending(&self) -> bool {
        self.has_mail() || self.has_arrivals.load(Ordering::Acquire)
    }

    /// Takes the contents of the mailbox.
    pub(crate) fn take_mailbox(&self) -> Option<Mailbox> {
        let is_there = self.has_mail() && self.has_mail_flag.swap(false, Ordering::AcqRel);
        is_there.then(|| std::mem::take(&mut *self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.waker.wake_always();
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};

    use super::*;
    use crate::calls::CallList;

    #[test]
    fn answers_are_in_the_order_of_the_workers_not_of_their_arrival() {
        let polls = [(); 3].map(|()| Poll::new().expect("a poll"));
        let workers = polls.each_ref().map(|poll| {
            let waker = WorkerWaker::new(poll.registry(), Token(0)).expect("a waker");
            Arc::new(WorkerHandle::new(waker, Arc::default()))
        });
        let threads = workers.clone();
        let last_first = std::thread::spawn(move || {
            let take = |worker: &Arc<WorkerHandle>| loop {
                if let Some(query) = worker.take_mailbox().and_then(|mut mailbox| mailbox.queries.pop()) {
                    return query;
                }
                std::thread::yield_now();
            };
            for (index, more) in [(2, true), (0, false)] {
                let WorkerQuery::Calls(_, reply) = take(&threads[index]) else { panic!("a query for calls") };
                reply.send(CallList { calls: Vec::new(), more }).expect("the asker waits");
            }
            // The worker between does not answer.
            drop(take(&threads[1]));
        });
        let answers = query_workers(&workers, |reply| WorkerQuery::Calls(1, reply));
        last_first.join().expect("the workers end");
        let more: Vec<_> = answers.into_iter().map(|list| list.map(|list| list.more)).collect();
        assert_eq!(more, [Some(false), None, Some(true)]);
    }
}
