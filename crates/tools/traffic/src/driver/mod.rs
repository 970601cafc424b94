//! One end of calls on one thread, without sockets or clock: sessions that run scripts.
//!
//! Messages come in through [`Driver::handle_message`], time through [`Driver::handle_timeout`], new calls through
//! [`Driver::begin`]. Each of them writes its output directly into the [`Outbox`] it is given, while the message
//! being answered is still in its receive buffer. Nothing is queued and nothing is copied twice. A test's outbox is a
//! list; the engine's are the sockets.

#[cfg(test)]
mod accounts;
mod acknowledge;
mod actions;
mod answer;
mod begin;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod conformance;
mod dialog;
mod nonces;
#[cfg(test)]
mod overload;
mod receive;
mod recent_calls;
mod render;
mod retry;
mod steps;
#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "../../tests/wire/mod.rs"]
mod wire;

use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use rand::SeedableRng as _;
use strowger_foundation::{TimerWheel, Timestamp, Transport};

use crate::law::Rng;
use crate::meter::Meter;
use crate::population::Users;
use crate::script::{Failure, MethodId, Script, SessionResult, Template};
use crate::session::{CallIndex, Flags, NEVER, NO_INVITE, Session, Sessions, Value};
pub use begin::Refusal;
use nonces::Nonces;
use recent_calls::{RecentMap, RefusedCall};
pub use retry::EndedSession;

/// Factor by which time runs faster for the timer wheel, whose tick is a millisecond. Pauses are so exact to 4 µs: if
/// messages due one after the other left together, pauses of any law would turn into bursts.
const WHEEL_SPEED: u64 = 256;
/// Maximum number of scripts that a driver specializes for its own address. Above it, as with the many single-use
/// scripts of a replay, all drivers share one copy.
const MAX_OWN_SCRIPTS: usize = 256;
/// Steps that a session may run without waiting; beyond it the script is taken to loop.
const MAX_STEPS: u32 = 10_000;

/// Default of [`Setup::max_wait`]: longer than calls take.
pub const MAX_WAIT: Duration = Duration::from_secs(12 * 3_600);

/// Destination of what a driver sends.
pub trait Outbox {
    /// Returns an empty buffer for the next message on `link`.
    fn slot(&mut self, link: u32) -> &mut Vec<u8>;
    /// Sends the contents of the slot, to `peer` if the link is a datagram socket. Messages of one `call` keep their
    /// order.
    fn commit(&mut self, link: u32, peer: SocketAddr, call: u64);
    /// Opens a connection to `peer` for one session, or returns a shared one. Returns `None` if ports, files or a
    /// limit are exhausted.
    fn connect(&mut self, peer: SocketAddr, is_own: bool) -> Option<u32>;
    /// Closes a session's own connection.
    fn close(&mut self, link: u32);
}

/// How connections are used by transports that have them (as in "One server per city", and SIPp's modes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionLifetime {
    /// One connection for each transaction.
    Transaction,
    /// One connection for each call.
    Dialog,
    /// Shared connections that were opened beforehand.
    #[default]
    Persistent,
    /// A connection that the first call of each user opens and that stays for later calls.
    PersistentWithOpen,
}

/// What all drivers of one end have in common, and this driver's own part.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Scripts; sessions refer to them by index.
    pub scripts: Arc<[Script]>,
    /// Script for each method that begins a call at the answering end.
    pub answers: Vec<(MethodId, u16)>,
    /// Users.
    pub users: Arc<Users>,
    /// Destination of calls.
    pub remote: SocketAddr,
    /// Transport of calls.
    pub transport: Transport,
    /// How connections are used.
    pub connection_lifetime: ConnectionLifetime,
    /// Our addresses: that of each datagram socket, in the order of the links; for connections, the address that
    /// others can connect to.
    pub locals: Vec<SocketAddr>,
    /// Whether messages are retransmitted until they are answered (never over a reliable transport).
    pub retransmits: bool,
    /// T1 (RFC 3261 §17.1.1.1).
    pub t1: Duration,
    /// T2.
    pub t2: Duration,
    /// Longest time that an INVITE may ring.
    pub max_ring: Duration,
    /// Longest time that a script waits for a message if it sets no time itself and no request of its own is
    /// unanswered, for example as a callee whose caller is gone. The session is then lost.
    pub max_wait: Duration,
    /// Whether a user that was challenged once sends credentials with every further request, with the same nonce and
    /// the next count, until a new challenge comes (RFC 7616 §3.4). Otherwise each session is challenged anew.
    pub reuses_nonces: bool,
    /// How often a session whose first request was refused with 503 and Retry-After tries again after that time. At
    /// 0, and for a 503 without Retry-After, the session fails (RFC 3261 §21.5.4).
    pub retries: u8,
    /// Maximum number of sessions.
    pub max_sessions: usize,
    /// Sessions to preallocate; growth under load makes calls late.
    pub expected: usize,
    /// Number that no other run has; Call-IDs, tags and branches contain it.
    pub run: u64,
    /// Index of this driver among the run's drivers.
    pub number: u16,
    /// This driver's part of the calls at its address.
    pub partition: Partition,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Setup {
    /// Returns a setup with RFC 3261's timers and practically no limits.
    #[must_use]
    pub fn new(scripts: Arc<[Script]>, users: Arc<Users>, remote: SocketAddr, local: SocketAddr) -> Self {
        Self {
            scripts,
            answers: Vec::new(),
            users,
            remote,
            transport: Transport::Udp,
            connection_lifetime: ConnectionLifetime::default(),
            locals: vec![local],
            retransmits: true,
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            max_ring: Duration::from_secs(180),
            max_wait: MAX_WAIT,
            reuses_nonces: false,
            retries: 0,
            max_sessions: 4_000_000,
            expected: 0,
            run: 1,
            number: 0,
            partition: Partition::SINGLE,
            seed: 1,
        }
    }
}

/// Index of this driver among those that answer at one address, and their number. Each call belongs to one of them,
/// by its Call-ID, regardless of the socket at which a message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Index, from 0.
    pub index: u32,
    /// Number of drivers, at least 1.
    pub of: u32,
}

impl Partition {
    /// The only driver at its address.
    pub const SINGLE: Self = Self { index: 0, of: 1 };

    /// Returns the index of the driver that owns the call; `None` if this one does.
    #[expect(clippy::cast_possible_truncation, reason = "less than `of`")]
    const fn owner_elsewhere(self, call: u64) -> Option<u32> {
        let owner = (call % self.of as u64) as u32;
        if owner == self.index { None } else { Some(owner) }
    }
}

/// One end of calls on one thread.
#[derive(Debug)]
pub struct Driver {
    setup: Setup,
    locals: Vec<Local>,
    sessions: Sessions,
    calls: CallIndex,
    hasher: FixedState,
    wheel: TimerWheel<u32>,
    serial: u64,
    rng: Rng,
    meter: Meter,
    /// Current round of counting; each session counts in the round in which it began.
    epoch: u8,
    /// Whether sessions that begin are counted.
    counts: bool,
    own: u64,
    /// Sessions that a step of another session started and that run next.
    started: Vec<(u16, u32, u32)>,
    /// Own sessions that have ended, if requested.
    ended: Option<Vec<EndedSession>>,
    /// The users' nonces of the server, if users reuse them.
    nonces: Option<Nonces>,
    /// INVITEs of callers whose calls are over, and own calls that were refused.
    answered: RecentMap<()>,
    refused: RecentMap<RefusedCall>,
    /// Templates of responses without a script, by status.
    alone: Vec<(u16, Arc<Template>)>,
    log: Vec<String>,
    /// The stop that a script requested.
    stop: Option<crate::script::Stop>,
    wall_at_zero: Duration,
}

/// One of our addresses in its text forms.
#[derive(Debug)]
struct Local {
    ip: String,
    port: String,
    both: String,
}

impl Local {
    /// Returns the address as this transport names it. A WebSocket client has no address at which it can be reached,
    /// only a name that is unique and that no one resolves (RFC 7118 §5).
    fn of(address: &SocketAddr, setup: &Setup) -> Self {
        if setup.transport.is_web_socket() {
            let name = format!("c{:x}-{}.invalid", setup.run & 0xFFFF_FFFF, setup.number);
            return Self { both: name.clone(), ip: name, port: setup.transport.default_port().to_string() };
        }
        let ip = match address {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        };
        Self { ip, port: address.port().to_string(), both: address.to_string() }
    }
}

/// Context of a step.
struct StepContext<'a, 'o> {
    now: Timestamp,
    out: &'o mut dyn Outbox,
    /// The message just received, if the session has not waited since.
    last: Option<LastMessage<'a>>,
}

/// The last message received, and what is already known of it if it is a request that may be answered.
#[derive(Clone, Copy)]
struct LastMessage<'a> {
    head: &'a strowger_message::Head<'a>,
    /// Source address, if the topmost Via names it and requests no rport: a response to it copies the Via unchanged.
    plain_via: Option<std::net::IpAddr>,
    /// Whether To has a tag, if known.
    has_tag: Option<bool>,
}

impl<'a> LastMessage<'a> {
    /// Creates one of which nothing is known.
    const fn of(head: &'a strowger_message::Head<'a>) -> Self {
        Self { head, plain_via: None, has_tag: None }
    }
}

impl Driver {
    /// Creates a driver without sessions.
    #[must_use]
    pub fn new(mut setup: Setup) -> Self {
        let locals: Vec<Local> = setup.locals.iter().map(|address| Local::of(address, &setup)).collect();
        if setup.scripts.len() <= MAX_OWN_SCRIPTS {
            setup.scripts = render::specialize_scripts(&setup, &locals);
        }
        let hasher = FixedState::with_seed(mix(setup.run));
        Self {
            locals,
            sessions: Sessions::default(),
            calls: CallIndex::new(&hasher),
            nonces: setup.reuses_nonces.then(|| Nonces::new(&hasher)),
            answered: RecentMap::new(&hasher, setup.t1 * 64),
            refused: RecentMap::new(&hasher, setup.t1 * 64),
            alone: Vec::new(),
            hasher,
            wheel: roomy_wheel(setup.expected.min(setup.max_sessions)),
            serial: 0,
            rng: Rng::seed_from_u64(mix(setup.seed ^ (u64::from(setup.number) << 48))),
            meter: Meter::default(),
            epoch: 0,
            counts: true,
            own: 0,
            started: Vec::new(),
            ended: None,
            log: Vec::new(),
            stop: None,
            wall_at_zero: Duration::ZERO,
            setup,
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns the meter for what the engine counts.
    pub const fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// Starts a new meter and returns the previous one. Sessions in progress remain unfinished in the previous meter;
    /// the new one does not count how they end.
    pub fn restart_meter(&mut self) -> Meter {
        self.epoch = self.epoch.wrapping_add(1);
        self.counts = true;
        std::mem::take(&mut self.meter)
    }

    /// Stops counting sessions that begin. Sessions in progress stay counted, and so does how they end.
    pub const fn stop_counting(&mut self) {
        self.counts = false;
    }

    /// Returns the round of counting for a session that begins at this moment.
    const fn epoch_of_new(&self) -> u8 {
        if self.counts { self.epoch } else { self.epoch.wrapping_sub(1) }
    }

    /// Returns the counts at the end of counting. Requests that are unanswered for T1 or longer are
    /// [open](crate::meter::TransactionCounts::open) in them; an INVITE that rings counts as answered.
    //= rfc3261#17.1.1.1
    // T1 is an estimate of the round-trip time: before it has passed, a missing answer means nothing.
    #[must_use]
    pub fn final_counts(&self, now: Timestamp) -> Meter {
        let mut meter = self.meter.clone();
        for session in self.sessions.iter().filter(|session| session.flags.epoch == self.epoch) {
            for verb in session.unanswered() {
                let is_invite = verb == MethodId::Invite;
                let sent_at = if is_invite { session.invite_at } else { session.sent_at };
                let rings = is_invite && session.flags.is_ringing;
                if !rings && now.saturating_since(sent_at) >= self.setup.t1 {
                    meter.transactions.leave_open(verb);
                }
            }
        }
        meter
    }

    /// Makes [`take_ended`](Self::take_ended) return the sessions of this end that have ended.
    pub fn watch_ends(&mut self) {
        self.ended.get_or_insert_default();
    }

    /// Returns a session of this end that has ended, each once.
    pub fn take_ended(&mut self) -> Option<EndedSession> {
        self.ended.as_mut()?.pop()
    }

    /// Returns how many of the running sessions this end began.
    #[must_use]
    pub const fn originated_count(&self) -> u64 {
        self.own
    }

    /// Returns the number of running sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the bytes in the buffers of sessions, without the sessions themselves.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.sessions.buffer_bytes()
    }

    /// Takes what scripts have logged.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let at = self.wheel.next_deadline()?;
        Some(Timestamp::from_nanos(at.as_nanos().div_ceil(WHEEL_SPEED)))
    }

    /// Handles everything that is due.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut dyn Outbox) {
        self.handle_timeouts(now, usize::MAX, out);
    }

    /// Handles at most `most` due sessions: messages that have come meanwhile may make the others' timeouts
    /// unnecessary.
    pub fn handle_timeouts(&mut self, now: Timestamp, most: usize, out: &mut dyn Outbox) {
        let wheel_now = Timestamp::from_nanos(now.as_nanos().saturating_mul(WHEEL_SPEED));
        for _ in 0..most {
            let Some(slot) = self.wheel.poll_expired(wheel_now) else { break };
            let Some(session) = self.sessions.get_mut(slot) else { continue };
            session.timer = None;
            if session.flags.is_live {
                self.wake(slot, &mut StepContext { now, out: &mut *out, last: None });
            }
        }
        self.begin_started(now, out);
    }

    /// Handles a closed connection. Sessions that this end began fail if they wait for an answer on it; the others
    /// open another connection when they next send a request.
    pub fn handle_closed(&mut self, now: Timestamp, link: u32, out: &mut dyn Outbox) {
        while let Some(slot) = self.sessions.first_on_link(link) {
            self.sessions.leave_link(slot);
            let Some(session) = self.sessions.get_mut(slot) else { continue };
            session.flags.owns_link = false;
            if session.flags.is_ours && session.give_up_at != NEVER {
                let ending = SessionResult::Failed(Failure::Connection);
                self.end(slot, ending, &mut StepContext { now, out: &mut *out, last: None });
            }
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial | u64::from(self.setup.number) << 48
    }

    fn hash(&self, call_id: &[u8]) -> u64 {
        self.hasher.hash_one(call_id)
    }

    fn call_hash_of(&self, serial: u64, local: u16) -> u64 {
        let mut text = [0; 64];
        let ip = self.locals.get(usize::from(local)).map_or("", |local| &local.ip).as_bytes();
        let length = (17 + ip.len()).min(text.len());
        text[..16].copy_from_slice(&hex(self.identity(serial)));
        text[16] = b'@';
        text[17..length].copy_from_slice(&ip[..length - 17]);
        self.hash(&text[..length])
    }

    /// Returns the value that a session's Call-ID and branches are made from; it differs for each session of each
    /// run.
    const fn identity(&self, serial: u64) -> u64 {
        mix(serial ^ self.setup.run)
    }

    /// Returns our tag in a call.
    const fn tag(&self, call: u64) -> u64 {
        mix(call ^ self.setup.run)
    }

    /// Arms the session's timer if the armed one is too late. One that is too early stays and re-arms when it fires.
    fn arm(&mut self, slot: u32) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let at = session.wake_at();
        if at == NEVER || session.timer.is_some_and(|(_, armed)| armed <= at) {
            return;
        }
        if let Some((timer, _)) = session.timer.take() {
            self.wheel.cancel(timer);
        }
        let wheel_at = Timestamp::from_nanos(at.as_nanos().saturating_mul(WHEEL_SPEED));
        session.timer = Some((self.wheel.insert(wheel_at, slot), at));
    }

    /// Ends a session.
    fn end(&mut self, slot: u32, ending: SessionResult, walk: &mut StepContext<'_, '_>) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if let Some((timer, _)) = session.timer.take() {
            self.wheel.cancel(timer);
        }
        if session.flags.owns_link {
            walk.out.close(session.link);
        }
        let mut attempt = session.attempt;
        let Flags { is_ours, epoch, .. } = session.flags;
        if epoch == self.epoch {
            self.meter.on_end(is_ours, ending, walk.now.saturating_since(session.began));
            self.meter.on_end_of(session.script, ending);
            attempt.on_end(ending, walk.now, &mut self.meter.metrics);
            if is_ours && ending == SessionResult::Carried {
                self.meter.slowest.record(attempt.slowest());
            }
            if session.flags.has_called {
                let is_answered = session.accepted_cseq != NO_INVITE;
                self.meter.metrics.calls.on_end(ending, is_answered, session.flags.is_hung_up);
            }
            if ending != SessionResult::Carried {
                session.unanswered().for_each(|verb| self.meter.transactions.add(verb, false));
            }
        }
        if is_ours && ending == SessionResult::Carried {
            self.meter.ended.record(attempt.slowest());
        }
        if let Some(ended) = self.ended.as_mut().filter(|_| is_ours) {
            let own = self.locals.get(usize::from(session.local)).map_or(&[][..], |local| local.both.as_bytes());
            ended.push(EndedSession::of(session, ending, walk.last, own));
        }
        self.own -= u64::from(is_ours);
        self.calls.remove(session.call, slot);
        self.remember(slot, walk.now);
        self.sessions.remove(slot);
    }

    /// Counts a handshake of a connection of this end.
    pub fn on_handshake(&mut self, result: Result<(Duration, bool), String>) {
        match result {
            _ if !self.counts => {}
            Ok((time, is_resumed)) => self.meter.handshakes.on_success(time, is_resumed),
            Err(reason) => self.meter.handshakes.on_failure(&reason),
        }
    }

    fn script_of(&self, session: &Session) -> Option<&Script> {
        self.setup.scripts.get(usize::from(session.script))
    }

    fn variable(session: &Session, variable: u16) -> &Value {
        const NOTHING: &Value = &Value::Nothing;
        session.extra.as_ref().and_then(|extra| extra.variables.get(usize::from(variable))).unwrap_or(NOTHING)
    }
}

/// Creates a wheel with memory for this many timers.
fn roomy_wheel(timers: usize) -> TimerWheel<u32> {
    let mut wheel = TimerWheel::new();
    let all: Vec<_> = (0..timers).map(|_| wheel.insert(Timestamp::from_millis(1), 0)).collect();
    for timer in all {
        wheel.cancel(timer);
    }
    wheel
}

/// Finalizer of Splitmix64: a bijection that hides the order of its arguments.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Returns sixteen hexadecimal digits.
pub(crate) const fn hex(value: u64) -> [u8; 16] {
    let digits = (eight_digits(value >> 32) as u128) << 64 | eight_digits(value & 0xFFFF_FFFF) as u128;
    digits.to_be_bytes()
}

/// Returns the eight hexadecimal digits of 32 bits, one in each byte: each half is split repeatedly.
const fn eight_digits(value: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let value = (value | value << 16) & 0x0000_FFFF_0000_FFFF;
    let value = (value | value << 8) & 0x00FF_00FF_00FF_00FF;
    let value = (value | value << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    // Adding 6 to a digit above nine carries into the bit of value 16.
    let letters = ((value + 6 * EACH) >> 4) & EACH;
    value + EACH * b'0' as u64 + letters * (b'a' - b'9' - 1) as u64
}

#[cfg(test)]
mod digits {
    use super::{hex, mix};

    #[test]
    fn hex_prints_sixteen_digits() {
        for value in (0..999).map(mix).chain([0, u64::MAX, 0x0123_4567_89ab_cdef, 0xf0f0_9a9a_0000_000a]) {
            assert_eq!(hex(value).as_slice(), format!("{value:016x}").as_bytes());
        }
    }
}
