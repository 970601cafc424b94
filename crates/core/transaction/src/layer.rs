//! The transaction layer: the machines' data, their timers and what they send.

use std::collections::VecDeque;

use hashbrown::HashTable;
use slab::Slab;
use strowger_foundation::{Buf, BufPool, Flow, TimerWheel, Timestamp, Wakeup};

use crate::client::ClientSlot;
use crate::id::{ClientId, ServerId};
use crate::output::{Counters, Event, MAX_OUTPUTS, Output};
use crate::peers::Peers;
use crate::server::Server;
use crate::timing::Timing;

/// The most server transactions of a layer.
pub const MAX_SERVER: usize = 1 << 19;
/// The most client transactions of a layer, reserved ones included.
pub const MAX_CLIENT: usize = 1 << 19;
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
    pub(crate) servers: Slab<Server>,
    /// Server transactions by their keys, which are keyed hashes already.
    pub(crate) index: HashTable<u32>,
    pub(crate) clients: Slab<ClientSlot>,
    /// Client transactions that nothing was heard of, by peer.
    pub(crate) unanswered: Peers,
    pub(crate) wheel: TimerWheel<Timer>,
    pub(crate) pool: BufPool,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    generation: u32,
}

/// Whose a timer of the wheel is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    Server(ServerId),
    Client(ClientId),
}

/// Lets a full table grow by an eighth: twice as much would lie idle for half of what is there.
pub(crate) fn make_room<T>(table: &mut Slab<T>) {
    if table.len() == table.capacity() {
        table.reserve_exact((table.len() / 8).saturating_add(64));
    }
}

impl Transactions {
    /// An empty layer. `seed` keeps names of this layer apart from those that a process before it gave out.
    #[must_use]
    pub fn new(timing: Timing, seed: u64) -> Self {
        let [a, b, c, d, ..] = seed.to_le_bytes();
        Self {
            timing,
            servers: Slab::new(),
            index: HashTable::new(),
            clients: Slab::new(),
            unanswered: Peers::new(seed),
            wheel: TimerWheel::new(),
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
        for _ in 0..MAX_TIMERS_PER_CALL {
            let Some(timer) = self.wheel.poll_expired(now) else { return };
            match timer {
                Timer::Server(id) => self.on_server_timer(now, id),
                Timer::Client(id) => self.on_client_timer(now, id),
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is next wanted.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        self.wheel.next_deadline().map(|at| Wakeup { at, reason: "transaction timer" })
    }

    /// The next event for a user.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next message to send, into `out`, whose contents are lost; where it goes is returned. A message that is sent
    /// once is handed over with its buffer and `out`'s goes into the pool; a kept one is copied.
    pub fn poll_transmit(&mut self, out: &mut Buf) -> Option<Flow> {
        loop {
            let (flow, kept) = match self.outputs.pop_front()? {
                Output::Once { flow, buf } => {
                    self.pool.give(core::mem::replace(out, buf));
                    return Some(flow);
                }
                Output::ReplayServer(id) => match self.server(id) {
                    Some(server) => (server.flow, &server.kept),
                    None => continue,
                },
                Output::ReplayClient(id) => match self.client(id) {
                    Some(client) => (client.flow, &client.kept),
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
        self.servers.len()
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
        assert_eq!(self.wheel.len(), timers, "every armed timer is a transaction's");
        assert!(self.outputs.len() <= MAX_OUTPUTS);
        assert!(self.servers.len() <= MAX_SERVER && self.clients.len() <= MAX_CLIENT);
    }

    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    pub(crate) fn push_output(&mut self, output: Output) {
        if self.outputs.len() < MAX_OUTPUTS {
            self.outputs.push_back(output);
            return;
        }
        self.counters.outputs_dropped = self.counters.outputs_dropped.saturating_add(1);
        if let Output::Once { buf, .. } = output {
            self.pool.give(buf);
        }
    }
}
