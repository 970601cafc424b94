//! REGISTERs that wait until the store has what they change. Of one address one is at the store at a time, so that each is
//! made from what the one before has left.

use core::hash::BuildHasher as _;
use core::time::Duration;
use std::collections::VecDeque;

use smallvec::SmallVec;
use strowger_foundation::map::{SeededMap, SeededState, seeded};
use strowger_foundation::{Buf, ConnId, Flow, Timestamp, Wakeup};

use crate::responder::Responder;

/// REGISTERs of one shard that wait at most; past it they are refused with 503.
pub const MAX_PENDING_REGISTERS: usize = 8192;

/// REGISTERs of one address that wait at most; past it they are refused with 503.
pub const MAX_PENDING_PER_AOR: usize = 16;

/// Orders of an operator to unregister that wait in one shard at most; past it they are not followed, and the log says so.
pub const MAX_UNREGISTER_COMMANDS: usize = 256;

/// How long a REGISTER waits for the store before it is refused with 503.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Buffers for records that are kept for later use.
const SPARE: usize = 256;

/// A REGISTER whose sender is who he says, and what is to be known when its time comes.
#[derive(Debug)]
pub(crate) struct PendingRegister {
    pub(crate) by: Responder,
    pub(crate) source: Flow,
    /// The request as it came; empty once it is answered.
    pub(crate) request: Buf,
    pub(crate) aor: Box<[u8]>,
    /// Its client was told that it takes too long.
    pub(crate) is_answered: bool,
    /// The connection that it came on is closed.
    pub(crate) is_closed: bool,
    /// Its user may not be called any more.
    pub(crate) is_barred: bool,
}

impl PendingRegister {
    /// The connection that it came on, where that is closed.
    pub(crate) fn closed(&self) -> Option<ConnId> {
        self.source.connection.filter(|_| self.is_closed)
    }
}

/// One that waits, and the queue that it waits in.
#[derive(Debug)]
struct QueueEntry {
    waiting: PendingRegister,
    queue: u64,
}

/// An operator's order to unregister.
#[derive(Debug)]
pub(crate) struct UnregisterCommand {
    pub(crate) aor: Box<[u8]>,
    /// Only this contact.
    pub(crate) contact: Option<Box<[u8]>>,
    queue: u64,
    /// The REGISTER that came last before it.
    after: u64,
}

/// Which limit leaves no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    /// [`MAX_WAITING`].
    PerShard,
    /// [`MAX_WAITING_OF_ONE`]: the store may be well, and its client is not.
    PerAor,
}

/// Those of one shard.
#[derive(Debug)]
pub(crate) struct PendingRegisters {
    waiting: SeededMap<u64, QueueEntry>,
    /// By the hash of the address: tickets in the order of their requests. The first is at the store, the others are not.
    queues: SeededMap<u64, SmallVec<[u64; 2]>>,
    /// The tickets of those that came on a connection.
    on_connections: SeededMap<ConnId, SmallVec<[u64; 1]>>,
    /// How many of them have their answer already.
    answered: usize,
    deadlines: VecDeque<(Timestamp, u64)>,
    /// Those that wait for REGISTERs of their address, in their order.
    commands: VecDeque<UnregisterCommand>,
    /// Those whose turn it is.
    due: VecDeque<UnregisterCommand>,
    /// Records for the store.
    records: VecDeque<(Option<u64>, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    next: u64,
    hasher: SeededState,
}

impl PendingRegisters {
    /// `seed` is another one for each life of a shard, so that no ticket is the predecessor's.
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = seeded(seed);
        Self {
            waiting: SeededMap::with_hasher(hasher.clone()),
            queues: SeededMap::with_hasher(hasher.clone()),
            on_connections: SeededMap::with_hasher(hasher.clone()),
            answered: 0,
            deadlines: VecDeque::new(),
            commands: VecDeque::new(),
            due: VecDeque::new(),
            records: VecDeque::new(),
            spare: Vec::new(),
            next: hasher.hash_one("ticket"),
            hasher,
        }
    }

    /// REGISTERs without an answer.
    pub(crate) fn unanswered(&self) -> usize {
        self.waiting.len().saturating_sub(self.answered)
    }

    /// What is full, where there is no room for one more of `aor`.
    pub(crate) fn exceeded_limit(&self, aor: &[u8]) -> Option<QueueLimit> {
        let of_one = self.queues.get(&self.key(aor)).map_or(0, SmallVec::len);
        if of_one >= MAX_PENDING_PER_AOR {
            return Some(QueueLimit::PerAor);
        }
        (self.waiting.len() >= MAX_PENDING_REGISTERS).then_some(QueueLimit::PerShard)
    }

    fn key(&self, aor: &[u8]) -> u64 {
        self.hasher.hash_one(aor)
    }

    /// Takes a request; its ticket, and whether it is the first of its address: then it is staged now, else when those
    /// before it are done.
    pub(crate) fn add(&mut self, now: Timestamp, waiting: PendingRegister) -> (u64, bool) {
        let ticket = self.next;
        self.next = self.next.wrapping_add(1);
        let key = self.key(&waiting.aor);
        if let Some(connection) = waiting.source.connection {
            self.on_connections.entry(connection).or_default().push(ticket);
        }
        let queue = self.queues.entry(key).or_default();
        queue.push(ticket);
        let is_first = queue.len() == 1;
        self.waiting.insert(ticket, QueueEntry { waiting, queue: key });
        self.deadlines.push_back((now + STORE_TIMEOUT, ticket));
        (ticket, is_first)
    }

    pub(crate) fn get_mut(&mut self, ticket: u64) -> Option<&mut PendingRegister> {
        self.waiting.get_mut(&ticket).map(|seat| &mut seat.waiting)
    }

    /// Ends the wait of one; and who is the next of its address.
    pub(crate) fn remove(&mut self, ticket: u64) -> Option<(PendingRegister, Option<u64>)> {
        let QueueEntry { waiting, queue: key } = self.waiting.remove(&ticket)?;
        self.answered -= usize::from(waiting.is_answered);
        if let Some(connection) = waiting.source.connection
            && let Some(tickets) = self.on_connections.get_mut(&connection)
        {
            tickets.retain(|other| *other != ticket);
            if tickets.is_empty() {
                self.on_connections.remove(&connection);
            }
        }
        while self.deadlines.front().is_some_and(|(_, ticket)| !self.waiting.contains_key(ticket)) {
            self.deadlines.pop_front();
        }
        let Some(queue) = self.queues.get_mut(&key) else { return Some((waiting, None)) };
        let was_first = queue.first() == Some(&ticket);
        queue.retain(|other| *other != ticket);
        let next = queue.first().copied();
        if was_first && !self.commands.is_empty() {
            // Who has waited too long is in no queue any more.
            let is_due = |order: &UnregisterCommand| order.queue == key && !queue.contains(&order.after);
            let (due, left) = core::mem::take(&mut self.commands).into_iter().partition(is_due);
            self.commands = left;
            let due: VecDeque<UnregisterCommand> = due;
            self.due.extend(due);
        }
        if next.is_none() {
            self.queues.remove(&key);
        }
        Some((waiting, next.filter(|_| was_first)))
    }

    /// Whether a REGISTER of `aor` is at the store.
    pub(crate) fn is_queued(&self, aor: &[u8]) -> bool {
        self.queues.contains_key(&self.key(aor))
    }

    /// Has an order wait for the REGISTERs of `aor` that are queued; `false` where there are none, or too many wait. One that
    /// says nothing new is the one that it repeats.
    pub(crate) fn add_command(&mut self, aor: &[u8], contact: Option<&[u8]>) -> bool {
        let queue = self.key(aor);
        let Some(after) = self.queues.get(&queue).and_then(|queue| queue.last().copied()) else { return false };
        let mut same = self.commands.iter().filter(|order| order.after == after && *order.aor == *aor);
        if same.any(|order| order.contact.is_none() || order.contact.as_deref() == contact) {
            return true;
        }
        let has_room = self.commands.len() < MAX_UNREGISTER_COMMANDS;
        if has_room {
            self.commands.push_back(UnregisterCommand {
                aor: aor.into(),
                contact: contact.map(Into::into),
                queue,
                after,
            });
        }
        has_room
    }

    /// Takes an order for whose address nothing is at the store: after each [`remove`](Self::remove), before the next of the
    /// address is staged.
    pub(crate) fn poll_command(&mut self) -> Option<UnregisterCommand> {
        self.due.pop_front()
    }

    /// Takes what is needed to tell a client that its time is up. What the store has not seen yet is over; what it has, goes
    /// on.
    pub(crate) fn poll_expired(&mut self, now: Timestamp) -> Option<(Responder, Flow, Buf)> {
        while let Some((_, ticket)) = self.deadlines.front().copied().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.pop_front();
            let Some(QueueEntry { waiting, queue }) = self.waiting.get_mut(&ticket) else { continue };
            waiting.is_answered = true;
            self.answered += 1;
            let asked = (waiting.by, waiting.source, core::mem::take(&mut waiting.request));
            let queue = self.queues.get(queue);
            if queue.is_some_and(|queue| queue.first() != Some(&ticket)) {
                self.remove(ticket);
            }
            return Some(asked);
        }
        None
    }

    pub(crate) fn handle_closed(&mut self, connection: ConnId) {
        for ticket in self.on_connections.get(&connection).into_iter().flatten() {
            if let Some(seat) = self.waiting.get_mut(ticket) {
                seat.waiting.is_closed = true;
            }
        }
    }

    /// What waits for `aor` comes to nothing.
    pub(crate) fn bar(&mut self, aor: &[u8]) {
        for ticket in self.queues.get(&self.key(aor)).into_iter().flatten() {
            if let Some(seat) = self.waiting.get_mut(ticket).filter(|seat| *seat.waiting.aor == *aor) {
                seat.waiting.is_barred = true;
            }
        }
    }

    /// An empty buffer for a record.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare.len() < SPARE && buffer.capacity() <= 4096 {
            self.spare.push(buffer);
        }
    }

    /// Leaves a record for the store.
    pub(crate) fn push_record(&mut self, ticket: Option<u64>, record: Vec<u8>) {
        debug_assert!(strowger_registrar::Record::parse(&record).is_ok(), "a record that nobody could read");
        self.records.push_back((ticket, record));
    }

    pub(crate) fn poll_record(&mut self) -> Option<(Option<u64>, Vec<u8>)> {
        self.records.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Wakeup> {
        self.deadlines.front().map(|(at, _)| Wakeup { at: *at, reason: "store" })
    }
}
