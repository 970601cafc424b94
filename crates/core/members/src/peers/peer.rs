//! One peer: what it is known to be, what is on its way to it, and what waits.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_registrar::Cursor;

use super::message::{Envelope, FullSync, Process, Request};
use super::queue::{Change, PeerLimits, Queue};
use super::replay_window::WINDOW;
use super::{DEAD_AFTER, HEARTBEAT_INTERVAL, Own};
use crate::length_prefixed;
use crate::status::PeerStatus;

//= rfc3261#17.1.2.2
/// T1, T2 and Timer F: a request is sent again after `T1`, then after twice as long each time but no longer than `T2`, and given up after
/// `TIMER_F`.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const TIMER_F: Duration = Duration::from_secs(32);

/// Requests that are on their way to a peer: those of several peers have to find room in its socket.
const MAX_IN_FLIGHT: usize = 32;
/// A body takes changes until it has so many bytes: the message then fits a packet, unless one change alone does not.
const MAX_BODY_BYTES: usize = 800;
/// Records of the table that wait to be sent before more of it is asked for.
const MAX_SYNC_QUEUE: usize = 1_024;
/// Messages about nonces that wait; beyond that they are dropped.
const MAX_NONCE_MESSAGES: usize = 256;
/// Signs of life whose answer still counts.
const MAX_HEARTBEATS: usize = 4;

/// What a request on its way carries.
#[derive(Debug)]
enum Content {
    /// Changes as they come.
    New(Vec<Change>),
    /// A part of all that is held.
    Table(Vec<Change>),
    /// That this process was sent all.
    SyncComplete(u64),
    /// What is told in order: one message at a time.
    NonceUses(Vec<Arc<[u8]>>),
}

/// A request on its way: the client transaction (RFC 3261 §17.1.2).
#[derive(Debug)]
struct Transaction {
    content: Content,
    bytes: Vec<u8>,
    began: Timestamp,
    next: Timestamp,
    interval: Duration,
}

/// How far it is with telling a peer all that is held.
#[derive(Debug, Default)]
struct FullSyncProgress {
    /// From where on the table is still to be read.
    from: Option<Cursor>,
    /// A part of it has been asked for.
    is_awaited: bool,
    /// It begins anew after that part.
    is_renewed: bool,
    waiting: VecDeque<Change>,
    /// The process that wants to hear when that is done.
    requested_by: Option<u64>,
    /// The process that has heard.
    completed_for: Option<u64>,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// What it was when it last answered: its process, and where it takes SIP requests.
    pub(super) known: Option<(Process, SocketAddr)>,
    seen: Option<Timestamp>,
    was_alive: bool,
    pub(super) failure: Option<&'static str>,
    queue: Queue,
    full_sync: FullSyncProgress,
    /// Which nonces were used. Who is not there misses it, and notices.
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

    /// Whether it has answered lately.
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

    /// Takes a change for it. Where there is no room, all that waits is dropped: it will be told everything instead.
    pub(super) fn push(&mut self, change: &Change) {
        if !self.queue.push(change) {
            self.dropped += self.queue.clear() as u64 + 1;
            self.start_full_sync();
        }
    }

    /// Takes which nonces were used, for who is there.
    pub(super) fn push_nonce_uses(&mut self, now: Timestamp, uses: &Arc<[u8]>) {
        if self.nonce_uses.len() >= MAX_NONCE_MESSAGES {
            self.nonce_uses.clear();
        }
        if self.is_alive(now) {
            self.nonce_uses.push_back(Arc::clone(uses));
        }
    }

    /// Begins to tell it all that is held.
    pub(super) fn start_full_sync(&mut self) {
        self.full_sync.is_renewed = self.full_sync.is_awaited;
        self.full_sync.from = Some(Cursor::default());
    }

    /// A process of it wants all that is held. `true` where that begins now.
    pub(super) fn handle_sync_request(&mut self, process: u64) -> bool {
        if self.full_sync.requested_by == Some(process) || self.full_sync.completed_for == Some(process) {
            return false;
        }
        self.full_sync.requested_by = Some(process);
        self.start_full_sync();
        true
    }

    /// The part of the table that is to be read next, where one is.
    pub(super) fn next_table_part(&mut self, now: Timestamp) -> Option<Cursor> {
        let is_ready =
            self.is_alive(now) && !self.full_sync.is_awaited && self.full_sync.waiting.len() < MAX_SYNC_QUEUE;
        let from = self.full_sync.from.filter(|_| is_ready)?;
        self.full_sync.is_awaited = true;
        Some(from)
    }

    /// A part of the table, and where there is more.
    pub(super) fn handle_table_part(&mut self, records: &[Box<[u8]>], next: Option<Cursor>) {
        self.full_sync.is_awaited = false;
        let is_renewed = core::mem::take(&mut self.full_sync.is_renewed);
        self.full_sync.from = if is_renewed { Some(Cursor::default()) } else { next };
        self.full_sync.waiting.extend(records.iter().flat_map(|record| Change::of_record(record)));
    }

    /// It has answered a request that is on its way, so it is there. What its process did not want is sent again, under another number. Where
    /// it has taken what was said of nonces: when that was said.
    pub(super) fn handle_response(&mut self, now: Timestamp, envelope: &Envelope, is_taken: bool) -> Option<Timestamp> {
        let number = envelope.number;
        let beat = self.heartbeats.iter().position(|beat| *beat == number);
        if beat.is_none() && !self.transactions.contains_key(&number) {
            return None;
        }
        // An answer that comes again says nothing of now.
        beat.map(|at| self.heartbeats.remove(at));
        (self.seen, self.failure) = (Some(now), None);
        if self.known.is_some_and(|(known, _)| known != envelope.from) {
            // What is on its way is addressed to a process that is no more, and who wanted all is no more.
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

    /// What is to be sent now.
    pub(super) fn send_due(&mut self, now: Timestamp, own: &Own, wants_all: bool, send: &mut dyn FnMut(Vec<u8>)) {
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

    /// When [`proceed`](Self::proceed) has something to do.
    pub(super) fn poll_timeout(&self) -> Timestamp {
        let dies = self.seen.filter(|_| self.was_alive).map(|seen| seen + DEAD_AFTER);
        let again = self.transactions.values().map(|transaction| transaction.next).min();
        dies.into_iter().chain(again).fold(self.next_heartbeat, Timestamp::min)
    }

    fn write_heartbeat(&mut self, own: &Own, wants_all: bool) -> Vec<u8> {
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

    fn send_next(&mut self, now: Timestamp, own: &Own) -> Option<Vec<u8>> {
        let oldest = self.transactions.keys().next().copied();
        // Or the peer could not tell whether it has taken the oldest one.
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

    /// What is told in order waits until the peer has what was told before.
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

    /// What comes as it is goes before what is held.
    fn next_content(&mut self) -> Option<Content> {
        // One more is on its way that is not counted: what is told in order.
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

/// Changes for one message.
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
