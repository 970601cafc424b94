//! Requests to engines: retransmission, time-outs, failover and probes.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::map::{SeededMap, seeded};
use strowger_foundation::{ShardId, TimerId, TimerWheel, Timestamp};

use crate::command::Command;
use crate::cookie::Cookie;
use crate::engine::{Engine, EngineChange};
use crate::policy::MediaPolicy;
use crate::reply::Reply;

/// Largest number of pending requests of a shard; a further one fails at once.
pub const MAX_REQUESTS: usize = 4096;
/// Time before the first retransmission; it doubles with each.
const FIRST_RETRANSMISSION: Duration = Duration::from_millis(200);
/// Interval of probes of an engine that is out, if the configured one is not shorter.
const OUT_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between the first probes of two engines.
const PROBE_SPREAD: Duration = Duration::from_millis(50);

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// An offer. If its engine is silent, another one gets it.
    Offer,
    /// An answer, which only the engine of the offer understands.
    Answer,
    /// The end of a call.
    Delete,
    /// A probe.
    Ping,
}

/// A request to start.
#[derive(Debug)]
pub struct Request<'a> {
    /// Returned with the outcome.
    pub user: u64,
    /// The kind.
    pub kind: RequestKind,
    /// Hash of the Call-ID, which selects the engine.
    pub call: u64,
    /// The engine of the call, if it has one. An offer leaves one that is out.
    pub engine: Option<Arc<Engine>>,
    /// The command.
    pub command: Command<'a>,
}

/// The outcome of an offer or answer.
#[derive(Debug)]
pub enum Outcome {
    /// The description to send on, and the engine.
    Sdp(Vec<u8>, Arc<Engine>),
    /// The engine refused it, with this reason.
    Refused(String, Arc<Engine>),
    /// No engine has answered.
    Silent,
    /// No engine is in service, or too many requests are pending.
    Unavailable,
}

/// A datagram to an engine.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Offers sent.
    pub offers: u64,
    /// Answers sent.
    pub answers: u64,
    /// Ends of calls sent.
    pub deletes: u64,
    /// Requests repeated because no answer had come.
    pub retransmissions: u64,
    /// Engines that did not answer a request in time.
    pub timeouts: u64,
    /// Requests that engines refused.
    pub refused: u64,
    /// Offers sent to another engine because the first was silent, out or busy.
    pub failovers: u64,
    /// Datagrams that are no answer to a pending request of ours.
    pub strays: u64,
    /// Requests given up because [`MAX_REQUESTS`] were pending.
    pub table_full: u64,
}

#[derive(Debug)]
struct Pending {
    user: u64,
    kind: RequestKind,
    call: u64,
    engine: Arc<Engine>,
    /// Engines that were silent or busy.
    tried: SmallVec<[SocketAddr; 2]>,
    /// Cookie and command.
    bytes: Vec<u8>,
    timer: Option<TimerId>,
    /// Time until the next retransmission.
    interval: Duration,
    /// When the engine counts as silent.
    deadline: Timestamp,
}

/// A probed engine.
#[derive(Debug)]
struct Probed {
    engine: Arc<Engine>,
    due: Timestamp,
    /// The pending probe.
    pending: Option<u64>,
}

/// The requests of one shard.
#[derive(Debug)]
pub struct Client {
    shard: ShardId,
    nonce: u64,
    policy: Arc<MediaPolicy>,
    next_serial: u64,
    pending: SeededMap<u64, Pending>,
    timers: TimerWheel<u64>,
    probed: Vec<Probed>,
    transmits: VecDeque<Transmit>,
    outcomes: VecDeque<(u64, Outcome)>,
    changes: VecDeque<(SocketAddr, EngineChange)>,
    counters: Counters,
}

impl Client {
    /// Creates a client without requests. `nonce` is random.
    #[must_use]
    pub fn new(shard: ShardId, nonce: u64) -> Self {
        Self {
            shard,
            nonce,
            policy: Arc::default(),
            next_serial: 0,
            pending: SeededMap::with_hasher(seeded(nonce)),
            timers: TimerWheel::new(),
            probed: Vec::new(),
            transmits: VecDeque::new(),
            outcomes: VecDeque::new(),
            changes: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Applies a policy. Of `shards` shards, each probes its part of the engines.
    pub fn handle_policy(&mut self, now: Timestamp, policy: &Arc<MediaPolicy>, shards: u16) {
        self.policy = Arc::clone(policy);
        let before = core::mem::take(&mut self.probed);
        let shards = usize::from(shards.max(1));
        let own = policy.engines.iter().enumerate();
        let own = own.filter(|(index, _)| index.checked_rem(shards) == Some(usize::from(self.shard.0)));
        for (index, engine) in own {
            let wait = PROBE_SPREAD.saturating_mul(u32::try_from(index).unwrap_or(0));
            let known = before.iter().find(|probed| Arc::ptr_eq(&probed.engine, engine));
            let (due, pending) = known.map_or((now + wait, None), |known| (known.due, known.pending));
            self.probed.push(Probed { engine: Arc::clone(engine), due, pending });
        }
    }

    /// Sends no probes until the next [policy](Self::handle_policy).
    pub fn stop_probing(&mut self) {
        self.probed.clear();
        self.pending.retain(|_, pending| {
            let is_probe = pending.kind == RequestKind::Ping;
            if let Some(timer) = pending.timer.filter(|_| is_probe) {
                self.timers.cancel(timer);
            }
            !is_probe
        });
    }

    /// Sends a request, and returns the engine that got it. The outcome of an offer or answer follows.
    pub fn start(&mut self, now: Timestamp, request: &Request<'_>) -> Option<Arc<Engine>> {
        let Request { user, kind, call, ref engine, ref command } = *request;
        let given = engine.as_ref().filter(|engine| kind != RequestKind::Offer || !engine.is_out());
        let engine = given.or_else(|| match kind {
            RequestKind::Offer => self.policy.engines.select(call, &[]),
            _ => None,
        });
        let Some(engine) = engine.map(Arc::clone) else {
            self.end(user, kind, Outcome::Unavailable);
            return None;
        };
        if self.pending.len() >= MAX_REQUESTS {
            self.counters.table_full = self.counters.table_full.wrapping_add(1);
            self.end(user, kind, Outcome::Unavailable);
            return None;
        }
        let has_moved = request.engine.as_ref().is_some_and(|before| !Arc::ptr_eq(before, &engine));
        self.counters.failovers = self.counters.failovers.wrapping_add(u64::from(has_moved));
        let count = match kind {
            RequestKind::Offer => Some(&mut self.counters.offers),
            RequestKind::Answer => Some(&mut self.counters.answers),
            RequestKind::Delete => Some(&mut self.counters.deletes),
            RequestKind::Ping => None,
        };
        count.into_iter().for_each(|count| *count = count.wrapping_add(1));
        self.next_serial = self.next_serial.wrapping_add(1);
        let serial = self.next_serial;
        let mut bytes = Cookie { shard: self.shard, nonce: self.nonce, serial }.to_text().into_bytes();
        bytes.push(b' ');
        command.write(&mut bytes);
        let pending = Pending {
            user,
            kind,
            call,
            engine: Arc::clone(&engine),
            tried: SmallVec::new(),
            bytes,
            timer: None,
            interval: FIRST_RETRANSMISSION,
            deadline: now + self.policy.timeout,
        };
        self.pending.insert(serial, pending);
        self.transmit(now, serial);
        Some(engine)
    }

    /// Forgets the pending requests of some users: nothing is repeated, and no outcome follows.
    pub fn forget(&mut self, mut is_forgotten: impl FnMut(u64) -> bool) {
        let timers = &mut self.timers;
        self.pending.retain(|_, pending| {
            let is_forgotten = pending.kind != RequestKind::Ping && is_forgotten(pending.user);
            if let Some(timer) = pending.timer.filter(|_| is_forgotten) {
                timers.cancel(timer);
            }
            !is_forgotten
        });
    }

    /// Handles a datagram that came from `source`.
    pub fn handle_message(&mut self, now: Timestamp, source: SocketAddr, bytes: &[u8]) {
        let known = Cookie::split(bytes).filter(|(cookie, _)| cookie.shard == self.shard && cookie.nonce == self.nonce);
        let known = known.filter(|(cookie, _)| {
            self.pending.get(&cookie.serial).is_some_and(|pending| pending.engine.address() == source)
        });
        let parsed = known.and_then(|(cookie, text)| Some((cookie.serial, Reply::parse(text).ok()?)));
        let Some((serial, reply)) = parsed else {
            self.counters.strays = self.counters.strays.wrapping_add(1);
            return;
        };
        if let Some(engine) = self.pending.get(&serial).map(|pending| Arc::clone(&pending.engine))
            && let Some(change) = engine.handle_answer()
        {
            self.changes.push_back((engine.address(), change));
        }
        if reply == Reply::Busy && self.fail_over(now, serial) {
            return;
        }
        let Some(pending) = self.remove(serial) else { return };
        let outcome = match reply {
            Reply::Sdp(sdp) => Outcome::Sdp(sdp.to_vec(), pending.engine),
            Reply::Busy | Reply::Done | Reply::Pong | Reply::Refused(_) => {
                let reason = match reply {
                    Reply::Busy => "it takes no more calls".to_owned(),
                    Reply::Refused(reason) => String::from_utf8_lossy(reason).escape_debug().take(200).collect(),
                    _ => "it returned no session description".to_owned(),
                };
                Outcome::Refused(reason, pending.engine)
            }
        };
        if matches!(pending.kind, RequestKind::Offer | RequestKind::Answer) {
            let is_refused = matches!(outcome, Outcome::Refused(..));
            self.counters.refused = self.counters.refused.wrapping_add(u64::from(is_refused));
        }
        self.end(pending.user, pending.kind, outcome);
    }

    /// Repeats what is due, gives up silent engines, and sends probes.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(serial) = self.timers.poll_expired(now) {
            let Some(pending) = self.pending.get_mut(&serial) else { continue };
            pending.timer = None;
            if now < pending.deadline {
                self.counters.retransmissions = self.counters.retransmissions.wrapping_add(1);
                self.transmit(now, serial);
            } else {
                self.on_silence(now, serial);
            }
        }
        for index in 0..self.probed.len() {
            self.probe(now, index);
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) has work.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.probed.iter().map(|probed| probed.due).chain(self.timers.next_deadline()).min()
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the user and the outcome of an offer or answer.
    pub fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }

    /// Returns the next change in the health of an engine.
    pub fn poll_change(&mut self) -> Option<(SocketAddr, EngineChange)> {
        self.changes.pop_front()
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of pending requests.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn transmit(&mut self, now: Timestamp, serial: u64) {
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        self.transmits.push_back(Transmit { engine: Arc::clone(&pending.engine), bytes: pending.bytes.clone() });
        let at = (now + pending.interval).min(pending.deadline);
        pending.interval = pending.interval.saturating_mul(2);
        pending.timer = Some(self.timers.insert(at, serial));
    }

    fn on_silence(&mut self, now: Timestamp, serial: u64) {
        let Some(engine) = self.pending.get(&serial).map(|pending| Arc::clone(&pending.engine)) else { return };
        self.counters.timeouts = self.counters.timeouts.wrapping_add(1);
        if let Some(change) = engine.handle_silence() {
            self.changes.push_back((engine.address(), change));
        }
        let probed = self.probed.iter_mut().find(|probed| Arc::ptr_eq(&probed.engine, &engine));
        probed.into_iter().for_each(|probed| probed.due = probed.due.min(now + OUT_PROBE_INTERVAL));
        if !self.fail_over(now, serial)
            && let Some(pending) = self.remove(serial)
        {
            self.end(pending.user, pending.kind, Outcome::Silent);
        }
    }

    /// Sends an offer to another engine. Returns whether there is one.
    fn fail_over(&mut self, now: Timestamp, serial: u64) -> bool {
        let Some(pending) = self.pending.get_mut(&serial).filter(|pending| pending.kind == RequestKind::Offer) else {
            return false;
        };
        pending.tried.push(pending.engine.address());
        let Some(next) = self.policy.engines.select(pending.call, &pending.tried) else { return false };
        pending.engine = Arc::clone(next);
        (pending.interval, pending.deadline) = (FIRST_RETRANSMISSION, now + self.policy.timeout);
        if let Some(timer) = pending.timer.take() {
            self.timers.cancel(timer);
        }
        self.counters.failovers = self.counters.failovers.wrapping_add(1);
        self.transmit(now, serial);
        true
    }

    fn probe(&mut self, now: Timestamp, index: usize) {
        let Some(probed) = self.probed.get_mut(index).filter(|probed| probed.due <= now) else { return };
        let interval = self.policy.probe_interval;
        let interval = if probed.engine.is_out() { interval.min(OUT_PROBE_INTERVAL) } else { interval };
        probed.due = now + interval.max(FIRST_RETRANSMISSION);
        if probed.pending.is_some_and(|serial| self.pending.contains_key(&serial)) {
            return;
        }
        let engine = Some(Arc::clone(&probed.engine));
        let ping = Request { user: 0, kind: RequestKind::Ping, call: 0, engine, command: Command::Ping };
        self.start(now, &ping);
        let serial = self.next_serial;
        self.probed.get_mut(index).into_iter().for_each(|probed| probed.pending = Some(serial));
    }

    fn remove(&mut self, serial: u64) -> Option<Pending> {
        let pending = self.pending.remove(&serial)?;
        if let Some(timer) = pending.timer {
            self.timers.cancel(timer);
        }
        Some(pending)
    }

    fn end(&mut self, user: u64, kind: RequestKind, outcome: Outcome) {
        if matches!(kind, RequestKind::Offer | RequestKind::Answer) {
            self.outcomes.push_back((user, outcome));
        }
    }
}
