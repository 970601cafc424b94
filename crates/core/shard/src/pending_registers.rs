//! REGISTERs that wait until the store has stored their changes. Only one REGISTER of an address is at the store at a
//! time, so each one starts from the result of the previous one.

use core::hash::BuildHasher as _;
use core::time::Duration;
use std::collections::VecDeque;

use smallvec::SmallVec;
use strowger_foundation::map::{SeededMap, SeededState, seeded};
use strowger_foundation::{Buf, ConnId, Flow, Timestamp, Wakeup};

use crate::responder::Responder;

/// Maximum number of pending REGISTERs per shard; more are refused with 503.
pub const MAX_PENDING_REGISTERS: usize = 8192;

/// Maximum number of pending REGISTERs per address of record; more are refused with 503.
pub const MAX_PENDING_PER_AOR: usize = 16;

/// Maximum number of operators' unregister commands that wait in one shard; more are ignored and logged.
pub const MAX_UNREGISTER_COMMANDS: usize = 256;

/// Time a REGISTER waits for the store before it is refused with 503.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of record buffers kept for reuse.
const SPARE: usize = 256;

/// An authorized REGISTER and what is needed to apply it later.
#[derive(Debug)]
pub(crate) struct PendingRegister {
    pub(crate) by: Responder,
    pub(crate) source: Flow,
    /// The request as received; empty once it is answered.
    pub(crate) request: Buf,
    pub(crate) aor: Box<[u8]>,
    /// Set once the client was told that the store took too long.
    pub(crate) is_answered: bool,
    /// Set if the connection that it came on is closed.
    pub(crate) is_closed: bool,
    /// Set if its user was removed or disabled.
    pub(crate) is_barred: bool,
}

impl PendingRegister {
    /// Returns the connection that it came on, if that is closed.
    pub(crate) fn closed(&self) -> Option<ConnId> {
        self.source.connection.filter(|_| self.is_closed)
    }
}

/// A pending REGISTER and the queue that it waits in.
#[derive(Debug)]
struct QueueEntry {
    waiting: PendingRegister,
    queue: u64,
}

/// An operator's command to unregister.
#[derive(Debug)]
pub(crate) struct UnregisterCommand {
    pub(crate) aor: Box<[u8]>,
    /// The only contact to remove; `None` for all.
    pub(crate) contact: Option<Box<[u8]>>,
    queue: u64,
    /// The ticket of the last REGISTER before it.
    after: u64,
}

/// The limit that a REGISTER exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    /// [`MAX_PENDING_REGISTERS`].
    PerShard,
    /// [`MAX_PENDING_PER_AOR`]: the store may be fine and the client at fault.
    PerAor,
}

/// The pending REGISTERs of one shard.
#[derive(Debug)]
pub(crate) struct PendingRegisters {
    waiting: SeededMap<u64, QueueEntry>,
    /// Tickets in the order of their requests, by the hash of the address. The first is at the store, the others are
    /// not.
    queues: SeededMap<u64, SmallVec<[u64; 2]>>,
    /// The tickets of REGISTERs that came on a connection.
    on_connections: SeededMap<ConnId, SmallVec<[u64; 1]>>,
    /// Number of REGISTERs that are already answered.
    answered: usize,
    deadlines: VecDeque<(Timestamp, u64)>,
    /// Commands that wait for REGISTERs of their address, in order.
    commands: VecDeque<UnregisterCommand>,
    /// Commands that can be applied.
    due: VecDeque<UnregisterCommand>,
    /// Records for the store.
    records: VecDeque<(Option<u64>, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    next: u64,
    hasher: SeededState,
}

impl PendingRegisters {
    /// Creates an empty table. `seed` must differ for each instance of a shard, so that no ticket repeats one of a
    /// predecessor.
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

    /// Returns the number of REGISTERs that wait for the store, answered ones included.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of unanswered REGISTERs.
    pub(crate) fn unanswered(&self) -> usize {
        self.waiting.len().saturating_sub(self.answered)
    }

    /// Returns the limit that one more REGISTER of `aor` would exceed.
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

    /// Adds a request. Returns its ticket and whether it is the first of its address. The first is staged at once,
    /// any other when those before it are done.
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
        self.waiting.get_mut(&ticket).map(|entry| &mut entry.waiting)
    }

    /// Removes a pending REGISTER; also returns the next ticket of its address.
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
            // A timed-out REGISTER is in no queue.
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

    /// Returns whether a REGISTER of `aor` is at the store.
    pub(crate) fn is_queued(&self, aor: &[u8]) -> bool {
        self.queues.contains_key(&self.key(aor))
    }

    /// Queues a command behind the pending REGISTERs of `aor`. Returns `false` if there are none or too many commands
    /// wait. A command that an earlier one covers is dropped.
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

    /// Returns a command that can be applied because the REGISTERs before it are done. Call it after each
    /// [`remove`](Self::remove), before the next REGISTER of the address is staged.
    pub(crate) fn poll_command(&mut self) -> Option<UnregisterCommand> {
        self.due.pop_front()
    }

    /// Returns what is needed to refuse a REGISTER whose time is up. One that is not at the store yet is dropped; one
    /// that is at the store continues.
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
            if let Some(entry) = self.waiting.get_mut(ticket) {
                entry.waiting.is_closed = true;
            }
        }
    }

    /// Marks the pending REGISTERs of `aor` as barred, so that they have no effect.
    pub(crate) fn bar(&mut self, aor: &[u8]) {
        for ticket in self.queues.get(&self.key(aor)).into_iter().flatten() {
            if let Some(entry) = self.waiting.get_mut(ticket).filter(|entry| *entry.waiting.aor == *aor) {
                entry.waiting.is_barred = true;
            }
        }
    }

    /// Returns an empty buffer for a record.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare.len() < SPARE && buffer.capacity() <= 4096 {
            self.spare.push(buffer);
        }
    }

    /// Queues a record for the store.
    pub(crate) fn push_record(&mut self, ticket: Option<u64>, record: Vec<u8>) {
        debug_assert!(strowger_registrar::Record::parse(&record).is_ok(), "a record that nobody could read");
        self.records.push_back((ticket, record));
    }

    pub(crate) fn poll_record(&mut self) -> Option<(Option<u64>, Vec<u8>)> {
        self.records.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Wakeup> {
        self.deadlines.front().map(|(at, _)| Wakeup::at(*at, "store"))
    }
}
