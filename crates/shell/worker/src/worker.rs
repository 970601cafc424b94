//! The loop of one core: wait, receive, let the shards act, send.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mio::{Events, Poll, Token};
use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_locate::{Answer, QueryId};
use strowger_message::Peek;
use strowger_net::{Clock, Datagram, RecvBatch};

use crate::brain::Maker;
use crate::calls::Inquiry;
use crate::desk::Desk;
use crate::exits::Port;
use crate::handover::{Doorbell, Errand, HANDOVER_QUEUE};
use crate::keep::Stored;
use crate::outlet::Outlet;
use crate::reading::SCRATCH_BYTES;
use crate::status::Board;
use crate::streams::Closed;
use strowger_shard::{Input, Snapshot};

/// How old a posted status may become while there is something new to tell.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// How long a socket that could not be read is left alone.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// How long a worker sleeps at most while it waits for room that another one makes.
const CROWDED: Duration = Duration::from_millis(1);

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
    /// Questions to the DNS that wait for their answers.
    pub(crate) questions: AtomicUsize,
    post: Mutex<Post>,
    /// Whether there is anything in `post`.
    has_post: AtomicBool,
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
struct Post {
    closed: Vec<Closed>,
    answers: Vec<(ShardId, QueryId, Answer)>,
    stored: Vec<Stored>,
    /// Let go when all of `stored` is dealt with.
    tokens: Vec<Arc<()>>,
    forgotten: Vec<(ShardId, Box<[u8]>)>,
    inquiries: Vec<Inquiry>,
}

impl Contact {
    pub(crate) fn new(doorbell: Doorbell) -> Self {
        Self {
            doorbell,
            mail: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            board: Board::default(),
            questions: AtomicUsize::new(0),
            post: Mutex::default(),
            has_post: AtomicBool::new(false),
        }
    }

    /// Leaves the newest snapshot; one that was not fetched yet is superseded.
    pub(crate) fn deliver(&self, mail: Mail) {
        *self.mail.lock().unwrap_or_else(PoisonError::into_inner) = Some(mail);
        self.doorbell.ring_always();
    }

    /// Leaves word of connections that are closed. Whoever does so rings.
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

    /// Leaves word of what became of records.
    pub(crate) fn tell_stored(&self, mut stored: Vec<Stored>, token: Option<Arc<()>>) {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        post.stored.append(&mut stored);
        post.tokens.extend(token);
        drop(post);
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring();
    }

    /// Leaves word of a user who may not be called any more.
    pub(crate) fn tell_forgotten(&self, shard: ShardId, aor: &[u8]) {
        self.post.lock().unwrap_or_else(PoisonError::into_inner).forgotten.push((shard, aor.into()));
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring_always();
    }

    /// Leaves a question of the control plane.
    pub(crate) fn inquire(&self, inquiry: Inquiry) {
        self.post.lock().unwrap_or_else(PoisonError::into_inner).inquiries.push(inquiry);
        self.has_post.store(true, Ordering::Release);
        self.doorbell.ring_always();
    }

    fn has_post(&self) -> bool {
        self.has_post.load(Ordering::Acquire)
    }

    /// Takes what was left.
    fn take_post(&self) -> Option<Post> {
        let is_there = self.has_post() && self.has_post.swap(false, Ordering::AcqRel);
        is_there.then(|| std::mem::take(&mut *self.post.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.doorbell.ring_always();
    }
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

/// The shards of a worker and its ways to the world.
pub(crate) struct Crew<M: Maker> {
    pub(crate) desk: Desk<M>,
    /// Where connections are read into.
    pub(crate) scratch: Vec<u8>,
}

impl<M: Maker> Worker<M> {
    pub(crate) fn new(poll: Poll, clock: Clock, desk: Desk<M>) -> Self {
        let contact = Arc::clone(&desk.exits.contact);
        let crew = Crew { desk, scratch: vec![0; SCRATCH_BYTES] };
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
        let now = self.clock.now();
        // Others may have handed over last answers for connections of this worker.
        self.crew.take_over(now, HANDOVER_QUEUE);
        self.crew.desk.exits.flush(now);
        self.crew.desk.exits.hand_in();
        self.post(now);
        Ok(())
    }

    /// Waits until there is something to do, and not at all where there is already.
    pub(crate) fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = Some(Duration::ZERO);
        if !self.crew.has_work() {
            self.contact.doorbell.park();
            if self.crew.is_handed_nothing() && !self.contact.has_post() {
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
        let exits = &self.crew.desk.exits;
        let retry = exits.ports.iter().filter_map(Port::retry).min().unwrap_or(Timestamp::MAX);
        let next = self.crew.desk.next_wakeup().min(exits.streams.next_deadline()).min(status).min(retry);
        let timeout = (next != Timestamp::MAX).then(|| next - self.clock.now());
        if exits.is_crowded() { Some(timeout.unwrap_or(CROWDED).min(CROWDED)) } else { timeout }
    }

    /// Takes note of what the kernel said.
    pub(crate) fn handle_events(&mut self, events: &Events) {
        for event in events {
            if event.token() == DOORBELL {
                self.fetch_mail();
            } else if !self.crew.desk.exits.streams.on_event(event)
                && let Some(port) = self.crew.desk.exits.ports.get_mut(event.token().0)
            {
                port.on_event(event);
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

    /// One round of work: a batch from each socket that has one, some messages of each connection and of each other worker,
    /// the timers.
    pub(crate) fn round(&mut self) {
        let Self { clock, inbox, crew, contact, is_dirty, .. } = self;
        for listener in 0..crew.desk.exits.ports.len() {
            *is_dirty |= crew.receive(listener, clock, inbox);
        }
        let now = clock.now();
        *is_dirty |= crew.read_streams(now);
        // What was handed over before a connection was closed must be heard before that: the post is taken first, then all
        // that the rings have, and then the post is opened.
        let post = contact.take_post();
        *is_dirty |= crew.take_over(now, if post.is_some() { HANDOVER_QUEUE } else { TAKE_BATCH });
        if let Some(post) = post {
            crew.open_post(now, post);
            *is_dirty = true;
        }
        if crew.desk.next_wakeup() <= now {
            crew.desk.handle_timeout(now);
            *is_dirty = true;
        }
        if crew.desk.exits.streams.next_deadline() <= now {
            crew.desk.exits.streams.handle_timeout(now);
            *is_dirty = true;
        }
        crew.desk.exits.flush(now);
        if crew.has_lost() {
            crew.handle_lost(now);
            crew.desk.exits.flush(now);
            *is_dirty = true;
        }
        crew.desk.exits.hand_in();
        crew.desk.exits.ring();
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
        let exits = &self.desk.exits;
        self.has_lost() || exits.streams.has_work() || exits.ports.iter().any(Port::is_readable)
    }

    fn has_lost(&self) -> bool {
        let exits = &self.desk.exits;
        !exits.unconnected.is_empty() || exits.ports.iter().filter_map(Port::as_outlet).any(Outlet::has_lost)
    }

    /// Whether no other worker has left a message.
    fn is_handed_nothing(&self) -> bool {
        self.desk.exits.neighbours.iter().flatten().all(|neighbour| neighbour.take.is_empty())
    }

    /// Tells shards what could not be reached. What they try in its place, and fails too, is told with the next round.
    fn handle_lost(&mut self, now: Timestamp) {
        self.desk.handle_lost(now);
        for (shard, flow) in std::mem::take(&mut self.desk.exits.unconnected) {
            self.desk.handle_unconnected(now, shard, flow);
        }
    }

    fn open_post(&mut self, now: Timestamp, post: Post) {
        self.desk.handle_closed(now, &post.closed);
        for (shard, query, answer) in post.answers {
            self.desk.handle_answer(now, shard, query, answer);
        }
        for stored in post.stored {
            self.desk.handle_stored(now, stored);
        }
        drop(post.tokens);
        for (shard, aor) in post.forgotten {
            self.desk.handle_forgotten(now, shard, &aor);
        }
        for inquiry in post.inquiries {
            // Who asked may have lost patience.
            match inquiry {
                Inquiry::Calls(limit, reply) => drop(reply.try_send(self.desk.calls(limit))),
                Inquiry::Accounts(reply) => drop(reply.try_send(self.desk.accounts(now))),
            }
        }
    }

    /// Deals with a batch from the socket of `listener`; whether there was one.
    fn receive(&mut self, listener: usize, clock: &Clock, inbox: &mut RecvBatch) -> bool {
        let outlet = match self.desk.exits.ports.get_mut(listener) {
            Some(Port::Udp(outlet)) => outlet,
            Some(port @ Port::Tcp(_)) => {
                let is_due = port.retry().is_some_and(|retry| retry <= clock.now());
                return (port.is_readable() || is_due) && self.desk.exits.accept(clock.now(), listener);
            }
            None => return false,
        };
        let is_due = outlet.retry.is_some_and(|retry| retry <= clock.now());
        if !outlet.is_readable && !is_due {
            return false;
        }
        outlet.retry = None;
        if let Err(error) = outlet.recv(inbox) {
            let address = outlet.socket().local_addr();
            tracing::error!(%address, %error, "the socket cannot be read; trying again");
            outlet.retry = Some(clock.now() + RETRY_AFTER);
            self.desk.exits.counters.receive_errors += 1;
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
        let flow = Flow::new(listener, Transport::Udp, peer);
        if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            self.handle_keep_alive(flow, bytes);
            return;
        }
        self.desk.exits.tracer.received(now, &flow, bytes);
        let mut peek = Peek::default();
        let Some((id, steered)) = &self.desk.steer(now, bytes, &mut peek) else { return };
        let owner = self.desk.exits.worker_of(*id);
        if owner == self.desk.exits.index {
            self.desk.handle_input(now, *id, Input::Message { arrival, flow, peek: &peek, steered }, bytes);
        } else {
            self.desk.exits.hand_over(owner, *id, arrival, flow, bytes);
        }
    }

    /// Answers a ping. A pong is not a ping, so two servers do not keep one going between them.
    //= rfc5626#3.5.1
    fn handle_keep_alive(&mut self, flow: Flow, bytes: &[u8]) {
        self.desk.exits.counters.keep_alives += 1;
        if bytes == b"\r\n\r\n" {
            self.desk.answer(flow, b"\r\n");
        }
    }

    /// Deals with up to `limit` messages that each of the other workers left; whether there was any.
    fn take_over(&mut self, now: Timestamp, limit: usize) -> bool {
        let mut is_any = false;
        for worker in 0..self.desk.exits.neighbours.len() {
            for _ in 0..limit {
                let neighbour = self.desk.exits.neighbours.get_mut(worker).and_then(Option::as_mut);
                let Some(handed) = neighbour.and_then(|neighbour| neighbour.take.poll()) else { break };
                is_any = true;
                if handed.errand == Errand::Deliver {
                    self.desk.exits.counters.taken_over += 1;
                    // It was steered once already, by the worker that received it: what has changed since, such as whose
                    // address it claims, does not give it another owner.
                    let mut peek = Peek::default();
                    if let Some((_, steered)) = &self.desk.steer(now, &handed.bytes, &mut peek) {
                        // Its receiver may have read the clock later than this round began.
                        let arrival = handed.arrival.min(now);
                        let input = Input::Message { arrival, flow: handed.flow, peek: &peek, steered };
                        self.desk.handle_input(now, handed.shard, input, &handed.bytes);
                    }
                } else {
                    self.desk.exits.run_errand(now, &handed);
                }
                if let Some(Some(neighbour)) = self.desk.exits.neighbours.get_mut(worker) {
                    neighbour.take.give_back(handed.bytes);
                }
            }
        }
        is_any
    }
}
