//! One end of calls on one thread, without sockets or clock: sessions that walk through scripts.
//!
//! Messages come in by [`Driver::handle_message`], time by [`Driver::handle_timeout`], new calls by [`Driver::begin`].
//! What goes out is written straight into the [`Outbox`] that each of them is given, while the message that is answered is
//! still in the buffer that it was received into: so nothing is queued and nothing copied twice. A test's outbox is a list,
//! the engine's are the sockets.

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
use crate::script::{Ending, Failure, MethodId, Script, Template};
use crate::session::{CallIndex, Flags, NEVER, NO_INVITE, Session, Sessions, Value};
pub use begin::Refusal;
use nonces::Nonces;
use recent_calls::{RecentMap, RefusedCall};
pub use retry::EndedSession;

/// The wheel's tick is a millisecond; time runs so much faster for it, so that pauses are exact to 4 µs: messages that are due one
/// after the other must not leave together, or pauses of any law would make bursts of them.
const WHEEL_SPEED: u64 = 256;
/// Scripts that a driver has for itself at most, written for its own address: of a replay's many, which run once each, one
/// copy for all drivers is enough.
const MAX_OWN_SCRIPTS: usize = 256;
/// Steps that a session goes without waiting before it is taken to run in a circle.
const MAX_STEPS: u32 = 10_000;

/// What [`Setup::max_wait`] usually is: longer than calls take.
pub const MAX_WAIT: Duration = Duration::from_secs(12 * 3_600);

/// Where what is sent goes.
pub trait Outbox {
    /// An empty buffer for the next message on `link`.
    fn slot(&mut self, link: u32) -> &mut Vec<u8>;
    /// Lets what was written into the slot leave, to `peer` where the link is a datagram socket. Messages of one `call` keep their
    /// order.
    fn commit(&mut self, link: u32, peer: SocketAddr, call: u64);
    /// A connection to `peer`: one of its own for a session, or one of those that are shared. `None` where there cannot be
    /// one: ports, files or a limit are exhausted.
    fn connect(&mut self, peer: SocketAddr, is_own: bool) -> Option<u32>;
    /// A connection of a session's own is of no more use.
    fn close(&mut self, link: u32);
}

/// How connections are used, where the transport has them (as in "One server per city", and SIPp's modes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionLifetime {
    /// A connection for each transaction.
    Transaction,
    /// A connection for each call.
    Dialog,
    /// Connections that were open before and are shared.
    #[default]
    Persistent,
    /// A connection that the first call of each user opens, and that stays for later ones.
    PersistentWithOpen,
}

/// What all drivers of one end have in common, and this driver's own part.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scripts; sessions name them by number.
    pub scripts: Arc<[Script]>,
    /// Which script answers a request that begins a call.
    pub answers: Vec<(MethodId, u16)>,
    /// The population.
    pub users: Arc<Users>,
    /// Where calls go.
    pub remote: SocketAddr,
    /// By what.
    pub transport: Transport,
    /// How connections are used.
    pub connection_lifetime: ConnectionLifetime,
    /// Our own addresses: of each datagram socket, in the order of the links; where the transport has connections, that
    /// which others can connect to.
    pub locals: Vec<SocketAddr>,
    /// Whether messages are repeated until they are answered (never over a reliable transport).
    pub retransmits: bool,
    /// T1 (RFC 3261 §17.1.1.1).
    pub t1: Duration,
    /// T2.
    pub t2: Duration,
    /// How long an INVITE may ring.
    pub max_ring: Duration,
    /// How long a script waits for a message at most, where it sets no time itself and nothing of its own is unanswered: a
    /// callee whose caller is gone. The session is then lost.
    pub max_wait: Duration,
    /// Whether a user who was challenged once sends credentials at once from then on, with the same nonce and the next
    /// count, until a new challenge comes (RFC 7616 §3.4). Else each session is challenged anew.
    pub reuses_nonces: bool,
    /// How often a session whose first request was refused with 503 and Retry-After tries again when that time is over. At 0, and
    /// where a 503 has no Retry-After, it has failed (RFC 3261 §21.5.4).
    pub retries: u8,
    /// Sessions at most.
    pub max_sessions: usize,
    /// Sessions for which room is made beforehand: to grow under load makes calls late.
    pub expected: usize,
    /// What no other run has: Call-IDs, tags and branches are made with it.
    pub run: u64,
    /// Which of the run's drivers it is.
    pub number: u16,
    /// Which of those it is that answer at its address.
    pub partition: Partition,
    /// What randomness begins with.
    pub seed: u64,
}

impl Setup {
    /// A setup with RFC 3261's times and no limits to speak of.
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

/// Which of several drivers that answer at one address this is, and how many they are. Each call belongs to one of them, by its
/// Call-ID, whoever's socket a part of it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 0 on.
    pub index: u32,
    /// At least one.
    pub of: u32,
}

impl Partition {
    /// Who answers alone.
    pub const SINGLE: Self = Self { index: 0, of: 1 };

    /// The other one whose call it is; `None` where it is this one's.
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
    /// How often counting began anew: each session is counted where it began.
    epoch: u8,
    /// Whether sessions that begin are counted.
    counts: bool,
    own: u64,
    /// Sessions that a step of another one began, to be walked next.
    started: Vec<(u16, u32, u32)>,
    /// The sessions of ours that ended, where somebody wants to know.
    ended: Option<Vec<EndedSession>>,
    /// What users know of the server's nonces, where they keep them.
    nonces: Option<Nonces>,
    /// The INVITEs of callers whose calls are over, and our calls that were refused.
    answered: RecentMap<()>,
    refused: RecentMap<RefusedCall>,
    /// Answers without a script, by their status.
    alone: Vec<(u16, Arc<Template>)>,
    log: Vec<String>,
    /// What a script said of the run.
    stop: Option<crate::script::Stop>,
    wall_at_zero: Duration,
}

/// One of our addresses, as it is written.
#[derive(Debug)]
struct Local {
    ip: String,
    port: String,
    both: String,
}

impl Local {
    fn of(address: &SocketAddr) -> Self {
        let ip = match address {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        };
        Self { ip, port: address.port().to_string(), both: address.to_string() }
    }
}

/// A step's surroundings.
struct StepContext<'a, 'o> {
    now: Timestamp,
    out: &'o mut dyn Outbox,
    /// The message that was received just now, where the session has not waited since.
    last: Option<LastMessage<'a>>,
}

/// A message that was received, and what is known of it already, where it is a request that may be answered.
#[derive(Clone, Copy)]
struct LastMessage<'a> {
    head: &'a strowger_message::Head<'a>,
    /// The topmost Via names this address and asks for nothing: it is copied as it is for whoever is there.
    plain_via: Option<std::net::IpAddr>,
    /// Whether To has a tag.
    has_tag: Option<bool>,
}

impl<'a> LastMessage<'a> {
    /// Nothing is known of it.
    const fn of(head: &'a strowger_message::Head<'a>) -> Self {
        Self { head, plain_via: None, has_tag: None }
    }
}

impl Driver {
    /// A driver without sessions.
    #[must_use]
    pub fn new(mut setup: Setup) -> Self {
        let locals: Vec<Local> = setup.locals.iter().map(Local::of).collect();
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

    /// What was counted so far.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// For what the engine counts.
    pub const fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// Counts anew, and gives what was counted so far: sessions that go on stay unfinished there, and how they end is in
    /// neither.
    pub fn restart_meter(&mut self) -> Meter {
        self.epoch = self.epoch.wrapping_add(1);
        self.counts = true;
        std::mem::take(&mut self.meter)
    }

    /// Counts no session that begins from now on; those that are going on stay counted, and so is how they end.
    pub const fn stop_counting(&mut self) {
        self.counts = false;
    }

    /// The round of counting in which a session that begins now is counted.
    const fn epoch_of_new(&self) -> u8 {
        if self.counts { self.epoch } else { self.epoch.wrapping_sub(1) }
    }

    /// What was counted, at the end of counting: requests that nobody has answered for T1 and longer are
    /// [open](crate::meter::Ends::open) in it. An INVITE that rings was answered.
    //= rfc3261#17.1.1.1
    // T1 is an estimate of the round trip: before that, no answer says nothing.
    #[must_use]
    pub fn closing_meter(&self, now: Timestamp) -> Meter {
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

    /// Lets [`take_ended`](Self::take_ended) say which sessions that this end began have ended.
    pub fn watch_ends(&mut self) {
        self.ended.get_or_insert_default();
    }

    /// A session of this end that has ended, each once.
    pub fn take_ended(&mut self) -> Option<EndedSession> {
        self.ended.as_mut()?.pop()
    }

    /// How many of the running sessions this end began.
    #[must_use]
    pub const fn originated_count(&self) -> u64 {
        self.own
    }

    /// How many sessions are running.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes in the buffers of sessions, beside the sessions themselves.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.sessions.buffer_bytes()
    }

    /// What scripts have logged.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// When [`handle_timeout`](Self::handle_timeout) next has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let at = self.wheel.next_deadline()?;
        Some(Timestamp::from_nanos(at.as_nanos().div_ceil(WHEEL_SPEED)))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut dyn Outbox) {
        self.handle_timeouts(now, usize::MAX, out);
    }

    /// As [`handle_timeout`](Self::handle_timeout), for at most so many sessions: what has come meanwhile may make the others'
    /// needless.
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

    /// A connection was closed: sessions that this end began have failed where they wait for an answer to come by it. The
    /// others open another one when they next send a request.
    pub fn handle_closed(&mut self, now: Timestamp, link: u32, out: &mut dyn Outbox) {
        while let Some(slot) = self.sessions.first_on_link(link) {
            self.sessions.leave_link(slot);
            let Some(session) = self.sessions.get_mut(slot) else { continue };
            session.flags.owns_link = false;
            if session.flags.is_ours && session.give_up_at != NEVER {
                let ending = Ending::Failed(Failure::Connection);
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

    /// What a session's Call-ID and branches are made of: different for each session of each run.
    const fn identity(&self, serial: u64) -> u64 {
        mix(serial ^ self.setup.run)
    }

    /// Our tag in a call.
    const fn tag(&self, call: u64) -> u64 {
        mix(call ^ self.setup.run)
    }

    /// Arms the session's timer, where the one that is armed is too late. One that is too early is left: it finds out.
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
    fn end(&mut self, slot: u32, ending: Ending, walk: &mut StepContext<'_, '_>) {
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
            if is_ours && ending == Ending::Carried {
                self.meter.slowest.record(attempt.slowest());
            }
            if session.flags.has_called {
                let is_answered = session.accepted_cseq != NO_INVITE;
                self.meter.metrics.calls.on_end(ending, is_answered, session.flags.is_hung_up);
            }
            if ending != Ending::Carried {
                session.unanswered().for_each(|verb| self.meter.transactions.add(verb, false));
            }
        }
        if is_ours && ending == Ending::Carried {
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

    fn script_of(&self, session: &Session) -> Option<&Script> {
        self.setup.scripts.get(usize::from(session.script))
    }

    fn variable(session: &Session, variable: u16) -> &Value {
        const NOTHING: &Value = &Value::Nothing;
        session.extra.as_ref().and_then(|extra| extra.variables.get(usize::from(variable))).unwrap_or(NOTHING)
    }
}

/// A wheel that has had so many timers already, and keeps their memory.
fn roomy_wheel(timers: usize) -> TimerWheel<u32> {
    let mut wheel = TimerWheel::new();
    let all: Vec<_> = (0..timers).map(|_| wheel.insert(Timestamp::from_millis(1), 0)).collect();
    for timer in all {
        wheel.cancel(timer);
    }
    wheel
}

/// Splitmix64's finish: a bijection that leaves no trace of its argument's order.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Sixteen hexadecimal digits.
pub(crate) const fn hex(value: u64) -> [u8; 16] {
    let digits = (eight_digits(value >> 32) as u128) << 64 | eight_digits(value & 0xFFFF_FFFF) as u128;
    digits.to_be_bytes()
}

/// Eight hexadecimal digits of 32 bits, side by side: each half is moved apart until every digit has a byte.
const fn eight_digits(value: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let value = (value | value << 16) & 0x0000_FFFF_0000_FFFF;
    let value = (value | value << 8) & 0x00FF_00FF_00FF_00FF;
    let value = (value | value << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    // Six more than nine carries into the bit of sixteen.
    let letters = ((value + 6 * EACH) >> 4) & EACH;
    value + EACH * b'0' as u64 + letters * (b'a' - b'9' - 1) as u64
}

#[cfg(test)]
mod digits {
    use super::{hex, mix};

    #[test]
    fn sixteen_digits_are_those_of_the_number() {
        for value in (0..999).map(mix).chain([0, u64::MAX, 0x0123_4567_89ab_cdef, 0xf0f0_9a9a_0000_000a]) {
            assert_eq!(hex(value).as_slice(), format!("{value:016x}").as_bytes());
        }
    }
}
