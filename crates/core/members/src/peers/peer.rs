//! One peer: its liveness, requests in flight and waiting changes.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_registrar::Cursor;

use super::message::{Envelope, FullSync, Process, Request};
use super::queue::{Change, PeerLimits, Queue};
use super::replay_window::WINDOW;
use super::{DEAD_AFTER, HEARTBEAT_INTERVAL, LocalProcess};
use crate::length_prefixed;
use crate::status::PeerStatus;

//= rfc3261#17.1.2.2
/// T1, T2 and Timer F (RFC 3261): a request is retransmitted after `T1`, then at doubled intervals up to `T2`, and
/// given up after `TIMER_F`.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const TIMER_F: Duration = Duration::from_secs(32);

/// Maximum requests in flight to a peer. A peer's socket buffer must hold those of several members.
const MAX_IN_FLIGHT: usize = 32;
/// Body size at which no more changes are added, in bytes. The message then fits one packet unless a single change is
/// too large.
const MAX_BODY_BYTES: usize = 800;
/// Table records waiting to be sent above which no more are read.
const MAX_SYNC_QUEUE: usize = 1_024;
/// Maximum number of waiting nonce messages; further ones are dropped.
const MAX_NONCE_MESSAGES: usize = 256;
/// Number of heartbeats whose answer still counts.
const MAX_HEARTBEATS: usize = 4;

/// Content of a request in flight.
#[derive(Debug)]
enum Content {
    /// New changes.
    New(Vec<Change>),
    /// A part of the table, for a full synchronization.
    Table(Vec<Change>),
    /// Tells this process that it has been sent everything.
    SyncComplete(u64),
    /// Used nonces. These messages are sent in order, one at a time.
    NonceUses(Vec<Arc<[u8]>>),
}

/// A request in flight: the client transaction (RFC 3261 §17.1.2).
#[derive(Debug)]
struct Transaction {
    content: Content,
    bytes: Vec<u8>,
    began: Timestamp,
    next: Timestamp,
    interval: Duration,
}

/// Progress of a full synchronization to a peer.
#[derive(Debug, Default)]
struct FullSyncProgress {
    /// Cursor from which the table is still to be read.
    from: Option<Cursor>,
    /// Whether a part has been requested from the table.
    is_awaited: bool,
    /// Whether to start again after that part.
    is_renewed: bool,
    waiting: VecDeque<Change>,
    /// Process to notify on completion.
    requested_by: Option<u64>,
    /// Process that has been notified.
    completed_for: Option<u64>,
}

/// State of one peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// Process and SIP address from its last answer.
    pub(super) known: Option<(Process, SocketAddr)>,
    seen: Option<Timestamp>,
    was_alive: bool,
    pub(super) failure: Option<&'static str>,
    queue: Queue,
    full_sync: FullSyncProgress,
    /// Messages about used nonces. A peer that is down misses them and notices the gap.
    nonce_uses: VecDeque<Arc<[u8]>>,
    transactions: BTreeMap<u64, Transaction>,
    last_number: u64,
    heartbeats: VecDeque<u64>,
    next_heartbeat: Timestamp,
    dropped: u64,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, limits: PeerLimits, now: Timestamp) -> Self {
        Self {
            address,
            known: None,
            seen: None,
            was_alive: false,
            failure: None,
            queue: Queue::new(limits),
            full_sync: FullSyncProgress::default(),
            nonce_uses: VecDeque::new(),
            transactions: BTreeMap::new(),
            last_number: 0,
            heartbeats: VecDeque::new(),
            next_heartbeat: now,
            dropped: 0,
        }
    }

    /// Whether the peer has answered recently.
    pub(super) fn is_alive(&self, now: Timestamp) -> bool {
        self.seen.is_some_and(|seen| now < seen + DEAD_AFTER)
    }

    pub(super) fn is_process(&self, process: Process) -> bool {
        self.known.is_some_and(|(known, _)| known == process)
    }

    pub(super) fn status(&self, now: Timestamp) -> PeerStatus {
        PeerStatus {
            address: self.address,
            member: self.known.map(|(process, _)| process.member),
            is_alive: self.is_alive(now),
            waiting: self.waiting(),
            dropped: self.dropped,
            failure: self.failure,
        }
    }

    fn waiting(&self) -> usize {
        let on_their_way = self.transactions.values().map(|transaction| match &transaction.content {
            Content::New(changes) | Content::Table(changes) => changes.len(),
            Content::SyncComplete(_) | Content::NonceUses(_) => 0,
        });
        on_their_way.sum::<usize>() + self.queue.len() + self.full_sync.waiting.len()
    }

    /// Queues a change. Without room for it, drops all waiting changes and starts a full synchronization instead.
    pub(super) fn push(&mut self, change: &Change) {
        if !self.queue.push(change) {
            self.dropped += self.queue.clear() as u64 + 1;
            self.start_full_sync();
        }
    }

    /// Queues used nonces if the peer is alive.
    pub(super) fn push_nonce_uses(&mut self, now: Timestamp, uses: &Arc<[u8]>) {
        if self.nonce_uses.len() >= MAX_NONCE_MESSAGES {
            self.nonce_uses.clear();
        }
        if self.is_alive(now) {
            self.nonce_uses.push_back(Arc::clone(uses));
        }
    }

    /// Starts a full synchronization.
    pub(super) fn start_full_sync(&mut self) {
        self.full_sync.is_renewed = self.full_sync.is_awaited;
        self.full_sync.from = Some(Cursor::default());
    }

    /// Handles a process's request for a full synchronization. Returns `true` if one starts.
    pub(super) fn handle_sync_request(&mut self, process: u64) -> bool {
        if self.full_sync.requested_by == Some(process) || self.full_sync.completed_for == Some(process) {
            return false;
        }
        self.full_sync.requested_by = Some(process);
        self.start_full_sync();
        true
    }

    /// Returns the cursor of the next part of the table to read, if one is due.
    pub(super) fn next_table_part(&mut self, now: Timestamp) -> Option<Cursor> {
        let is_ready =
            self.is_alive(now) && !self.full_sync.is_awaited && self.full_sync.waiting.len() < MAX_SYNC_QUEUE;
        let from = self.full_sync.from.filter(|_| is_ready)?;
        self.full_sync.is_awaited = true;
        Some(from)
    }

    /// Handles a part of the table and, if there is more, the next cursor.
    pub(super) fn handle_table_part(&mut self, records: &[Box<[u8]>], next: Option<Cursor>) {
        self.full_sync.is_awaited = false;
        let is_renewed = core::mem::take(&mut self.full_sync.is_renewed);
        self.full_sync.from = if is_renewed { Some(Cursor::default()) } else { next };
        self.full_sync.waiting.extend(records.iter().flat_map(|record| Change::of_record(record)));
    }

    /// Handles the response to a request in flight, which shows that the peer is alive. What the peer's process has
    /// rejected is sent again under a new number. If the peer has accepted used nonces, returns when they were sent.
    pub(super) fn handle_response(&mut self, now: Timestamp, envelope: &Envelope, is_taken: bool) -> Option<Timestamp> {
        let number = envelope.number;
        let beat = self.heartbeats.iter().position(|beat| *beat == number);
        if beat.is_none() && !self.transactions.contains_key(&number) {
            return None;
        }
        // A repeated answer does not show that the peer is alive.
        beat.map(|at| self.heartbeats.remove(at));
        (self.seen, self.failure) = (Some(now), None);
        if self.known.is_some_and(|(known, _)| known != envelope.from) {
            // Requests in flight are addressed to a process that has ended, as has the one that requested a full
            // synchronization.
            self.requeue_all();
            (self.full_sync.requested_by, self.full_sync.completed_for) = (None, None);
        }
        self.known = Some((envelope.from, envelope.address));
        self.end(number, is_taken)
    }

    fn end(&mut self, number: u64, is_taken: bool) -> Option<Timestamp> {
        let transaction = self.transactions.remove(&number)?;
        match transaction.content {
            Content::NonceUses(_) if is_taken => return Some(transaction.began),
            Content::SyncComplete(process) if is_taken => {
                self.full_sync.completed_for = Some(process);
                self.full_sync.requested_by.take_if(|wanted_by| *wanted_by == process);
            }
            _ if is_taken => {}
            content => self.requeue(content),
        }
        None
    }

    /// Sends what is due.
    pub(super) fn send_due(
        &mut self,
        now: Timestamp,
        own: &LocalProcess,
        wants_all: bool,
        send: &mut dyn FnMut(Vec<u8>),
    ) {
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + HEARTBEAT_INTERVAL;
            send(self.write_heartbeat(own, wants_all));
        }
        let is_alive = self.is_alive(now);
        if core::mem::replace(&mut self.was_alive, is_alive) && !is_alive {
            self.requeue_all();
            self.nonce_uses.clear();
        }
        if !is_alive {
            return;
        }
        self.retransmit(now, send);
        while let Some(bytes) = self.send_next(now, own) {
            send(bytes);
        }
    }

    /// Returns when [`send_due`](Self::send_due) has work.
    pub(super) fn poll_timeout(&self) -> Timestamp {
        let dies = self.seen.filter(|_| self.was_alive).map(|seen| seen + DEAD_AFTER);
        let again = self.transactions.values().map(|transaction| transaction.next).min();
        dies.into_iter().chain(again).fold(self.next_heartbeat, Timestamp::min)
    }

    fn write_heartbeat(&mut self, own: &LocalProcess, wants_all: bool) -> Vec<u8> {
        self.last_number += 1;
        self.heartbeats.push_back(self.last_number);
        if self.heartbeats.len() > MAX_HEARTBEATS {
            self.heartbeats.pop_front();
        }
        let whole = if wants_all { FullSync::Requested } else { FullSync::None };
        let envelope = own.envelope(None, self.last_number, whole);
        let (listen, peer) = (own.listen, self.address);
        Request { envelope, listen, peer, changes: &[], body: &[] }.write(&own.key)
    }

    fn retransmit(&mut self, now: Timestamp, send: &mut dyn FnMut(Vec<u8>)) {
        let is_over = |transaction: &Transaction| now >= transaction.began + TIMER_F;
        let over: Vec<u64> =
            self.transactions.iter().filter(|(_, one)| is_over(one)).map(|(number, _)| *number).collect();
        for number in over {
            self.end(number, false);
        }
        for transaction in self.transactions.values_mut().filter(|transaction| transaction.next <= now) {
            transaction.interval = (2 * transaction.interval).min(T2);
            transaction.next = now + transaction.interval;
            send(transaction.bytes.clone());
        }
    }

    fn send_next(&mut self, now: Timestamp, own: &LocalProcess) -> Option<Vec<u8>> {
        let oldest = self.transactions.keys().next().copied();
        // Beyond the window the peer could not tell whether it has accepted the oldest request.
        let is_far = oldest.is_some_and(|oldest| self.last_number + 1 >= oldest + WINDOW);
        let (to, _) = self.known.filter(|_| !is_far)?;
        let content = self.next_nonce_uses().or_else(|| self.next_content())?;
        self.last_number += 1;
        let (changes, whole) = match &content {
            Content::New(changes) | Content::Table(changes) => {
                (changes.iter().map(|change| &*change.record).collect(), FullSync::None)
            }
            Content::SyncComplete(_) => (Vec::new(), FullSync::Complete),
            Content::NonceUses(_) => (Vec::new(), FullSync::None),
        };
        let mut body = Vec::new();
        changes.iter().for_each(|change| length_prefixed::write(&mut body, change));
        if let Content::NonceUses(uses) = &content {
            uses.iter().for_each(|uses| length_prefixed::write(&mut body, uses));
        }
        let envelope = own.envelope(Some(to), self.last_number, whole);
        let (listen, peer) = (own.listen, self.address);
        let bytes = Request { envelope, listen, peer, changes: &changes, body: &body }.write(&own.key);
        let transaction = Transaction { content, bytes: bytes.clone(), began: now, next: now + T1, interval: T1 };
        self.transactions.insert(self.last_number, transaction);
        Some(bytes)
    }

    /// Returns the next nonce messages. They wait until the peer has the previous ones.
    fn next_nonce_uses(&mut self) -> Option<Content> {
        let is_telling = self.transactions.values().any(|one| matches!(one.content, Content::NonceUses(_)));
        if is_telling || self.nonce_uses.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let uses = core::iter::from_fn(|| {
            let next = self.nonce_uses.pop_front_if(|_| bytes < MAX_BODY_BYTES)?;
            bytes += next.len();
            Some(next)
        });
        Some(Content::NonceUses(uses.collect()))
    }

    /// Returns the next content. New changes go before the full synchronization.
    fn next_content(&mut self) -> Option<Content> {
        // The one request with used nonces is in flight in addition to the limit.
        if self.transactions.len() > MAX_IN_FLIGHT {
            return None;
        }
        let new = fill_body(|| self.queue.pop());
        if !new.is_empty() {
            return Some(Content::New(new));
        }
        let held = fill_body(|| self.full_sync.waiting.pop_front());
        if !held.is_empty() {
            return Some(Content::Table(held));
        }
        let is_held = |one: &Transaction| matches!(one.content, Content::Table(_) | Content::SyncComplete(_));
        let is_done =
            self.full_sync.from.is_none() && !self.full_sync.is_awaited && !self.transactions.values().any(is_held);
        self.full_sync.requested_by.filter(|_| is_done).map(Content::SyncComplete)
    }

    fn requeue_all(&mut self) {
        for (_, transaction) in core::mem::take(&mut self.transactions) {
            self.requeue(transaction.content);
        }
    }

    fn requeue(&mut self, content: Content) {
        match content {
            Content::New(changes) => changes.iter().for_each(|change| self.push(change)),
            Content::Table(changes) => self.full_sync.waiting.extend(changes),
            Content::SyncComplete(_) => {}
            Content::NonceUses(uses) => uses.into_iter().rev().for_each(|uses| self.nonce_uses.push_front(uses)),
        }
    }
}

/// Collects changes for one message body.
fn fill_body(mut next: impl FnMut() -> Option<Change>) -> Vec<Change> {
    let (mut changes, mut bytes) = (Vec::new(), 0);
    while bytes < MAX_BODY_BYTES
        && let Some(change) = next()
    {
        bytes += change.record.len();
        changes.push(change);
    }
    changes
}
