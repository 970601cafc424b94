//! The connections of one worker.
//!
//! A connection belongs to the worker that accepted or opened it for its whole life. Reading and writing follow mio's
//! edges. A connection that dies during a round keeps its slot until [`Streams::finish`], so that an event, a list
//! entry or a borrowed slot never refers to a different connection.

mod prefaces;
mod reading;
mod refusals;
mod web_sockets;
mod writing;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use mio::{Interest, Registry, Token};
use strowger_ban::BannedSources;
use strowger_foundation::{ConnId, Flow, HostId, ListenerId, ShardId, TimerWheel, Timestamp};
use strowger_locate::NameCache;
use strowger_message::Fault;
use strowger_net::{AcceptedStream, Channel, StreamSocket};

pub(crate) use self::refusals::Limit;
use crate::connection::{Connection, OutputState, Phase};
use crate::connection_index::{ConnectionIndex, LimitExceeded, PeerKey};
use crate::limits::{FREE_BYTES, StreamLimits};
use crate::log_interval::LogInterval;
use crate::slots::Slots;
use crate::status::StreamCounters;
use crate::transport_counters::TransportCounters;
use strowger_shard::Event;

/// Maximum time for the last output of a connection to leave.
const ENDING: Duration = Duration::from_secs(2);

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
    /// The handshake failed.
    HandshakeFailed,
    /// The handshake took too long.
    HandshakeTimeout,
    /// A balancer sent no PROXY header.
    NoPreface,
    /// Its source is banned.
    Banned,
    /// The client of a balancer has too many connections or handshakes in progress, which has been counted.
    Refused,
    /// The request for a WebSocket was refused.
    UpgradeRefused,
    /// The request for a WebSocket took too long.
    UpgradeTimeout,
    /// A ping was not answered.
    Unanswered,
    /// Another process serves, and it is to have all connections.
    HandedOver,
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

/// What ends with a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClosedConnection {
    /// A way of requests to the peer of a secure connection. It comes before the connection itself.
    Way(Flow),
    /// The connection, with its far end.
    Connection(ConnId, SocketAddr),
}

/// The connections of one worker.
#[derive(Debug)]
pub(crate) struct Streams {
    worker: u16,
    registry: Registry,
    pub(crate) index: Arc<ConnectionIndex>,
    /// Knows the names of secure peers.
    pub(crate) names: Arc<NameCache>,
    pub(crate) limits: StreamLimits,
    pub(crate) banned: Arc<BannedSources>,
    events: SyncSender<Event>,
    /// Events dropped because the queue was full.
    pub(crate) event_drops: u64,
    pub(crate) slots: Slots,
    /// Domains by which trunks are known.
    pub(crate) trunk_domains: Vec<Box<str>>,
    /// The numbers of the names of targets, sorted.
    pub(crate) target_names: Vec<HostId>,
    wheel: TimerWheel<u32>,
    /// Connections that may have input, each once.
    ready: VecDeque<u32>,
    /// Connections whose handshake can continue, each once.
    pub(crate) handshakes: VecDeque<u32>,
    pub(crate) failure_log: LogInterval,
    refusal_log: LogInterval,
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
    pub(crate) transports: TransportCounters,
}

impl Streams {
    /// Creates an empty set. `seed` is drawn once per process, so that ids issued by an earlier process are invalid.
    pub(crate) fn new(
        worker: u16,
        registry: Registry,
        index: Arc<ConnectionIndex>,
        names: Arc<NameCache>,
        limits: StreamLimits,
        (banned, events): (Arc<BannedSources>, SyncSender<Event>),
        seed: u64,
    ) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is small")]
        let first_generation = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % u64::from(ConnId::GENERATIONS)) as u32;
        Self {
            worker,
            registry,
            index,
            names,
            limits,
            banned,
            events,
            event_drops: 0,
            slots: Slots::new(first_generation),
            trunk_domains: Vec::new(),
            target_names: Vec::new(),
            wheel: TimerWheel::new(),
            ready: VecDeque::new(),
            handshakes: VecDeque::new(),
            failure_log: LogInterval::default(),
            refusal_log: LogInterval::default(),
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
            transports: TransportCounters::default(),
        }
    }

    /// Sets the number of the process, which the ids of connections name. There must be none yet.
    pub(crate) fn set_process(&mut self, process: u8, seed: u64) {
        debug_assert!(self.slots.len() == 0, "their ids name another process");
        self.slots = Slots::new(ConnId::first_generation(process, seed));
    }

    /// Closes all connections once their output is sent.
    pub(crate) fn end_all(&mut self, now: Timestamp) {
        for slot in self.slots.used() {
            self.end(now, slot, CloseReason::HandedOver);
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

    /// Returns the peers of the connections of this worker among `ids`.
    pub(crate) fn peers(&self, ids: &[ConnId]) -> Vec<(ConnId, SocketAddr)> {
        ids.iter().filter_map(|id| Some((*id, self.peer(self.find(*id)?)?))).collect()
    }

    /// Returns the connection of any worker to a peer.
    pub(crate) fn owner(&self, way: PeerKey) -> Option<ConnId> {
        self.index.find(way)
    }

    /// Takes an accepted connection, or closes it if a limit is reached.
    pub(crate) fn accept(&mut self, now: Timestamp, listener: ListenerId, stream: AcceptedStream, peer: SocketAddr) {
        if self.banned.contains(peer.ip()) {
            return self.counters.refused_banned += 1;
        }
        let source = Some(peer.ip());
        match self.index.acquire(source) {
            Ok(()) => {}
            Err(LimitExceeded::Total) => return self.on_refused(now, peer, Limit::Total),
            Err(LimitExceeded::Source) => return self.on_refused(now, peer, Limit::Source),
        }
        let transport = stream.transport();
        if !self.index.acquire_transport(transport, &self.limits) {
            self.on_refused(now, peer, Limit::Transport(transport));
            return self.index.release(source);
        }
        let (is_secure, is_web_socket) = (transport.is_secure(), transport.is_web_socket());
        let has_preface = self.index.is_balancer(peer.ip());
        let has_handshake = is_secure || is_web_socket || has_preface;
        if has_handshake && !self.admit_handshake(now, peer, transport) {
            self.index.release_transport(transport);
            return self.index.release(source);
        }
        let phase = match (is_secure || has_preface, is_web_socket) {
            (true, _) => Phase::Opening,
            (false, true) => Phase::Upgrading,
            (false, false) => Phase::Open,
        };
        let channel = stream.into_channel(has_preface).inspect_err(|error| {
            if let Some(others) = self.failure_log.begin(now) {
                tracing::error!(%peer, others, "a connection is closed, as TLS cannot begin: {error}; check [tls], then reload");
            }
        });
        // If the connection is already gone, reading it will show that.
        let channel = channel.inspect(|channel| drop(channel.tune(self.limits.user_timeout)));
        let way = (listener, peer, HostId::NONE);
        let Some(slot) = channel.ok().and_then(|channel| self.insert(now, way, channel, (phase, true))) else {
            if has_handshake {
                self.index.end_handshake(peer.ip());
            }
            self.index.release_transport(transport);
            return self.index.release(source);
        };
        self.counters.accepted += 1;
        self.transports.of_mut(transport).accepted += 1;
        if !has_handshake {
            self.claim(slot);
        }
    }

    /// Makes an accepted connection the one to its peer. An outgoing one to the same peer keeps its entry.
    pub(crate) fn claim(&mut self, slot: u32) {
        let id = self.id(slot);
        let Self { slots, index, .. } = self;
        let connection = slots.get_mut(slot as usize).and_then(|place| place.connection.as_ref());
        for key in connection.into_iter().flat_map(Connection::peer_keys) {
            let _ = index.claim(key, id);
        }
    }

    /// Removes a connection from the index, so that no further request is sent on it. A secure one keeps only the
    /// ways by which it was found.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        let id = self.id(slot);
        let Self { slots, index, .. } = self;
        let Some(connection) = slots.get_mut(slot as usize).and_then(|place| place.connection.as_mut()) else { return };
        if connection.channel.is_secure() {
            let ways = connection.peer_keys().filter(|key| index.withdraw(*key, id));
            let ways = ways.map(|(_, peer, host)| (peer, host)).collect();
            connection.channel.set_ways(ways);
        } else {
            connection.peer_keys().for_each(|key| _ = index.withdraw(key, id));
        }
    }

    /// Starts a connection from the address of `socket`. Returns the connection of another worker if that one was
    /// faster.
    ///
    /// # Errors
    /// When none can be opened.
    pub(crate) fn open(&mut self, now: Timestamp, way: PeerKey, socket: &StreamSocket) -> Result<ConnId, ()> {
        if self.index.acquire(None).is_err() {
            self.counters.refused_total += 1;
            return Err(());
        }
        let name = self.names.hosts().name(way.2);
        if way.2 != HostId::NONE && name.is_none() {
            // Without the name that was called, the certificate cannot be checked.
            self.index.release(None);
            self.counters.connect_failures += 1;
            return Err(());
        }
        let channel = socket
            .connect(way.1, name.as_deref().map(|name| (way.2, name)))
            .inspect(|channel| drop(channel.tune(self.limits.user_timeout)));
        let slot = channel.ok().and_then(|channel| self.insert(now, way, channel, (Phase::Opening, false)));
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
            let _ = self.index.withdraw(way, other);
            let _ = self.index.claim(way, id);
        }
        self.counters.opened += 1;
        Ok(id)
    }

    fn insert(
        &mut self,
        now: Timestamp,
        way: PeerKey,
        mut channel: Channel,
        (phase, is_accepted): (Phase, bool),
    ) -> Option<u32> {
        let slot = self.slots.take(ConnId::MAX_SLOTS)?;
        let token = Token(FIRST_TOKEN + slot as usize);
        if let Err(error) = self.registry.register(&mut channel, token, Interest::READABLE | Interest::WRITABLE) {
            tracing::error!(%error, "a connection cannot be registered for polling and is closed");
            self.slots.release(slot);
            return None;
        }
        let (listener, peer, _) = way;
        self.transports.of_mut(channel.transport()).open += 1;
        let armed = now + self.patience(phase);
        let connection = Connection {
            channel,
            peer,
            listener,
            phase,
            is_accepted,
            is_known: false,
            is_readable: false,
            is_ending: false,
            is_listed: false,
            output: OutputState::Idle,
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
            Phase::Opening | Phase::Upgrading => self.limits.connect_timeout,
            Phase::Open if self.limits.idle.is_zero() => NOW_AND_THEN,
            Phase::Open => self.limits.idle,
            Phase::Ending | Phase::Dead => ENDING,
        }
    }

    /// Sets the limits. Shorter times apply to existing connections too.
    pub(crate) fn set_limits(&mut self, now: Timestamp, limits: StreamLimits) {
        self.limits = limits;
        for slot in self.slots.used() {
            let Some(connection) = self.get(slot) else { continue };
            let (heard, since, phase) = (connection.heard, connection.since, connection.phase);
            let silent =
                heard + self.patience(phase).min(if limits.ping.is_zero() { Duration::MAX } else { limits.ping });
            let slow = if since == Timestamp::MAX { since } else { since + limits.message_timeout };
            self.hurry(slot, silent.min(slow).max(now));
        }
    }

    // ---- ending --------------------------------------------------------------------------------------------------

    /// Ignores further input, sends the remaining output, then closes.
    pub(crate) fn end(&mut self, now: Timestamp, slot: u32, reason: CloseReason) {
        let Some(connection) = self.get(slot) else { return };
        if !matches!(connection.phase, Phase::Open | Phase::Upgrading) {
            return;
        }
        let handshake = connection.handshake();
        connection.phase = Phase::Ending;
        connection.heard = now;
        // Further input is read and discarded.
        (connection.has_backlog, connection.since) = (false, Timestamp::MAX);
        if let Some(source) = handshake {
            self.index.end_handshake(source);
        }
        self.count_end(reason);
        self.withdraw(slot);
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
        let handshake = connection.handshake();
        connection.phase = Phase::Dead;
        if let Some(source) = handshake {
            self.index.end_handshake(source);
        }
        if !is_counted {
            self.withdraw(slot);
        }
        self.dead.push((slot, reason));
        if !is_counted {
            self.count_end(reason);
        }
    }

    const fn count_end(&mut self, reason: CloseReason) {
        let counters = &mut self.counters;
        let counter = match reason {
            CloseReason::Ended => &mut counters.closed_by_peer,
            CloseReason::Broken => &mut counters.closed_broken,
            CloseReason::ConnectFailed => &mut counters.connect_failures,
            CloseReason::ConnectTimeout => &mut counters.connect_timeouts,
            CloseReason::HandshakeFailed => &mut counters.tls_failures,
            CloseReason::HandshakeTimeout => &mut counters.tls_timeouts,
            CloseReason::Refused => return,
            CloseReason::NoPreface => &mut counters.proxy_header_failures,
            CloseReason::Banned => &mut counters.refused_banned,
            CloseReason::UpgradeRefused => &mut counters.ws_refused,
            CloseReason::UpgradeTimeout => &mut counters.ws_timeouts,
            CloseReason::Unanswered => &mut counters.ws_unanswered,
            CloseReason::Idle | CloseReason::HandedOver => &mut counters.closed_idle,
            CloseReason::Slow => &mut counters.closed_slow,
            CloseReason::Malformed => &mut counters.closed_malformed,
            CloseReason::QueueFull => &mut counters.send_overflow,
            CloseReason::Memory => &mut counters.closed_memory,
        };
        *counter += 1;
    }

    /// Reports that input of a connection was not SIP.
    pub(crate) fn report_malformed(&mut self, slot: u32, fault: Fault) {
        let Some(connection) = self.get(slot) else { return };
        let (peer, transport) = (connection.peer, connection.channel.transport());
        self.report(Event::Malformed { peer, transport, fault });
    }

    /// Passes on an event; if the queue is full, it is dropped and counted.
    pub(crate) fn report(&mut self, event: Event) {
        self.event_drops += u64::from(self.events.try_send(event).is_err());
    }

    /// Writes waiting output and closes dead connections.
    pub(crate) fn finish(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            if let Some(connection) = self.get(slot) {
                if connection.output == OutputState::Listed {
                    connection.output = OutputState::Idle;
                }
                self.flush(slot);
            }
        }
        while let Some((slot, reason)) = self.dead.pop() {
            tracing::debug!(connection = %self.id(slot), ?reason, "closed");
            self.say_close(slot, reason);
            self.close_now(slot);
        }
    }

    /// Closes a connection at once and notifies those concerned.
    fn close_now(&mut self, slot: u32) {
        let id = self.id(slot);
        if self.get(slot).is_some_and(|connection| connection.phase != Phase::Dead) {
            self.withdraw(slot);
        }
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let Some(mut connection) = place.connection.take() else { return };
        place.generation = (place.generation + 1) % ConnId::GENERATIONS;
        self.slots.release(slot);
        self.wheel.cancel(connection.timer);
        self.kept_bytes -= connection.unparsed.len().saturating_sub(FREE_BYTES) + connection.held();
        self.queued_bytes -= connection.unsent();
        connection.channel.say_end();
        // List entries stay; the next connection in this slot then gets one extra turn.
        self.index.release(connection.is_accepted.then_some(connection.peer.ip()));
        let transport = connection.channel.transport();
        self.transports.of_mut(transport).open -= 1;
        if connection.is_accepted {
            self.index.release_transport(transport);
        }
        match connection.writers.take() {
            Some(writers) => self.failed.extend(*writers),
            //= rfc5626#7:closed
            None if connection.is_known => {
                // Responses have their own way back, and their senders are not told.
                for (peer, host) in connection.channel.ways().iter().filter(|(_, host)| *host != HostId::SOURCE) {
                    let way = Flow { host: *host, ..Flow::new(connection.listener, transport, *peer) };
                    self.closed.push(ClosedConnection::Way(way));
                }
                self.closed.push(ClosedConnection::Connection(id, connection.peer));
            }
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
            if connection.phase == Phase::Open && connection.is_listed {
                // The peer may have answered: its input waits until it is read.
                connection.heard = now;
            }
            let (phase, since, heard) = (connection.phase, connection.since, connection.heard);
            let (is_accepted, is_proxied) = (connection.is_accepted, connection.channel.expects_preface());
            let pinged = if phase == Phase::Open { self.ping_if_silent(now, slot) } else { None };
            let silent = pinged.unwrap_or(heard + self.patience(phase));
            let slow = if since == Timestamp::MAX { since } else { since + self.limits.message_timeout };
            let is_endless = phase == Phase::Open && pinged.is_none() && self.limits.idle.is_zero();
            let mut next = silent.min(slow);
            if next <= now {
                let reason = match phase {
                    Phase::Opening if is_proxied => Some(CloseReason::NoPreface),
                    Phase::Opening if is_accepted => Some(CloseReason::HandshakeTimeout),
                    Phase::Opening => Some(CloseReason::ConnectTimeout),
                    Phase::Upgrading => Some(CloseReason::UpgradeTimeout),
                    _ if slow <= now => Some(CloseReason::Slow),
                    _ if pinged.is_some() => Some(CloseReason::Unanswered),
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
