//! The connections of one worker.
//!
//! A connection belongs to the worker that accepted or opened it for its whole life. Reading and writing follow mio's
//! edges. A connection that dies during a round keeps its slot until [`Streams::finish`], so that an event, a list
//! entry or a borrowed slot never refers to a different connection.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::{Interest, Registry, Token};
use strowger_foundation::{ConnId, Flow, ListenerId, ShardId, TimerWheel, Timestamp};
use strowger_net::{IoOutcome, TcpStream};

use crate::connection::{Connection, Phase};
use crate::connection_index::{ConnectionIndex, LimitExceeded, PeerKey};
use crate::limits::{FREE_BYTES, KEPT_BYTES, QUEUED_BYTES, StreamLimits};
use crate::slots::Slots;
use crate::status::StreamCounters;

/// Maximum time for the last output of a connection to leave.
const ENDING: Duration = Duration::from_secs(2);

/// Size beyond which a send queue is written at once instead of at the end of the round.
const WRITE_EARLY_BYTES: usize = 64 * 1024;

/// Number of spare buffers, and the maximum capacity of each.
const SPARES: usize = 64;
const SPARE_BYTES: usize = 16 * 1024;

/// Maximum number of paused connections checked at a time.
const REVIEWS: usize = 256;
/// Token of a connection's events: this plus the slot.
const FIRST_TOKEN: usize = 1 << 32;

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The peer closed it.
    Ended,
    /// It broke, or the peer stopped acknowledging.
    Broken,
    /// It could not be opened.
    ConnectFailed,
    /// It could not be opened in time.
    ConnectTimeout,
    /// It was idle too long.
    Idle,
    /// A message took too long.
    Slow,
    /// The input was not SIP or could not be delimited.
    Malformed,
    /// Its send queue was full.
    QueueFull,
    /// All connections together buffered too much.
    Memory,
}

/// A closed connection and its far end.
pub(crate) type ClosedConnection = (ConnId, SocketAddr);

/// The connections of one worker.
#[derive(Debug)]
pub(crate) struct Streams {
    worker: u16,
    registry: Registry,
    index: Arc<ConnectionIndex>,
    limits: StreamLimits,
    slots: Slots,
    wheel: TimerWheel<u32>,
    /// Connections that may have input, each once.
    ready: VecDeque<u32>,
    /// Connections whose next input is new work while the worker limits it; read when no others are ready.
    deferred: VecDeque<u32>,
    /// Time since which connections have continuously had input.
    busy_since: Option<Timestamp>,
    /// Connections that are not read because of far too much new work, in the order in which they were paused.
    paused: VecDeque<ConnId>,
    /// Connections whose next message has no room at another worker; ready again in the next round.
    stalled: Vec<u32>,
    /// Connections with output to write, each once.
    dirty: Vec<u32>,
    dead: Vec<(u32, CloseReason)>,
    kept_bytes: usize,
    queued_bytes: usize,
    spares: Vec<Vec<u8>>,
    /// Flows that could not be reached, with the shards that sent to them.
    pub(crate) failed: Vec<(ShardId, Flow)>,
    /// Closed connections that shards may know.
    pub(crate) closed: Vec<ClosedConnection>,
    pub(crate) counters: StreamCounters,
}

impl Streams {
    /// Creates an empty set. `seed` is drawn once per process, so that ids issued by an earlier process are invalid.
    pub(crate) fn new(
        worker: u16,
        registry: Registry,
        index: Arc<ConnectionIndex>,
        limits: StreamLimits,
        seed: u64,
    ) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is small")]
        let first_generation = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % u64::from(ConnId::GENERATIONS)) as u32;
        Self {
            worker,
            registry,
            index,
            limits,
            slots: Slots::new(first_generation),
            wheel: TimerWheel::new(),
            ready: VecDeque::new(),
            deferred: VecDeque::new(),
            busy_since: None,
            paused: VecDeque::new(),
            stalled: Vec::new(),
            dirty: Vec::new(),
            dead: Vec::new(),
            kept_bytes: 0,
            queued_bytes: 0,
            spares: Vec::new(),
            failed: Vec::new(),
            closed: Vec::new(),
            counters: StreamCounters::default(),
        }
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of connections with unsent output.
    pub(crate) fn unsent(&self) -> usize {
        if self.queued_bytes == 0 { 0 } else { self.slots.iter().filter(|connection| connection.unsent() > 0).count() }
    }

    pub(crate) fn get(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_mut()
    }

    /// Returns the id of the connection at `slot`.
    pub(crate) fn id(&self, slot: u32) -> ConnId {
        let generation = self.slots.get(slot as usize).map_or(0, |slot| slot.generation);
        ConnId::new(self.worker, slot, generation)
    }

    /// Returns the far end of the connection at `slot`.
    pub(crate) fn peer(&self, slot: u32) -> Option<SocketAddr> {
        Some(self.slots.get(slot as usize)?.connection.as_ref()?.peer)
    }

    /// Returns the slot of connection `id` if it can be used for sending.
    pub(crate) fn find(&self, id: ConnId) -> Option<u32> {
        let slot = self.slots.get(id.slot())?;
        let is_it = slot.generation == id.generation() && id.worker() == usize::from(self.worker);
        let is_usable = |connection: &Connection| matches!(connection.phase, Phase::Opening | Phase::Open);
        (is_it && slot.connection.as_ref().is_some_and(is_usable)).then_some(u32::try_from(id.slot()).ok()?)
    }

    /// Returns the connection of any worker to a peer.
    pub(crate) fn owner(&self, way: PeerKey) -> Option<ConnId> {
        self.index.find(way)
    }

    /// Takes an accepted connection, or closes it if a limit is reached.
    pub(crate) fn accept(&mut self, now: Timestamp, listener: ListenerId, stream: TcpStream, peer: SocketAddr) {
        let source = Some(peer.ip());
        match self.index.acquire(source) {
            Ok(()) => {}
            Err(LimitExceeded::Total) => return self.counters.refused_total += 1,
            Err(LimitExceeded::Source) => return self.counters.refused_source += 1,
        }
        // If the connection is already gone, reading it will show that.
        let _ = stream.tune(self.limits.user_timeout);
        match self.insert(now, (listener, peer), stream, Phase::Open) {
            Some(slot) => {
                self.counters.accepted += 1;
                // An outgoing connection to the same peer keeps its entry.
                let _ = self.index.claim((listener, peer), self.id(slot));
            }
            None => self.index.release(source),
        }
    }

    /// Starts a connection from the address of `listener`. Returns the connection of another worker if that one was
    /// faster.
    ///
    /// # Errors
    /// When none can be opened.
    pub(crate) fn open(&mut self, now: Timestamp, way: PeerKey, local: IpAddr) -> Result<ConnId, ()> {
        if self.index.acquire(None).is_err() {
            self.counters.refused_total += 1;
            return Err(());
        }
        let stream = TcpStream::connect(local, way.1).inspect(|stream| drop(stream.tune(self.limits.user_timeout)));
        let slot = stream.ok().and_then(|stream| self.insert(now, way, stream, Phase::Opening));
        let Some(slot) = slot else {
            self.index.release(None);
            self.counters.connect_failures += 1;
            return Err(());
        };
        let id = self.id(slot);
        if let Err(other) = self.index.claim(way, id) {
            if self.find(other).is_some() || other.worker() != usize::from(self.worker) {
                self.close_now(slot);
                return Ok(other);
            }
            self.index.withdraw(way, other);
            let _ = self.index.claim(way, id);
        }
        self.counters.opened += 1;
        Ok(id)
    }

    fn insert(&mut self, now: Timestamp, way: PeerKey, mut stream: TcpStream, phase: Phase) -> Option<u32> {
        let slot = self.slots.take(ConnId::MAX_SLOTS)?;
        let token = Token(FIRST_TOKEN + slot as usize);
        if let Err(error) = self.registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE) {
            tracing::error!(%error, "a connection cannot be registered for polling and is closed");
            self.slots.release(slot);
            return None;
        }
        let (listener, peer) = way;
        let armed = now + self.patience(phase);
        let connection = Connection {
            stream,
            peer,
            listener,
            phase,
            is_accepted: phase == Phase::Open,
            is_known: false,
            is_readable: false,
            is_ending: false,
            is_blocked: false,
            is_listed: false,
            is_dirty: false,
            has_backlog: false,
            is_stale: false,
            framer: crate::framing::StreamFramer::default(),
            needed: 0,
            since: Timestamp::MAX,
            heard: now,
            armed,
            timer: self.wheel.insert(armed, slot),
            unparsed: Vec::new(),
            out: Vec::new(),
            written: 0,
            writers: None,
        };
        if let Some(place) = self.slots.get_mut(slot as usize) {
            place.connection = Some(connection);
        }
        Some(slot)
    }

    /// Returns the maximum time without input in a phase.
    fn patience(&self, phase: Phase) -> Duration {
        /// Check interval of connections without an idle limit.
        const NOW_AND_THEN: Duration = Duration::from_secs(24 * 3600);
        match phase {
            Phase::Opening => self.limits.connect_timeout,
            Phase::Open if self.limits.idle.is_zero() => NOW_AND_THEN,
            Phase::Open => self.limits.idle,
            Phase::Ending | Phase::Dead => ENDING,
        }
    }

    // ---- reading -------------------------------------------------------------------------------------------------

    /// Handles a mio event; returns whether it is about a connection.
    pub(crate) fn on_event(&mut self, event: &Event) -> bool {
        let Some(slot) = event.token().0.checked_sub(FIRST_TOKEN).and_then(|slot| u32::try_from(slot).ok()) else {
            return false;
        };
        let Some(connection) = self.get(slot) else { return true };
        let is_broken = event.is_error();
        connection.is_readable |= event.is_readable() || event.is_read_closed() || is_broken;
        connection.is_ending |= event.is_read_closed() || is_broken;
        if event.is_writable() || is_broken {
            connection.is_blocked = false;
        }
        if connection.phase == Phase::Opening {
            match connection.stream.is_connected() {
                Ok(true) => {
                    connection.phase = Phase::Open;
                    connection.writers = None;
                }
                Ok(false) => return true,
                Err(_) => {
                    self.kill(slot, CloseReason::ConnectFailed);
                    return true;
                }
            }
        }
        let (is_readable, has_output) = (connection.is_readable, connection.unsent() > 0);
        if is_readable {
            self.list(slot);
        }
        if has_output {
            self.mark(slot);
        }
        true
    }

    /// Returns the number of connections that may have input.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns whether a round has work even if nothing new arrives.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.deferred.is_empty()
            || !self.dirty.is_empty()
            || !self.dead.is_empty()
            || !self.failed.is_empty()
    }

    pub(crate) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Makes stalled connections ready again.
    pub(crate) fn resume_stalled(&mut self) {
        while let Some(slot) = self.stalled.pop() {
            self.list(slot);
        }
    }

    /// Returns the next ready connection with its unparsed bytes.
    pub(crate) fn next_ready(&mut self) -> Option<(u32, Vec<u8>)> {
        loop {
            let slot = self.ready.pop_front()?;
            if let Some(next) = self.take_turn(slot) {
                return Some(next);
            }
        }
    }

    /// Returns the next deferred connection with its unparsed bytes.
    pub(crate) fn next_deferred(&mut self) -> Option<(u32, Vec<u8>)> {
        loop {
            let slot = self.deferred.pop_front()?;
            if let Some(next) = self.take_turn(slot) {
                return Some(next);
            }
        }
    }

    fn take_turn(&mut self, slot: u32) -> Option<(u32, Vec<u8>)> {
        let connection = self.get(slot)?;
        connection.is_listed = false;
        let kept = std::mem::take(&mut connection.unparsed);
        self.kept_bytes -= kept.len().saturating_sub(FREE_BYTES);
        Some((slot, kept))
    }

    /// Defers a connection behind all that bring other input.
    pub(crate) fn defer(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_listed && connection.phase != Phase::Dead {
            connection.is_listed = true;
            self.deferred.push_back(slot);
        }
    }

    /// Stops reading a connection, regardless of kernel events, until it is [resumed](Self::resume_reading).
    pub(crate) fn pause_reading(&mut self, slot: u32) {
        let id = self.id(slot);
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_listed && connection.phase != Phase::Dead {
            connection.is_listed = true;
            self.paused.push_back(id);
            self.counters.overload_pauses += 1;
        }
    }

    /// Resumes reading where allowed; waiting new work on these connections is dropped as too old. Returns whether
    /// any are still paused.
    pub(crate) fn resume_reading(&mut self, reads: impl Fn(ConnId) -> bool) -> bool {
        for _ in 0..self.paused.len().min(REVIEWS) {
            let Some(id) = self.paused.pop_front() else { break };
            let Some(slot) = self.find(id) else { continue };
            let Some(connection) = self.get(slot) else { continue };
            if connection.is_ending || reads(id) {
                connection.is_stale = true;
                self.deferred.push_back(slot);
            } else {
                self.paused.push_back(id);
            }
        }
        !self.paused.is_empty()
    }

    /// Returns the time since which connections have continuously had input; called before reading. The kernel does
    /// not report how long stream input has waited, so this serves as an upper bound.
    pub(crate) fn busy_since(&mut self, now: Timestamp) -> Timestamp {
        *self.busy_since.get_or_insert(now)
    }

    /// Ends the busy period if no input remains; called after reading.
    pub(crate) fn end_busy_period(&mut self) {
        if self.ready.is_empty() && self.deferred.is_empty() {
            self.busy_since = None;
        }
    }

    /// Returns the number of deferred connections.
    pub(crate) fn deferred_len(&self) -> usize {
        self.deferred.len()
    }

    /// Returns whether connections buffer so much that input should be handled without deferral.
    pub(crate) fn is_scarce(&self) -> bool {
        self.kept_bytes >= KEPT_BYTES
    }

    /// Reads from a connection, unless it has a backlog that comes first.
    pub(crate) fn read(&mut self, slot: u32, buffer: &mut [u8]) -> usize {
        let Some(connection) = self.get(slot) else { return 0 };
        if connection.has_backlog || !connection.is_readable || connection.phase == Phase::Dead {
            return 0;
        }
        let reason = match connection.stream.read(buffer) {
            Ok(IoOutcome::Bytes(count)) => {
                // A short read has drained the socket, but an end of stream may follow.
                connection.is_readable = count == buffer.len() || connection.is_ending;
                self.counters.bytes_in += count as u64;
                return count;
            }
            Ok(IoOutcome::Blocked) => {
                connection.is_readable = false;
                return 0;
            }
            Ok(IoOutcome::Eof) => CloseReason::Ended,
            Err(_) => CloseReason::Broken,
        };
        self.kill(slot, reason);
        0
    }

    /// Stores unhandled input, in its own buffer or one that just fits.
    pub(crate) fn keep(
        &mut self,
        now: Timestamp,
        slot: u32,
        kept: UnreadInput<'_>,
        needed: Option<usize>,
        is_begun: bool,
    ) {
        let message_timeout = self.limits.message_timeout;
        // Complete messages that wait for their turn or for another worker may use the same amount again.
        let has_room = self.kept_bytes < KEPT_BYTES * if needed.is_some() { 1 } else { 2 };
        let Some(connection) = self.get(slot) else { return };
        if connection.phase == Phase::Dead {
            return;
        }
        connection.unparsed = match kept {
            UnreadInput::Owned(mut bytes, consumed) => {
                bytes.drain(..consumed);
                // Accounting is by length, so the capacity must stay close to it.
                bytes.shrink_to(2 * bytes.len());
                bytes
            }
            UnreadInput::Borrowed(bytes) => bytes.to_vec(),
        };
        let extra = connection.unparsed.len().saturating_sub(FREE_BYTES);
        connection.has_backlog = needed.is_none();
        connection.is_stale &= needed.is_none() || connection.is_readable;
        connection.needed = u32::try_from(needed.unwrap_or(0)).unwrap_or(u32::MAX);
        if needed.is_none() {
            connection.since = Timestamp::MAX;
        } else if is_begun || connection.since == Timestamp::MAX {
            connection.since = now;
        }
        let deadline = if needed.is_some() { connection.since + message_timeout } else { Timestamp::MAX };
        self.kept_bytes += extra;
        if extra > 0 && !has_room {
            return self.kill(slot, CloseReason::Memory);
        }
        self.hurry(slot, deadline);
    }

    /// Records that all input was handled.
    pub(crate) fn keep_nothing(&mut self, slot: u32) {
        if let Some(connection) = self.get(slot) {
            connection.has_backlog = false;
            connection.needed = 0;
            connection.since = Timestamp::MAX;
            connection.is_stale &= connection.is_readable;
        }
    }

    /// Marks a connection as ready to be read.
    pub(crate) fn list(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_listed && connection.phase != Phase::Dead {
            connection.is_listed = true;
            self.ready.push_back(slot);
        }
    }

    /// Makes a connection ready in the next round.
    pub(crate) fn stall(&mut self, slot: u32) {
        self.counters.handover_pauses += 1;
        self.stalled.push(slot);
    }

    // ---- writing -------------------------------------------------------------------------------------------------

    /// Queues bytes to be sent at the end of the round. `sender` is notified if they cannot be sent.
    pub(crate) fn write(&mut self, slot: u32, sender: Option<(ShardId, Flow)>, bytes: &[u8]) {
        let (limit, is_scarce) = (self.limits.send_queue, self.queued_bytes > QUEUED_BYTES);
        let is_long = |connection: &Connection| connection.unsent() + bytes.len() > WRITE_EARLY_BYTES.min(limit);
        if self.get(slot).is_some_and(|connection| is_long(connection)) {
            self.flush(slot);
        }
        let spare = &mut self.spares;
        let Some(connection) = self.slots.get_mut(slot as usize).and_then(|slot| slot.connection.as_mut()) else {
            return;
        };
        if let Some((shard, flow)) = sender {
            connection.note_writer(shard, flow);
        }
        let waiting = connection.unsent() + bytes.len();
        if waiting > limit {
            return self.kill(slot, CloseReason::QueueFull);
        }
        if is_scarce && waiting > FREE_BYTES {
            return self.kill(slot, CloseReason::Memory);
        }
        if connection.out.capacity() == 0
            && let Some(buffer) = spare.pop()
        {
            connection.out = buffer;
        }
        connection.out.extend_from_slice(bytes);
        self.queued_bytes += bytes.len();
        self.mark(slot);
    }

    fn mark(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Writes the waiting output of one connection.
    fn flush(&mut self, slot: u32) {
        let Self { slots, spares, queued_bytes, counters, .. } = self;
        let Some(connection) = slots.get_mut(slot as usize).and_then(|slot| slot.connection.as_mut()) else { return };
        if connection.is_blocked || connection.phase == Phase::Opening {
            return;
        }
        let Ok(written) = connection.write_out() else { return self.kill(slot, CloseReason::Broken) };
        *queued_bytes -= written;
        counters.bytes_out += written as u64;
        if connection.unsent() > 0 {
            return;
        }
        let mut empty = std::mem::take(&mut connection.out);
        connection.written = 0;
        if (1..=SPARE_BYTES).contains(&empty.capacity()) && spares.len() < SPARES {
            empty.clear();
            spares.push(empty);
        }
        if connection.phase == Phase::Ending {
            connection.stream.end();
        }
    }

    // ---- ending --------------------------------------------------------------------------------------------------

    /// Ignores further input, sends the remaining output, then closes.
    pub(crate) fn end(&mut self, now: Timestamp, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if connection.phase != Phase::Open {
            return;
        }
        connection.phase = Phase::Ending;
        connection.heard = now;
        // Further input is read and discarded.
        (connection.has_backlog, connection.since) = (false, Timestamp::MAX);
        let way = connection.peer_key();
        self.counters.closed_malformed += 1;
        self.index.withdraw(way, self.id(slot));
        self.mark(slot);
        self.hurry(slot, now + ENDING);
    }

    /// Closes a connection at the end of the round. Nothing is sent on it after this.
    pub(crate) fn kill(&mut self, slot: u32, reason: CloseReason) {
        let Some(connection) = self.get(slot) else { return };
        if connection.phase == Phase::Dead {
            return;
        }
        let is_counted = connection.phase == Phase::Ending;
        connection.phase = Phase::Dead;
        let way = connection.peer_key();
        self.index.withdraw(way, self.id(slot));
        self.dead.push((slot, reason));
        let counters = &mut self.counters;
        let counter = match reason {
            _ if is_counted => return,
            CloseReason::Ended => &mut counters.closed_by_peer,
            CloseReason::Broken => &mut counters.closed_broken,
            CloseReason::ConnectFailed => &mut counters.connect_failures,
            CloseReason::ConnectTimeout => &mut counters.connect_timeouts,
            CloseReason::Idle => &mut counters.closed_idle,
            CloseReason::Slow => &mut counters.closed_slow,
            CloseReason::Malformed => &mut counters.closed_malformed,
            CloseReason::QueueFull => &mut counters.send_overflow,
            CloseReason::Memory => &mut counters.closed_memory,
        };
        *counter += 1;
    }

    /// Writes waiting output and closes dead connections.
    pub(crate) fn finish(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            if let Some(connection) = self.get(slot) {
                connection.is_dirty = false;
                self.flush(slot);
            }
        }
        while let Some((slot, reason)) = self.dead.pop() {
            tracing::debug!(connection = %self.id(slot), ?reason, "closed");
            self.close_now(slot);
        }
    }

    /// Closes a connection at once and notifies those concerned.
    fn close_now(&mut self, slot: u32) {
        let id = self.id(slot);
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let Some(mut connection) = place.connection.take() else { return };
        place.generation = (place.generation + 1) % ConnId::GENERATIONS;
        self.slots.release(slot);
        self.wheel.cancel(connection.timer);
        self.kept_bytes -= connection.unparsed.len().saturating_sub(FREE_BYTES);
        self.queued_bytes -= connection.unsent();
        // List entries stay; the next connection in this slot then gets one extra turn.
        self.index.withdraw(connection.peer_key(), id);
        self.index.release(connection.is_accepted.then_some(connection.peer.ip()));
        match connection.writers.take() {
            Some(writers) => self.failed.extend(*writers),
            //= rfc5626#7:closed
            None if connection.is_known => self.closed.push((id, connection.peer)),
            None => {}
        }
    }

    // ---- time ----------------------------------------------------------------------------------------------------

    /// Returns when the next connection timer fires.
    pub(crate) fn next_deadline(&self) -> Timestamp {
        self.wheel.next_deadline().unwrap_or(Timestamp::MAX)
    }

    /// Handles expired connection timers. Input does not reset a timer, so most connections get another period.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(slot) = self.wheel.poll_expired(now) {
            let Some(connection) = self.get(slot) else { continue };
            let (phase, since, heard) = (connection.phase, connection.since, connection.heard);
            let silent = heard + self.patience(phase);
            let slow = if since == Timestamp::MAX { since } else { since + self.limits.message_timeout };
            let is_endless = phase == Phase::Open && self.limits.idle.is_zero();
            let mut next = silent.min(slow);
            if next <= now {
                let reason = match phase {
                    Phase::Opening => Some(CloseReason::ConnectTimeout),
                    _ if slow <= now => Some(CloseReason::Slow),
                    _ if is_endless => None,
                    Phase::Open | Phase::Ending | Phase::Dead => Some(CloseReason::Idle),
                };
                if let Some(reason) = reason {
                    self.kill(slot, reason);
                }
                let later = now + self.patience(phase);
                next = if slow > now { slow.min(later) } else { later };
            }
            let timer = self.wheel.insert(next, slot);
            if let Some(connection) = self.get(slot) {
                (connection.timer, connection.armed) = (timer, next);
            }
        }
    }

    /// Makes the timer fire no later than `deadline`.
    fn hurry(&mut self, slot: u32, deadline: Timestamp) {
        let Self { slots, wheel, .. } = self;
        let Some(connection) = slots.get_mut(slot as usize).and_then(|slot| slot.connection.as_mut()) else { return };
        if deadline < connection.armed {
            wheel.cancel(connection.timer);
            connection.timer = wheel.insert(deadline, slot);
            connection.armed = deadline;
        }
    }
}

/// Unhandled input of a connection.
pub(crate) enum UnreadInput<'a> {
    /// In the connection's own buffer, after this many handled bytes.
    Owned(Vec<u8>, usize),
    /// In the worker's buffer.
    Borrowed(&'a [u8]),
}
