//! What others reach a worker by: a doorbell, and what they leave for it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strowger_foundation::ShardId;
use strowger_locate::{Answer, QueryId};
use strowger_shard::Snapshot;

use crate::calls::Inquiry;
use crate::handover::Doorbell;
use crate::keep::Stored;
use crate::moving::{Forgotten, Plan};
use crate::outlet::LOST_LIMIT;
use crate::status::Board;
use crate::streams::Closed;

/// What others reach a worker by.
#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) doorbell: Doorbell,
    pub(crate) mail: Mutex<Option<Mail>>,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) board: Board,
    /// Questions to the DNS that wait for their answers.
    pub(crate) questions: AtomicUsize,
    post: Mutex<Post>,
    /// Whether there is anything in `post`.
    has_post: AtomicBool,
    /// Whether shards have come.
    has_arrivals: AtomicBool,
    /// All workers' together: see [`turn`](Self::turn).
    announcing: Arc<Mutex<()>>,
}

/// A snapshot and its version.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) version: u64,
}

/// What a worker's shards must hear, and may not miss. Bounded by the connections that there are, the questions that were
/// asked and the records that wait: it is emptied every round.
#[derive(Debug, Default)]
pub(crate) struct Post {
    pub(crate) closed: Vec<Closed>,
    /// With how many of `closed` were told before.
    pub(crate) plans: Vec<(usize, Arc<Plan>)>,
    /// Peers that nothing can be sent to, as another worker's socket was told; at most [`LOST_LIMIT`].
    pub(crate) lost: Vec<SocketAddr>,
    pub(crate) answers: Vec<(ShardId, QueryId, Answer)>,
    pub(crate) stored: Vec<Stored>,
    /// Let go when all of `stored` is dealt with.
    pub(crate) tokens: Vec<Arc<()>>,
    pub(crate) forgotten: Vec<(ShardId, Forgotten)>,
    pub(crate) inquiries: Vec<Inquiry>,
}

impl Contact {
    /// What others reach a worker by; `announcing` is all workers' together.
    pub(crate) fn new(doorbell: Doorbell, announcing: Arc<Mutex<()>>) -> Self {
        Self {
            doorbell,
            mail: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            board: Board::default(),
            questions: AtomicUsize::new(0),
            post: Mutex::default(),
            has_post: AtomicBool::new(false),
            has_arrivals: AtomicBool::new(false),
            announcing,
        }
    }

    /// The turn to tell all workers of a plan or of closed connections. Who has it tells everyone before the next one does, so
    /// all workers hear of these in one order.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.announcing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the newest snapshot; one that was not fetched yet is superseded.
    pub(crate) fn deliver(&self, mail: Mail) {
        *self.mail.lock().unwrap_or_else(PoisonError::into_inner) = Some(mail);
        self.doorbell.ring_always();
    }

    /// Leaves word of connections that are closed. Whoever does so has the turn, and rings.
    pub(crate) fn tell_closed(&self, closed: &[Closed]) {
        self.post.lock().unwrap_or_else(PoisonError::into_inner).closed.extend_from_slice(closed);
        self.has_post.store(true, Ordering::Release);
    }

    /// Leaves the answer to a question that was asked.
    pub(crate) fn answer(&self, shard: ShardId, query: QueryId, answer: Answer) {
        self.questions.fetch_sub(1, Ordering::Relaxed);
        self.answer_unasked(shard, query, answer);
    }

    /// Leaves the answer to a question that nobody was asked.
    pub(crate) fn answer_unasked(&self, shard: ShardId, query: QueryId, answer: Answer) {
        self.post.lock().unwrap_or_else(PoisonError::into_inner).answers.push((shard, query, answer));
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring();
    }

    /// Leaves word of a peer that nothing can be sent to, as far as there is room. Whoever does so rings.
    pub(crate) fn tell_lost(&self, peer: SocketAddr) {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        if post.lost.len() < LOST_LIMIT && !post.lost.contains(&peer) {
            post.lost.push(peer);
            self.has_post.store(true, Ordering::Release);
        }
    }

    /// Leaves word of what became of records.
    pub(crate) fn tell_stored(&self, mut stored: Vec<Stored>, tokens: impl IntoIterator<Item = Arc<()>>) {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        post.stored.append(&mut stored);
        post.tokens.extend(tokens);
        drop(post);
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring();
    }

    /// Leaves word of a user who may not be called any more, or not at one contact.
    pub(crate) fn tell_forgotten(&self, shard: ShardId, forgotten: Forgotten) {
        self.post.lock().unwrap_or_else(PoisonError::into_inner).forgotten.push((shard, forgotten));
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring_always();
    }

    /// Leaves a plan by which shards move. Whoever does so has the turn.
    pub(crate) fn tell_plan(&self, plan: &Arc<Plan>) {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        let before = post.closed.len();
        post.plans.push((before, Arc::clone(plan)));
        drop(post);
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring();
    }

    /// Leaves word that shards have come, which stand elsewhere.
    pub(crate) fn tell_arrived(&self) {
        self.has_arrivals.store(true, Ordering::Release);
        self.doorbell.ring();
    }

    /// Whether shards have come that were not asked for yet.
    pub(crate) fn take_arrived(&self) -> bool {
        self.has_arrivals.load(Ordering::Acquire) && self.has_arrivals.swap(false, Ordering::AcqRel)
    }

    /// Leaves a question of the control plane.
    pub(crate) fn inquire(&self, inquiry: Inquiry) {
        self.post.lock().unwrap_or_else(PoisonError::into_inner).inquiries.push(inquiry);
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring_always();
    }

    /// Whether anything was left.
    pub(crate) fn has_post(&self) -> bool {
        self.has_post.load(Ordering::Acquire)
    }

    /// Whether anything was left, post or shards.
    pub(crate) fn is_called(&self) -> bool {
        self.has_post() || self.has_arrivals.load(Ordering::Acquire)
    }

    /// Takes what was left.
    pub(crate) fn take_post(&self) -> Option<Post> {
        let is_there = self.has_post() && self.has_post.swap(false, Ordering::AcqRel);
        is_there.then(|| std::mem::take(&mut *self.post.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.doorbell.ring_always();
    }
}
