//! The loop of one core: wait, receive, let the shards act, send.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mio::{Events, Poll, Token};
use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_message::Peek;
use strowger_net::{Clock, Datagram, RecvBatch};

use crate::brain::Maker;
use crate::desk::Desk;
use crate::handover::{Doorbell, Dropped, Receiver, Sender};
use crate::outlet::Outlet;
use crate::status::Board;
use strowger_shard::{Input, Snapshot};

/// How old a posted status may become while there is something new to tell.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// How long a socket that could not be read is left alone.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Messages taken from one other worker before the sockets are looked at again.
const TAKE_BATCH: usize = 64;

/// The doorbell's events; sockets have the index of their listener.
pub(crate) const DOORBELL: Token = Token(usize::MAX);

/// What others reach a worker by.
#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) doorbell: Doorbell,
    pub(crate) mail: Mutex<Option<Mail>>,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) board: Board,
}

/// A snapshot and its version.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) version: u64,
}

impl Contact {
    pub(crate) fn new(doorbell: Doorbell) -> Self {
        Self { doorbell, mail: Mutex::new(None), is_stopping: AtomicBool::new(false), board: Board::default() }
    }

    /// Leaves the newest snapshot; one that was not fetched yet is superseded.
    pub(crate) fn deliver(&self, mail: Mail) {
        *self.mail.lock().unwrap_or_else(PoisonError::into_inner) = Some(mail);
        self.doorbell.ring_always();
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.doorbell.ring_always();
    }
}

/// The ways to one other worker.
pub(crate) struct Neighbour {
    pub(crate) contact: Arc<Contact>,
    pub(crate) give: Sender,
    pub(crate) take: Receiver,
    /// Whether it was given something since it was last rung for.
    pub(crate) is_owed_a_ring: bool,
}

/// One worker.
pub(crate) struct Worker<M: Maker> {
    poll: Poll,
    clock: Clock,
    inbox: RecvBatch,
    contact: Arc<Contact>,
    crew: Crew<M>,
    /// The version of the snapshot that the shards have.
    version: u64,
    /// When the status was last posted.
    posted: Timestamp,
    /// Whether something happened since.
    is_dirty: bool,
}

/// The shards of a worker and its way to the others.
struct Crew<M: Maker> {
    /// Which worker this is.
    index: usize,
    desk: Desk<M>,
    /// By index of the worker; none for the worker itself.
    neighbours: Vec<Option<Neighbour>>,
}

impl<M: Maker> Worker<M> {
    pub(crate) fn new(
        index: usize,
        poll: Poll,
        clock: Clock,
        contact: Arc<Contact>,
        desk: Desk<M>,
        neighbours: Vec<Option<Neighbour>>,
    ) -> Self {
        let crew = Crew { index, desk, neighbours };
        let (version, posted, is_dirty) = (0, Timestamp::ZERO, true);
        Self { poll, clock, inbox: RecvBatch::new(), contact, crew, version, posted, is_dirty }
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// When the kernel refuses to be waited for: nothing that the loop could mend.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        while !self.contact.is_stopping.load(Ordering::Acquire) {
            self.wait(&mut events)?;
            self.handle_events(&events);
            self.round();
        }
        self.crew.desk.flush();
        self.post(self.clock.now());
        Ok(())
    }

    /// Waits until there is something to do, and not at all where there is already.
    pub(crate) fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = Some(Duration::ZERO);
        if !self.crew.has_work() {
            self.contact.doorbell.park();
            if self.crew.is_handed_nothing() {
                timeout = self.timeout();
            }
        }
        let outcome = self.poll.poll(events, timeout);
        self.contact.doorbell.unpark();
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// How long there is nothing to do unless something arrives.
    fn timeout(&self) -> Option<Duration> {
        let status = if self.is_dirty { self.posted + STATUS_EVERY } else { Timestamp::MAX };
        let retry = self.crew.desk.outlets.iter().filter_map(|outlet| outlet.retry).min().unwrap_or(Timestamp::MAX);
        let next = self.crew.desk.next_wakeup().min(status).min(retry);
        (next != Timestamp::MAX).then(|| next - self.clock.now())
    }

    /// Takes note of what the kernel said.
    pub(crate) fn handle_events(&mut self, events: &Events) {
        for event in events {
            if event.token() == DOORBELL {
                self.fetch_mail();
            } else if let Some(outlet) = self.crew.desk.outlets.get_mut(event.token().0) {
                outlet.on_event(event);
            }
        }
    }

    fn fetch_mail(&mut self) {
        let mail = self.contact.mail.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Mail { snapshot, version }) = mail {
            let now = self.clock.now();
            self.crew.desk.handle_config(now, &snapshot);
            self.version = version;
            self.post(now);
        }
    }

    /// One round of work: a batch from each socket that has one, some messages of each other worker, the timers.
    pub(crate) fn round(&mut self) {
        let Self { clock, inbox, crew, is_dirty, .. } = self;
        for listener in 0..crew.desk.outlets.len() {
            *is_dirty |= crew.receive(listener, clock, inbox);
        }
        let now = clock.now();
        *is_dirty |= crew.take_over(now);
        if crew.desk.next_wakeup() <= now {
            crew.desk.handle_timeout(now);
            *is_dirty = true;
        }
        crew.desk.flush();
        if crew.has_lost() {
            crew.desk.handle_lost(now);
            crew.desk.flush();
            *is_dirty = true;
        }
        crew.ring();
        if self.is_dirty && now - self.posted >= STATUS_EVERY {
            self.post(now);
        }
    }

    /// Leaves the status where others read it.
    pub(crate) fn post(&mut self, now: Timestamp) {
        self.contact.board.post(self.crew.desk.status(self.version));
        self.posted = now;
        self.is_dirty = false;
    }
}

impl<M: Maker> Crew<M> {
    /// Whether the next round has work without anything new arriving.
    fn has_work(&self) -> bool {
        self.has_lost() || self.desk.outlets.iter().any(|outlet| outlet.is_readable)
    }

    fn has_lost(&self) -> bool {
        self.desk.outlets.iter().any(Outlet::has_lost)
    }

    /// Whether no other worker has left a message.
    fn is_handed_nothing(&self) -> bool {
        self.neighbours.iter().flatten().all(|neighbour| neighbour.take.is_empty())
    }

    /// Deals with a batch from the socket of `listener`; whether there was one.
    fn receive(&mut self, listener: usize, clock: &Clock, inbox: &mut RecvBatch) -> bool {
        let Some(outlet) = self.desk.outlets.get_mut(listener) else { return false };
        let is_due = outlet.retry.is_some_and(|retry| retry <= clock.now());
        if !outlet.is_readable && !is_due {
            return false;
        }
        outlet.retry = None;
        if let Err(error) = outlet.recv(inbox) {
            let address = outlet.socket().local_addr();
            tracing::error!(%address, %error, "the socket cannot be read; trying again");
            outlet.retry = Some(clock.now() + RETRY_AFTER);
            self.desk.counters.receive_errors += 1;
            return true;
        }
        let pair = clock.pair();
        let listener = ListenerId(u16::try_from(listener).unwrap_or(u16::MAX));
        for datagram in inbox.iter() {
            self.handle_datagram(pair.monotonic, pair.arrival(datagram.arrival), listener, datagram);
        }
        !inbox.is_empty()
    }

    fn handle_datagram(&mut self, now: Timestamp, arrival: Timestamp, listener: ListenerId, datagram: Datagram<'_>) {
        let Datagram { bytes, peer, .. } = datagram;
        let flow = Flow { listener, transport: Transport::Udp, peer };
        if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            self.handle_keep_alive(flow, bytes);
            return;
        }
        let Some((id, peek)) = self.desk.steer(now, bytes) else { return };
        let owner = usize::from(id.0) % self.neighbours.len();
        if owner == self.index {
            self.desk.handle_input(now, id, Input::Message { arrival, flow, peek }, bytes);
        } else {
            self.hand_over(owner, id, arrival, flow, bytes);
        }
    }

    /// Answers a ping. A pong is not a ping, so two servers do not keep one going between them.
    //= rfc5626#3.5.1
    fn handle_keep_alive(&mut self, flow: Flow, bytes: &[u8]) {
        self.desk.counters.keep_alives += 1;
        if bytes == b"\r\n\r\n" {
            self.desk.answer(flow, b"\r\n");
        }
    }

    fn hand_over(&mut self, owner: usize, id: ShardId, arrival: Timestamp, flow: Flow, bytes: &[u8]) {
        let Some(Some(neighbour)) = self.neighbours.get_mut(owner) else { return };
        match neighbour.give.send(id, arrival, flow, bytes) {
            Ok(()) => {
                neighbour.is_owed_a_ring = true;
                self.desk.counters.handed_over += 1;
            }
            Err(Dropped) => self.desk.counters.handover_drops += 1,
        }
    }

    /// Wakes those that were given messages and wait.
    fn ring(&mut self) {
        for neighbour in self.neighbours.iter_mut().flatten() {
            if std::mem::take(&mut neighbour.is_owed_a_ring) {
                neighbour.contact.doorbell.ring();
            }
        }
    }

    /// Deals with what the other workers left; whether there was anything.
    fn take_over(&mut self, now: Timestamp) -> bool {
        let Self { desk, neighbours, .. } = self;
        let before = desk.counters.taken_over;
        for neighbour in neighbours.iter_mut().flatten() {
            for _ in 0..TAKE_BATCH {
                let Some(handed) = neighbour.take.poll() else { break };
                desk.counters.taken_over += 1;
                let bytes = &handed.bytes;
                // It was read once already, by the worker that received it.
                match Peek::read(bytes) {
                    Ok(peek) => {
                        let input = Input::Message { arrival: handed.arrival, flow: handed.flow, peek };
                        desk.handle_input(now, handed.shard, input, bytes);
                    }
                    Err(_) => desk.counters.malformed += 1,
                }
                neighbour.take.give_back(handed.bytes);
            }
        }
        desk.counters.taken_over != before
    }
}
