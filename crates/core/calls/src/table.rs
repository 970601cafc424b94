//! The table of calls.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use hashbrown::HashTable;
use strowger_balancer::{CallGuard, TargetId};
use strowger_foundation::{Flow, TagKey, TimerWheel, Timestamp, Wakeup};
use strowger_message::{Message, Method, Status};

use crate::call::Call;
use crate::chunks::Chunks;
use crate::record::{CallRecord, CallView, Reason, State};
use crate::session::session_interval;

/// How long a caller who was asked for more may take to try again before the attempt counts as rejected.
pub const CHALLENGE_GRACE: Duration = Duration::from_secs(32);
/// How long after its session timer has run out a call is ended: a refresh that left in time may still be on its way.
pub const SESSION_GRACE: Duration = Duration::from_secs(32);
/// Calls that one [`Calls::handle_timeout`] ends at most; the next is due at once where there are more.
pub const EXPIRIES_PER_CALL: usize = 64;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls in progress; one more is not noted, and counted in [`Counters::overflow`].
    pub calls: usize,
    /// How long a call lives without a sign of it, where it has no session timer.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 65_536, age: Duration::from_secs(12 * 3600) }
    }
}

/// Names a call of this shard: a keyed hash of its Call-ID and the tag of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey(u64);

impl CallKey {
    /// The key as a number that is never 0.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The key of a number that [`to_bits`](Self::to_bits) gave.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A call that a BYE has ended.
#[derive(Debug)]
pub struct ByeOutcome {
    /// Who hung up: [`Reason::CallerHungUp`] or [`Reason::CalleeHungUp`].
    pub by: Reason,
    /// The target of a balanced set that had the call, where one had. Dropped, the call counts there no more.
    pub call_guard: Option<CallGuard>,
}

/// Totals since the table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that were noted.
    pub begun: u64,
    /// Of them, those that were answered.
    pub answered: u64,
    /// Of them, those that have ended.
    pub ended: u64,
    /// Calls that were not noted because [`Limits::calls`] were in progress.
    pub overflow: u64,
}

/// The calls in progress of one shard.
#[derive(Debug)]
pub struct Calls {
    key: TagKey,
    limits: Limits,
    calls: Chunks,
    /// Places in `calls` by their calls' keys.
    index: HashTable<u32>,
    timers: TimerWheel<u64>,
    records: VecDeque<CallRecord>,
    /// Whether records are made.
    is_recording: bool,
    counters: Counters,
}

impl Calls {
    /// An empty table. `key` is secret: whoever knew it could choose Call-IDs that collide.
    #[must_use]
    pub fn new(key: &TagKey, limits: Limits) -> Self {
        Self {
            key: key.derive("calls"),
            limits: Limits { calls: limits.calls.min(u32::MAX as usize), ..limits },
            calls: Chunks::default(),
            index: HashTable::new(),
            timers: TimerWheel::new(),
            records: VecDeque::new(),
            is_recording: true,
            counters: Counters::default(),
        }
    }

    /// Whether a record is made of each call that ends from now on; so it is at first.
    pub const fn set_recording(&mut self, is_wanted: bool) {
        self.is_recording = is_wanted;
    }

    /// Notes an INVITE as it came, before anything in it is changed, from `source`. Retransmissions must not come here.
    ///
    /// The same call again is the same call: a caller who was challenged and tries again, or an INVITE that passes this
    /// server twice. `None` for what begins no call (another method, an INVITE inside a dialog), and where the table is
    /// full.
    pub fn begin(&mut self, now: Timestamp, invite: &Message<'_>, source: &Flow) -> Option<CallKey> {
        if invite.method() != Method::Invite || invite.status().is_some() || invite.to().tag().is_some() {
            return None;
        }
        let key = self.key_of(invite);
        if let Some(place) = self.place(key.0) {
            self.on_repeated_invite(now, place);
            return Some(key);
        }
        if self.calls.len() >= self.limits.calls {
            self.counters.overflow += 1;
            return None;
        }
        let place = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        self.calls.push(Call::new(now, key.0, invite, source.transport, source.peer));
        let Self { calls, index, .. } = self;
        index.insert_unique(key.0, place, |place| calls.get(*place).map_or(0, |call| call.key));
        self.arm(place, now + self.limits.age, false);
        self.counters.begun += 1;
        Some(key)
    }

    /// The key of the call that `message` begins or answers: an INVITE or a response to one that the caller sent.
    #[must_use]
    pub fn key_of(&self, message: &Message<'_>) -> CallKey {
        self.hash(message.call_id(), message.from().tag())
    }

    /// A provisional response other than 100 came back.
    pub fn handle_ringing(&mut self, _now: Timestamp, key: CallKey) {
        if let Some(call) = self.call_mut(key)
            && call.state == State::Trying
        {
            call.state = State::Ringing;
        }
    }

    /// `response`, a 2xx to the initial INVITE, came from `target`. Only the first one makes the call: the caller is to end
    /// the other dialogs of a forked INVITE (RFC 3261 §13.2.2.4), and nobody hears of them here. Whether this is the first.
    pub fn handle_answer(&mut self, now: Timestamp, key: CallKey, response: &Message<'_>, target: SocketAddr) -> bool {
        debug_assert!(response.status().is_some_and(Status::is_success), "a 2xx answers");
        let callee_tag = self.short_hash(response.to().tag());
        let Some(place) = self.place(key.0) else { return false };
        let Some(call) = self.calls.get_mut(place).filter(|call| call.state != State::Answered) else { return false };
        call.on_answer(now, callee_tag, target);
        self.counters.answered += 1;
        self.await_session(now, place, response);
        true
    }

    /// The caller is given `status`, a final response other than a 2xx. `target` is who it came from; `None` where it is
    /// the server's own.
    ///
    /// A status after which callers try again with the same Call-ID (401, 407, 422) does not end the call yet.
    pub fn handle_failure(&mut self, now: Timestamp, key: CallKey, status: u16, target: Option<SocketAddr>) {
        let Some(place) = self.place(key.0) else { return };
        let Some(call) = self.calls.get_mut(place) else { return };
        call.legs = call.legs.saturating_sub(1);
        if call.state == State::Answered || call.legs > 0 {
            return;
        }
        call.on_failure(target);
        //= rfc3261#22.2
        //= rfc4028#7.4
        if matches!(status, 401 | 407 | 422) && !call.is_cancelled {
            call.state = State::Challenged;
            call.challenge = status;
            self.arm(place, now + CHALLENGE_GRACE, false);
            return;
        }
        let reason = if call.is_cancelled { Reason::Cancelled } else { Reason::Rejected };
        self.end(place, now, reason, Some(status));
    }

    /// The target that `seat` is of has the call while it lasts: while it is talked, and while a caller who was asked for more
    /// may try again. Where the INVITE passed here twice, on its way to two targets, it is the call of the last that is told of.
    pub fn assign_target(&mut self, key: CallKey, seat: CallGuard) {
        if let Some(call) = self.call_mut(key)
            && matches!(call.state, State::Answered | State::Challenged)
        {
            call.call_guard = Some(seat);
        }
    }

    /// The target of a balanced set that has the call which a request of the caller's is of; of an INVITE without a To tag, that
    /// which asked the caller for more.
    #[must_use]
    pub fn target_of(&self, request: &Message<'_>) -> Option<TargetId> {
        let place = match request.to().tag() {
            Some(_) => self.dialog(request).filter(|(_, is_caller)| *is_caller)?.0,
            None => self.place(self.key_of(request).0)?,
        };
        let call = self.calls.get(place)?;
        if request.to().tag().is_none() && call.state != State::Challenged {
            return None;
        }
        call.call_guard.as_ref().map(|seat| seat.target().id())
    }

    /// The caller sent CANCEL. The call ends with the final response that the INVITE gets: it may yet be answered.
    pub fn handle_cancel(&mut self, _now: Timestamp, key: CallKey) {
        if let Some(call) = self.call_mut(key)
            && call.state != State::Answered
        {
            call.is_cancelled = true;
        }
    }

    /// A BYE that goes to the other party. It ends the call where it is of the dialog that was answered; what it ended.
    ///
    /// The parties take the session for ended as soon as BYE is sent, whatever is answered (RFC 3261 §15.1.1). A target may have
    /// to answer it yet, so the seat that it has is given out.
    pub fn handle_bye(&mut self, now: Timestamp, bye: &Message<'_>) -> Option<ByeOutcome> {
        let (place, is_caller) = self.dialog(bye)?;
        let by = if is_caller { Reason::CallerHungUp } else { Reason::CalleeHungUp };
        let seat = self.calls.get_mut(place).and_then(|call| call.call_guard.take());
        self.end(place, now, by, Some(200));
        Some(ByeOutcome { by, call_guard: seat })
    }

    /// A message inside a dialog: a sign that the call goes on. A re-INVITE or UPDATE begins the session timer anew with its
    /// own interval, or ends it where it has none; its 2xx then says what both parties keep, which is never longer
    /// (RFC 4028 §7.2, §9). Who sees only one of the two ends the call later than the parties, never before them.
    pub fn handle_refresh(&mut self, now: Timestamp, message: &Message<'_>) {
        let Some((place, _)) = self.dialog(message) else { return };
        let is_refresh = matches!(message.method(), Method::Invite | Method::Update)
            && message.status().is_none_or(Status::is_success);
        if is_refresh {
            self.await_session(now, place, message);
        } else if self.calls.get(place).is_some_and(|call| !call.has_session_timer) {
            self.arm(place, now + self.limits.age, false);
        }
    }

    /// Whether calls have ended that were not taken yet.
    #[must_use]
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Takes a call that has ended; call until `None`.
    pub fn poll_record(&mut self) -> Option<CallRecord> {
        let record = self.records.pop_front();
        // After a burst of ends the queue gives its memory back.
        if record.is_none() && self.records.capacity() > EXPIRIES_PER_CALL {
            self.records = VecDeque::new();
        }
        record
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        self.timers.next_deadline().map(|at| Wakeup { at, reason: "the time of a call" })
    }

    /// Ends calls whose time is over, up to [`EXPIRIES_PER_CALL`] of them.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        for _ in 0..EXPIRIES_PER_CALL {
            let Some(key) = self.timers.poll_expired(now) else { return };
            let Some(place) = self.place(key) else { continue };
            let Some(call) = self.calls.get_mut(place) else { continue };
            call.timer = None;
            if now < call.until {
                call.timer = Some(self.timers.insert(call.until, key));
                continue;
            }
            match (call.state, call.has_session_timer) {
                (State::Challenged, _) => {
                    let status = call.challenge;
                    self.end(place, now, Reason::Rejected, Some(status));
                }
                //= rfc4028#10
                (State::Answered, true) => {
                    let ended = Timestamp::ZERO + now.saturating_since(Timestamp::ZERO + SESSION_GRACE);
                    self.end(place, ended, Reason::SessionExpired, Some(200));
                }
                (State::Answered, false) => self.end(place, now, Reason::Lost, Some(200)),
                (State::Trying | State::Ringing, _) => self.end(place, now, Reason::Lost, None),
            }
        }
    }

    /// Shows each call in progress, in no order that means anything.
    pub fn for_each(&self, visit: impl FnMut(CallView<'_>)) {
        self.calls.iter().map(Call::view).for_each(visit);
    }

    /// Calls in progress.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call is in progress.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Totals.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks what always holds; for tests and simulation.
    pub fn check_invariants(&self) {
        let Counters { begun, ended, .. } = self.counters;
        debug_assert_eq!(self.index.len(), self.calls.len());
        debug_assert_eq!(self.timers.len(), self.calls.len(), "each call ends by itself some day");
        debug_assert_eq!(begun - ended, self.calls.len() as u64);
        debug_assert!(self.calls.iter().zip(0..).all(|(call, place)| self.place(call.key) == Some(place)));
    }

    /// The INVITE of a call that is known.
    fn on_repeated_invite(&mut self, now: Timestamp, place: u32) {
        let Some(call) = self.calls.get_mut(place) else { return };
        call.legs = call.legs.saturating_add(1);
        if call.state == State::Challenged {
            call.state = State::Trying;
            // While it is set up the request itself says who has it.
            call.call_guard = None;
            self.arm(place, now + self.limits.age, false);
        }
    }

    /// Takes the session interval of a message; without one there is no session timer (RFC 4028 §7.2).
    fn await_session(&mut self, now: Timestamp, place: u32, message: &Message<'_>) {
        match session_interval(message.head()) {
            Some(interval) => self.arm(place, now + interval + SESSION_GRACE, true),
            None => self.arm(place, now + self.limits.age, false),
        }
    }

    fn arm(&mut self, place: u32, at: Timestamp, is_session: bool) {
        let Some(call) = self.calls.get_mut(place) else { return };
        call.has_session_timer = is_session;
        let is_later = at >= core::mem::replace(&mut call.until, at);
        match call.timer {
            // Most calls end before it fires; otherwise it finds that there is time left, and is armed again.
            Some(_) if is_later => return,
            Some(timer) => {
                self.timers.cancel(timer);
            }
            None => {}
        }
        call.timer = Some(self.timers.insert(at, call.key));
    }

    fn end(&mut self, place: u32, ended: Timestamp, reason: Reason, status: Option<u16>) {
        let Some(key) = self.calls.get(place).map(|call| call.key) else { return };
        let last = u32::try_from(self.calls.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let last_key = self.calls.get(last).map_or(0, |call| call.key);
        let Self { calls, index, .. } = self;
        if let Ok(entry) = index.find_entry(key, |at| *at == place) {
            entry.remove();
        }
        if last != place
            && let Some(at) = index.find_mut(last_key, |at| *at == last)
        {
            *at = place;
        }
        if index.capacity() / 8 > index.len() {
            index.shrink_to(index.len() * 2, |at| {
                // The last call is moved only after this.
                calls.get(if *at == place { last } else { *at }).map_or(0, |call| call.key)
            });
        }
        let Some(call) = calls.swap_remove(place) else { return };
        if let Some(timer) = call.timer {
            self.timers.cancel(timer);
        }
        self.counters.ended += 1;
        if self.is_recording {
            self.records.push_back(call.into_record(ended, reason, status));
        }
    }

    /// The answered call that an in-dialog message belongs to, and whether the caller sent the request.
    fn dialog(&self, message: &Message<'_>) -> Option<(u32, bool)> {
        let (from, to) = (message.from().tag(), message.to().tag());
        [(from, to, true), (to, from, false)].into_iter().find_map(|(caller, callee, is_caller)| {
            let place = self.place(self.hash(message.call_id(), caller).0)?;
            let call = self.calls.get(place)?;
            let is_it = call.state == State::Answered && call.callee_tag == self.short_hash(callee);
            is_it.then_some((place, is_caller))
        })
    }

    fn call_mut(&mut self, key: CallKey) -> Option<&mut Call> {
        let place = self.place(key.0)?;
        self.calls.get_mut(place)
    }

    fn place(&self, key: u64) -> Option<u32> {
        self.index.find(key, |place| self.calls.get(*place).is_some_and(|call| call.key == key)).copied()
    }

    /// Clients of RFC 2543 have no tag.
    fn hash(&self, call_id: &[u8], tag: Option<&[u8]>) -> CallKey {
        CallKey(self.key.table64(&[call_id, tag.unwrap_or_default()]).max(1))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a part of the hash is what is wanted")]
    fn short_hash(&self, tag: Option<&[u8]>) -> u32 {
        self.key.table64(&[tag.unwrap_or_default()]) as u32
    }
}
