//! One peer: what it is known to be, what is on its way to it, and what waits.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_registrar::Cursor;

use super::message::{Envelope, Process, Request, Whole};
use super::queue::{Change, PeerLimits, Queue};
use super::window::WINDOW;
use super::{BEAT_EVERY, DEAD_AFTER, Own};
use crate::items;
use crate::status::PeerSeen;

//= rfc3261#17.1.2.2
/// T1, T2 and Timer F: a request is sent again after `T1`, then after twice as long each time but no longer than `T2`, and given up after
/// `TIMER_F`.
const T1: Duration = Duration::from_millis(500);
const T2: Duration = Duration::from_secs(4);
const TIMER_F: Duration = Duration::from_secs(32);

/// Requests that are on their way to a peer: those of several peers have to find room in its socket.
const IN_FLIGHT: usize = 32;
/// A body takes changes until it has so many bytes: the message then fits a packet, unless one change alone does not.
const BODY: usize = 800;
/// Records of the table that wait to be sent before more of it is asked for.
const WHOLE_AT_ONCE: usize = 1_024;
/// Messages about nonces that wait; beyond that they are dropped.
const USES: usize = 256;
/// Signs of life whose answer still counts.
const BEATS: usize = 4;

/// What a request on its way carries.
#[derive(Debug)]
enum Content {
    /// Changes as they come.
    New(Vec<Change>),
    /// A part of all that is held.
    Held(Vec<Change>),
    /// That this process was sent all.
    AllSent(u64),
    /// What is told in order: one message at a time.
    Uses(Vec<Arc<[u8]>>),
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
struct Telling {
    /// From where on the table is still to be read.
    from: Option<Cursor>,
    /// A part of it has been asked for.
    is_awaited: bool,
    /// It begins anew after that part.
    is_renewed: bool,
    waiting: VecDeque<Change>,
    /// The process that wants to hear when that is done.
    wanted_by: Option<u64>,
    /// The process that has heard.
    told: Option<u64>,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// What it was when it last answered: its process, and where it takes SIP requests.
    pub(super) known: Option<(Process, SocketAddr)>,
    seen: Option<Timestamp>,
    was_alive: bool,
    pub(super) trouble: Option<&'static str>,
    queue: Queue,
    telling: Telling,
    /// Which nonces were used. Who is not there misses it, and notices.
    uses: VecDeque<Arc<[u8]>>,
    transactions: BTreeMap<u64, Transaction>,
    last_number: u64,
    beats: VecDeque<u64>,
    next_beat: Timestamp,
    dropped: u64,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, limits: PeerLimits, now: Timestamp) -> Self {
        Self {
            address,
            known: None,
            seen: None,
            was_alive: false,
            trouble: None,
            queue: Queue::new(limits),
            telling: Telling::default(),
            uses: VecDeque::new(),
            transactions: BTreeMap::new(),
            last_number: 0,
            beats: VecDeque::new(),
            next_beat: now,
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

    pub(super) fn status(&self, now: Timestamp) -> PeerSeen {
        PeerSeen {
            address: self.address,
            member: self.known.map(|(process, _)| process.member),
            is_alive: self.is_alive(now),
            waiting: self.waiting(),
            dropped: self.dropped,
            trouble: self.trouble,
        }
    }

    fn waiting(&self) -> usize {
        let on_their_way = self.transactions.values().map(|transaction| match &transaction.content {
            Content::New(changes) | Content::Held(changes) => changes.len(),
            Content::AllSent(_) | Content::Uses(_) => 0,
        });
        on_their_way.sum::<usize>() + self.queue.len() + self.telling.waiting.len()
    }

    /// Takes a change for it. Where there is no room, all that waits is dropped: it will be told everything instead.
    pub(super) fn push(&mut self, change: &Change) {
        if !self.queue.push(change) {
            self.dropped += self.queue.clear() as u64 + 1;
            self.tell_all();
        }
    }

    /// Takes which nonces were used, for who is there.
    pub(super) fn push_uses(&mut self, now: Timestamp, uses: &Arc<[u8]>) {
        if self.uses.len() >= USES {
            self.uses.clear();
        }
        if self.is_alive(now) {
            self.uses.push_back(Arc::clone(uses));
        }
    }

    /// Begins to tell it all that is held.
    pub(super) fn tell_all(&mut self) {
        self.telling.is_renewed = self.telling.is_awaited;
        self.telling.from = Some(Cursor::default());
    }

    /// A process of it wants all that is held. `true` where that begins now.
    pub(super) fn handle_want(&mut self, process: u64) -> bool {
        if self.telling.wanted_by == Some(process) || self.telling.told == Some(process) {
            return false;
        }
        self.telling.wanted_by = Some(process);
        self.tell_all();
        true
    }

    /// The part of the table that is to be read next, where one is.
    pub(super) fn next_part(&mut self, now: Timestamp) -> Option<Cursor> {
        let is_ready = self.is_alive(now) && !self.telling.is_awaited && self.telling.waiting.len() < WHOLE_AT_ONCE;
        let from = self.telling.from.filter(|_| is_ready)?;
        self.telling.is_awaited = true;
        Some(from)
    }

    /// A part of the table, and where there is more.
    pub(super) fn handle_part(&mut self, records: &[Box<[u8]>], next: Option<Cursor>) {
        self.telling.is_awaited = false;
        let is_renewed = core::mem::take(&mut self.telling.is_renewed);
        self.telling.from = if is_renewed { Some(Cursor::default()) } else { next };
        self.telling.waiting.extend(records.iter().flat_map(|record| Change::of_record(record)));
    }

    /// It has answered a request that is on its way, so it is there. What its process did not want is sent again, under another number. Where
    /// it has taken what was said of nonces: when that was said.
    pub(super) fn handle_answer(&mut self, now: Timestamp, envelope: &Envelope, is_taken: bool) -> Option<Timestamp> {
        let number = envelope.number;
        let beat = self.beats.iter().position(|beat| *beat == number);
        if beat.is_none() && !self.transactions.contains_key(&number) {
            return None;
        }
        // An answer that comes again says nothing of now.
        beat.map(|at| self.beats.remove(at));
        (self.seen, self.trouble) = (Some(now), None);
        if self.known.is_some_and(|(known, _)| known != envelope.from) {
            // What is on its way is addressed to a process that is no more, and who wanted all is no more.
            self.put_back_all();
            (self.telling.wanted_by, self.telling.told) = (None, None);
        }
        self.known = Some((envelope.from, envelope.address));
        self.end(number, is_taken)
    }

    fn end(&mut self, number: u64, is_taken: bool) -> Option<Timestamp> {
        let transaction = self.transactions.remove(&number)?;
        match transaction.content {
            Content::Uses(_) if is_taken => return Some(transaction.began),
            Content::AllSent(process) if is_taken => {
                self.telling.told = Some(process);
                self.telling.wanted_by.take_if(|wanted_by| *wanted_by == process);
            }
            _ if is_taken => {}
            content => self.put_back(content),
        }
        None
    }

    /// What is to be sent now.
    pub(super) fn proceed(&mut self, now: Timestamp, own: &Own, wants_all: bool, send: &mut dyn FnMut(Vec<u8>)) {
        if now >= self.next_beat {
            self.next_beat = now + BEAT_EVERY;
            send(self.beat(own, wants_all));
        }
        let is_alive = self.is_alive(now);
        if core::mem::replace(&mut self.was_alive, is_alive) && !is_alive {
            self.put_back_all();
            self.uses.clear();
        }
        if !is_alive {
            return;
        }
        self.send_again(now, send);
        while let Some(bytes) = self.send_next(now, own) {
            send(bytes);
        }
    }

    /// When [`proceed`](Self::proceed) has something to do.
    pub(super) fn poll_timeout(&self) -> Timestamp {
        let dies = self.seen.filter(|_| self.was_alive).map(|seen| seen + DEAD_AFTER);
        let again = self.transactions.values().map(|transaction| transaction.next).min();
        dies.into_iter().chain(again).fold(self.next_beat, Timestamp::min)
    }

    fn beat(&mut self, own: &Own, wants_all: bool) -> Vec<u8> {
        self.last_number += 1;
        self.beats.push_back(self.last_number);
        if self.beats.len() > BEATS {
            self.beats.pop_front();
        }
        let whole = if wants_all { Whole::ConfigSource } else { Whole::Nothing };
        let envelope = own.envelope(None, self.last_number, whole);
        let (listen, peer) = (own.listen, self.address);
        Request { envelope, listen, peer, changes: &[], body: &[] }.write(&own.key)
    }

    fn send_again(&mut self, now: Timestamp, send: &mut dyn FnMut(Vec<u8>)) {
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
        let content = self.next_uses().or_else(|| self.next_content())?;
        self.last_number += 1;
        let (changes, whole) = match &content {
            Content::New(changes) | Content::Held(changes) => {
                (changes.iter().map(|change| &*change.record).collect(), Whole::Nothing)
            }
            Content::AllSent(_) => (Vec::new(), Whole::Sent),
            Content::Uses(_) => (Vec::new(), Whole::Nothing),
        };
        let mut body = Vec::new();
        changes.iter().for_each(|change| items::write(&mut body, change));
        if let Content::Uses(uses) = &content {
            uses.iter().for_each(|uses| items::write(&mut body, uses));
        }
        let envelope = own.envelope(Some(to), self.last_number, whole);
        let (listen, peer) = (own.listen, self.address);
        let bytes = Request { envelope, listen, peer, changes: &changes, body: &body }.write(&own.key);
        let transaction = Transaction { content, bytes: bytes.clone(), began: now, next: now + T1, interval: T1 };
        self.transactions.insert(self.last_number, transaction);
        Some(bytes)
    }

    /// What is told in order waits until the peer has what was told before.
    fn next_uses(&mut self) -> Option<Content> {
        let is_telling = self.transactions.values().any(|one| matches!(one.content, Content::Uses(_)));
        if is_telling || self.uses.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let uses = core::iter::from_fn(|| {
            let next = self.uses.pop_front_if(|_| bytes < BODY)?;
            bytes += next.len();
            Some(next)
        });
        Some(Content::Uses(uses.collect()))
    }

    /// What comes as it is goes before what is held.
    fn next_content(&mut self) -> Option<Content> {
        // One more is on its way that is not counted: what is told in order.
        if self.transactions.len() > IN_FLIGHT {
            return None;
        }
        let new = take_body(|| self.queue.pop());
        if !new.is_empty() {
            return Some(Content::New(new));
        }
        let held = take_body(|| self.telling.waiting.pop_front());
        if !held.is_empty() {
            return Some(Content::Held(held));
        }
        let is_held = |one: &Transaction| matches!(one.content, Content::Held(_) | Content::AllSent(_));
        let is_done =
            self.telling.from.is_none() && !self.telling.is_awaited && !self.transactions.values().any(is_held);
        self.telling.wanted_by.filter(|_| is_done).map(Content::AllSent)
    }

    fn put_back_all(&mut self) {
        for (_, transaction) in core::mem::take(&mut self.transactions) {
            self.put_back(transaction.content);
        }
    }

    fn put_back(&mut self, content: Content) {
        match content {
            Content::New(changes) => changes.iter().for_each(|change| self.push(change)),
            Content::Held(changes) => self.telling.waiting.extend(changes),
            Content::AllSent(_) => {}
            Content::Uses(uses) => uses.into_iter().rev().for_each(|uses| self.uses.push_front(uses)),
        }
    }
}

/// Changes for one message.
fn take_body(mut next: impl FnMut() -> Option<Change>) -> Vec<Change> {
    let (mut changes, mut bytes) = (Vec::new(), 0);
    while bytes < BODY
        && let Some(change) = next()
    {
        bytes += change.record.len();
        changes.push(change);
    }
    changes
}
