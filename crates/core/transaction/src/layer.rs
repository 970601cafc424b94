//! The transaction layer: the machines' data, their timers and what they send.

use std::collections::VecDeque;

use hashbrown::HashTable;
use strowger_foundation::{Buf, BufPool, Flow, Slots, Timestamp, Wakeup};

use crate::client::ClientSlot;
use crate::outgoing_request::OutgoingRequest;
use crate::output::{Counters, Event, MAX_OUTPUTS, Output};
use crate::prefetch::AHEAD;
use crate::response_cache::{CachedResponse, ResponseCache};
use crate::server::{IndexEntry, Server};
use crate::timer_queues::{Side, TimerQueues};
use crate::timing::Timing;
use crate::unanswered_index::UnansweredIndex;

/// The most server transactions of a layer.
pub const MAX_SERVER: usize = 1 << 20;
/// The most client transactions of a layer, reserved ones included.
pub const MAX_CLIENT: usize = 1 << 20;
/// The most timers that one [`Transactions::handle_timeout`] serves; the rest are due at once.
pub const MAX_TIMERS_PER_CALL: usize = 4096;
/// The `user` of a transaction that tells nobody.
pub const NO_USER: u32 = u32::MAX;

/// There is no room for another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

/// All transactions of one shard.
///
/// One mutation, then drain: after each `handle_*` (and what the user does in answer) take [`poll_event`](Self::poll_event)
/// and [`poll_transmit`](Self::poll_transmit) to `None`.
#[derive(Debug)]
pub struct Transactions {
    pub(crate) timing: Timing,
    pub(crate) servers: Slots<Server>,
    pub(crate) response_cache: ResponseCache,
    /// Server transactions by their keys, which are keyed hashes already.
    pub(crate) index: HashTable<IndexEntry>,
    pub(crate) clients: Slots<ClientSlot>,
    pub(crate) outgoing: Slots<OutgoingRequest>,
    /// Client transactions that nothing was heard of, by peer.
    pub(crate) unanswered: UnansweredIndex,
    pub(crate) timer_queues: TimerQueues,
    pub(crate) pool: BufPool,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    generation: u32,
}

impl Transactions {
    /// An empty layer. `seed` keeps names of this layer apart from those that a process before it gave out.
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

    /// Changes the base values of timers that are armed from now on.
    pub fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// The buffers: take what is handed to [`respond`](Self::respond), [`start_client`](Self::start_client) and
    /// [`send_once`](Self::send_once) from here.
    pub fn pool(&mut self) -> &mut BufPool {
        &mut self.pool
    }

    /// Serves the timers that are due, at most [`MAX_TIMERS_PER_CALL`].
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
        // A few at a time, each few foreseen.
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

    /// Ends the next last wait that is over; whether there was one.
    fn end_wait(&mut self, now: Timestamp) -> bool {
        let Some(end) = self.timer_queues.poll_end(now) else { return false };
        match end.owner.side() {
            Side::Server(index) => self.on_server_wait_end(index, &end),
            Side::Client(index) => self.on_client_wait_end(now, index, &end),
        }
        true
    }

    /// When [`handle_timeout`](Self::handle_timeout) is next wanted.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let next = [self.timer_queues.next_deadline(), self.response_cache.next_deadline()].into_iter().flatten().min();
        next.map(|at| Wakeup { at, reason: "transaction timer" })
    }

    /// The next event for a user.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next message to send, into `out`, whose contents are lost; where it goes is returned. A message that is sent
    /// once is handed over with its buffer and `out`'s goes into the pool; a kept one is copied.
    #[inline]
    pub fn poll_transmit(&mut self, out: &mut Buf) -> Option<Flow> {
        // Each time that there is nothing more it is asked too.
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
            // What was kept may be gone since the transmission was decided.
            if !kept.is_empty() {
                out.clear();
                out.extend_from_slice(kept);
                return Some(flow);
            }
        }
    }

    /// Sends a message that belongs to no transaction, in the order of all others.
    pub fn send_once(&mut self, flow: Flow, message: Buf) {
        self.push_output(Output::Once { flow, buf: message });
    }

    /// How many server transactions there are.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers.len().saturating_add(self.response_cache.len())
    }

    /// How many client transactions there are, reserved ones included.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks everything that is always true of the layer, in time linear in its size; for tests and the simulator.
    ///
    /// # Panics
    /// Where something is not true.
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

    // In its place at once: an output is large, and to be copied it would have to be waited for.
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
