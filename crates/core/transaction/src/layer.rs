//! The transaction layer: state of the transactions, their timers and their output.

use core::time::Duration;
use std::collections::VecDeque;

use hashbrown::HashTable;
use strowger_foundation::{Buf, BufPool, Flow, Slots, Timestamp, Wakeup};

use crate::client_slot::{ClientSlot, OutgoingRequest};
use crate::limits::{MAX_CLIENT, MAX_SERVER};
use crate::output::{Counters, Event, MAX_OUTPUTS, Output};
use crate::response_cache::{CachedResponse, ResponseCache};
use crate::server_slot::{IndexEntry, Server, hash_of};
use crate::timer_queues::{Side, TimerQueues};
use crate::timing::Timing;
use crate::unanswered_index::UnansweredIndex;

/// Largest number of timers handled by one [`Transactions::handle_timeout`]; the rest are due immediately.
pub const MAX_TIMERS_PER_CALL: usize = 4096;

/// Longest time by which [`Transactions::handle_timeout`] may be delayed if it only ends transactions that have
/// absorbed retransmissions long enough. Nobody notices, but each wake-up for it costs as much as a message.
pub(crate) const MAX_END_DELAY: Duration = Duration::from_millis(100);

/// Capacity from which an empty queue is freed by [`Transactions::trim`].
const MAX_IDLE_QUEUE: usize = 64;
/// Largest number of entries that one [`Transactions::trim`] moves to a smaller table, so that it does not take long; and
/// the capacity of a table that is never made smaller.
const MAX_MOVED: usize = 1024;

/// All transactions of a shard.
///
/// After each `handle_*` call, and the user's reaction to it, drain [`poll_event`](Self::poll_event) and
/// [`poll_transmit`](Self::poll_transmit) until they return `None`.
#[derive(Debug)]
pub struct Transactions {
    pub(crate) timing: Timing,
    pub(crate) servers: Slots<Server>,
    pub(crate) response_cache: ResponseCache,
    /// Server transactions by key; the keys are keyed hashes already.
    pub(crate) index: HashTable<IndexEntry>,
    pub(crate) clients: Slots<ClientSlot>,
    pub(crate) outgoing: Slots<OutgoingRequest>,
    /// Client transactions without any response, by peer.
    pub(crate) unanswered: UnansweredIndex,
    pub(crate) timer_queues: TimerQueues,
    pub(crate) pool: BufPool,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    generation: u32,
}

impl Transactions {
    /// Creates an empty layer. `seed` keeps its ids distinct from those of an earlier process.
    #[must_use]
    pub fn new(timing: Timing, seed: u64) -> Self {
        let [a, b, c, d, ..] = seed.to_le_bytes();
        Self {
            timing,
            servers: Slots::new(),
            response_cache: ResponseCache::default(),
            index: HashTable::new(),
            clients: Slots::new(),
            outgoing: Slots::new(),
            unanswered: UnansweredIndex::new(seed),
            timer_queues: TimerQueues::new(),
            pool: BufPool::new(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            generation: u32::from_le_bytes([a, b, c, d]),
        }
    }

    /// Changes the base values for timers armed from here on.
    pub fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// The buffer pool. Buffers for [`respond`](Self::respond), [`start_client`](Self::start_client) and
    /// [`send_once`](Self::send_once) come from it.
    pub fn pool(&mut self) -> &mut BufPool {
        &mut self.pool
    }

    /// Frees memory that a peak has left: half of the buffers that were not used since the last call, and room in tables
    /// that are nearly empty; with the last buffers, also what tables keep for reuse. Returns whether another call may free
    /// more.
    pub fn trim(&mut self) -> bool {
        if self.outputs.is_empty() && self.outputs.capacity() > MAX_IDLE_QUEUE {
            self.outputs = VecDeque::new();
        }
        if self.events.is_empty() && self.events.capacity() > MAX_IDLE_QUEUE {
            self.events = VecDeque::new();
        }
        if self.has_sparse_index() && self.index.len() <= MAX_MOVED {
            self.index.shrink_to(self.index.len() * 2, |place| hash_of(place.key_part));
        }
        let has_timers = self.timer_queues.trim();
        let has_buffers = self.pool.trim();
        if !has_buffers {
            self.free_spares();
        }
        has_buffers | has_timers | self.has_sparse_index()
    }

    /// Frees what tables keep for reuse, when there was nothing to do for some time: a few pieces in each of many shards
    /// pin much more of the allocator's memory than their own.
    fn free_spares(&mut self) {
        self.servers.free_spare();
        self.clients.free_spare();
        self.outgoing.free_spare();
        self.response_cache.free_spare();
        self.timer_queues.free_spare();
        if self.index.is_empty() {
            self.index = HashTable::new();
        }
    }

    /// Whether a peak has left memory that [`trim`](Self::trim) may free.
    #[must_use]
    pub fn has_idle_memory(&self) -> bool {
        self.pool.idle() > 0 || self.has_sparse_index()
    }

    fn has_sparse_index(&self) -> bool {
        self.index.capacity() > MAX_MOVED && self.index.capacity() / 8 > self.index.len()
    }

    /// Handles expired timers, at most [`MAX_TIMERS_PER_CALL`].
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let mut rest = MAX_TIMERS_PER_CALL;
        while rest > 0
            && let Some(timer) = self.timer_queues.poll_timer(now)
        {
            rest = rest.saturating_sub(1);
            match timer.side() {
                Side::Server(index) => self.on_server_timer(now, index),
                Side::Client(index) => self.on_client_timer(now, index),
            }
        }
        // Works in small groups, each prefetched.
        let mut few = AHEAD;
        while rest > 0 && few == AHEAD {
            self.prefetch_wait_ends(now);
            few = (0..rest.min(AHEAD)).take_while(|_| self.end_wait(now)).count();
            rest = rest.saturating_sub(few);
        }
        few = AHEAD;
        while rest > 0 && few == AHEAD {
            self.prefetch_expired_responses(now);
            few = (0..rest.min(AHEAD)).take_while(|_| self.expire_response(now)).count();
            rest = rest.saturating_sub(few);
        }
    }

    /// Ends the next wait that is over. Returns whether there was one.
    fn end_wait(&mut self, now: Timestamp) -> bool {
        let Some(end) = self.timer_queues.poll_end(now) else { return false };
        match end.owner.side() {
            Side::Server(index) => self.on_server_wait_end(index, &end),
            Side::Client(index) => self.on_client_wait_end(now, index, &end),
        }
        true
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let timer = self.timer_queues.next_timer().map(|at| Wakeup::at(at, "transaction timer"));
        let ends = match (self.timer_queues.next_end(), self.response_cache.next_deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let end = ends.map(|at| Wakeup { latest: at + MAX_END_DELAY, ..Wakeup::at(at, "end of a transaction") });
        Wakeup::sooner(timer, end)
    }

    /// Returns the next event for a user.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Moves the next message to send into `out`, replacing its contents, and returns its flow. A message that is
    /// sent once is swapped with `out`, whose buffer goes to the pool; a stored message is copied.
    #[inline]
    pub fn poll_transmit(&mut self, out: &mut Buf) -> Option<Flow> {
        // Fast path: also called when nothing is left to send.
        if self.outputs.is_empty() { None } else { self.transmit(out) }
    }

    fn transmit(&mut self, out: &mut Buf) -> Option<Flow> {
        loop {
            let (flow, kept) = match self.outputs.pop_front()? {
                Output::Once { flow, buf } => {
                    self.pool.recycle(core::mem::replace(out, buf));
                    return Some(flow);
                }
                Output::ReplayServer(id) => match self.server(id) {
                    Some(server) => (server.flow, &server.response[..]),
                    None => continue,
                },
                Output::ReplayCached(place) => match self.response_cache.response_at(place) {
                    Some(CachedResponse::Whole(flow, text)) => (flow, text),
                    _ => continue,
                },
                Output::ReplayClient(id) => match self.outgoing(id) {
                    Some(sending) => (sending.flow, &sending.message[..]),
                    None => continue,
                },
            };
            // The stored message may have been removed since the transmission was queued.
            if !kept.is_empty() {
                out.clear();
                out.extend_from_slice(kept);
                return Some(flow);
            }
        }
    }

    /// Sends a message outside of any transaction, in order with the others.
    pub fn send_once(&mut self, flow: Flow, message: Buf) {
        self.push_output(Output::Once { flow, buf: message });
    }

    /// Number of server transactions.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers.len().saturating_add(self.response_cache.len())
    }

    /// Number of client transactions, including reserved ones.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Counters since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks the invariants of the layer in time linear in its size; for tests and the simulator.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        let timers = self.check_servers().saturating_add(self.check_clients());
        assert_eq!(self.timer_queues.armed(), timers, "every armed timer is a transaction's");
        let queued = self.servers.iter().filter(|(_, server)| server.is_queued()).count();
        let queued = queued.saturating_add(self.clients.iter().filter(|(_, slot)| slot.is_queued()).count());
        assert!(self.timer_queues.waiting() >= queued, "every last wait has an end");
        assert!(self.outputs.len() <= MAX_OUTPUTS);
        assert!(self.servers() <= MAX_SERVER && self.clients.len() <= MAX_CLIENT);
    }

    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    // Constructed in place: an output is large, and copying it would stall.
    #[inline(always)]
    pub(crate) fn push_output(&mut self, output: Output) {
        if self.outputs.len() < MAX_OUTPUTS {
            self.outputs.push_back(output);
            return;
        }
        self.drop_output(output);
    }

    #[cold]
    fn drop_output(&mut self, output: Output) {
        self.counters.outputs_dropped = self.counters.outputs_dropped.saturating_add(1);
        if let Output::Once { buf, .. } = output {
            self.pool.recycle(buf);
        }
    }
}

/// Number of items prefetched together.
pub(crate) const AHEAD: usize = 8;
