//! The table of calls.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use hashbrown::HashTable;
use strowger_balancer::{CallGuard, TargetId};
use strowger_foundation::{Flow, TagKey, TimerWheel, Timestamp, Wakeup};
use strowger_message::{Message, Method, Status};

use crate::call::{Call, Stop};
use crate::chunks::Chunks;
use crate::dialog::DialogView;
use crate::early_byes::EarlyByes;
use crate::record::{CallRecord, CallView, Reason, State};
use crate::session::session_interval;
use crate::setup::SetupTimes;

/// Time for a challenged caller to retry before the attempt counts as rejected.
pub const CHALLENGE_GRACE: Duration = Duration::from_secs(32);
/// Time from the expiry of the session timer to the end of the call: a refresh sent in time may still be in transit.
pub const SESSION_GRACE: Duration = Duration::from_secs(32);
/// Largest number of calls ended by one [`Calls::handle_timeout`]; further ones are due immediately.
pub const EXPIRIES_PER_CALL: usize = 64;

/// Limits of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of calls in progress; further ones are not tracked and counted in [`Counters::overflow`].
    pub calls: usize,
    /// Lifetime of a call without any message, if it has no session timer.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 65_536, age: Duration::from_secs(12 * 3600) }
    }
}

/// Id of a call of this shard: a keyed hash of its Call-ID and the caller's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey(u64);

impl CallKey {
    /// Returns the key as a number that is never 0.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the key for a number from [`to_bits`](Self::to_bits).
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A call that a BYE has ended.
#[derive(Debug)]
pub struct ByeOutcome {
    /// The party that hung up: [`Reason::CallerHungUp`] or [`Reason::CalleeHungUp`].
    pub by: Reason,
    /// Counts the call at its balanced target, if any; dropping it ends the count.
    pub call_guard: Option<CallGuard>,
}

/// Totals since the table was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls tracked, including those taken over from another process.
    pub begun: u64,
    /// Tracked calls that were answered.
    pub answered: u64,
    /// Tracked calls that have ended, or that another process has taken over.
    pub ended: u64,
    /// Calls not tracked because [`Limits::calls`] were in progress.
    pub overflow: u64,
}

/// The calls in progress of a shard.
#[derive(Debug)]
pub struct Calls {
    key: TagKey,
    limits: Limits,
    calls: Chunks,
    /// Index of calls by key.
    index: HashTable<u32>,
    timers: TimerWheel<u64>,
    records: VecDeque<CallRecord>,
    /// Whether records are created.
    is_recording: bool,
    counters: Counters,
    setup: SetupTimes,
    /// While calls of another process are expected.
    early_byes: Option<Box<EarlyByes>>,
}

impl Calls {
    /// Creates an empty table. `key` is secret: whoever knows it can choose colliding Call-IDs.
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
            setup: SetupTimes::default(),
            early_byes: None,
        }
    }

    /// Sets whether a record is created of each call that ends from here on; initially on.
    pub const fn set_recording(&mut self, is_wanted: bool) {
        self.is_recording = is_wanted;
    }

    /// Tracks an INVITE from `source`, as received and before any change. Must not be called for retransmissions.
    ///
    /// A repeated INVITE belongs to the same call: a challenged caller retries, or the INVITE passes this server
    /// twice. Returns `None` for a message that begins no call (another method, or an INVITE within a dialog), and if
    /// the table is full.
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
        let place = self.push(Call::new(now, key.0, invite, source.transport, source.peer));
        self.arm(place, now + self.limits.age, false);
        Some(key)
    }

    /// Returns the key of the call for `message`: an INVITE of the caller or a response to it.
    #[must_use]
    pub fn key_of(&self, message: &Message<'_>) -> CallKey {
        self.hash(message.call_id(), message.from().tag())
    }

    /// Returns the keys of the call for `message`, whose sender may be the caller, or the callee within a dialog.
    #[must_use]
    pub fn keys_of(&self, message: &Message<'_>) -> [u64; 2] {
        [message.from().tag(), message.to().tag()].map(|tag| self.hash(message.call_id(), tag).0)
    }

    /// Whether the call with this key is in progress.
    #[must_use]
    pub fn is_tracked(&self, key: u64) -> bool {
        self.place(key).is_some()
    }

    /// Handles a provisional response other than 100. Returns when the call began, if this is the first.
    pub fn handle_ringing(&mut self, now: Timestamp, key: CallKey) -> Option<Timestamp> {
        let place = self.place(key.0)?;
        let call = self.calls.get_mut(place).filter(|call| call.state == State::Trying)?;
        call.state = State::Ringing;
        self.setup.ringing.record(call.began, now);
        Some(call.began)
    }

    /// Returns when the call began.
    #[must_use]
    pub fn began(&self, key: CallKey) -> Option<Timestamp> {
        self.place(key.0).and_then(|place| self.calls.get(place)).map(|call| call.began)
    }

    /// Handles `response`, a 2xx to the initial INVITE, received on `target`. Only the first one answers the call: the
    /// caller must end the other dialogs of a forked INVITE (RFC 3261 §13.2.2.4), which are not tracked. Returns
    /// whether this is the first.
    pub fn handle_answer(&mut self, now: Timestamp, key: CallKey, response: &Message<'_>, target: &Flow) -> bool {
        debug_assert!(response.status().is_some_and(Status::is_success), "a 2xx answers");
        let callee_tag = self.short_hash(response.to().tag());
        let Some(place) = self.place(key.0) else { return false };
        let Some(call) = self.calls.get_mut(place).filter(|call| call.state != State::Answered) else { return false };
        call.on_answer(now, callee_tag, response, target);
        self.setup.answered.record(call.began, now);
        self.counters.answered += 1;
        self.await_session(now, place, response);
        true
    }

    /// Handles `status`, a final response other than a 2xx sent to the caller. `target` is the peer that it came
    /// from; `None` for the server itself.
    ///
    /// A status after which callers retry with the same Call-ID (401, 407, 422) does not end the call yet. Returns when
    /// the call began and why it has ended, if it has.
    pub fn handle_failure(
        &mut self,
        now: Timestamp,
        key: CallKey,
        status: u16,
        target: Option<SocketAddr>,
    ) -> Option<(Timestamp, Reason)> {
        let place = self.place(key.0)?;
        let call = self.calls.get_mut(place)?;
        call.legs = call.legs.saturating_sub(1);
        if call.state == State::Answered || call.legs > 0 {
            return None;
        }
        call.on_failure(target);
        //= rfc3261#22.2
        //= rfc4028#7.4
        if matches!(status, 401 | 407 | 422) && call.stop == Stop::No {
            call.state = State::Challenged;
            call.challenge = status;
            self.arm(place, now + CHALLENGE_GRACE, false);
            return None;
        }
        let (reason, times) = match call.stop {
            Stop::ByCaller => (Reason::Cancelled, &mut self.setup.cancelled),
            Stop::ByOperator => (Reason::EndedByOperator, &mut self.setup.cancelled),
            Stop::No => (Reason::Rejected, &mut self.setup.rejected),
        };
        let began = call.began;
        times.record(began, now);
        self.end(place, now, reason, Some(status));
        Some((began, reason))
    }

    /// Sets the name of the trunk that the call comes from.
    pub fn set_source_trunk(&mut self, key: CallKey, name: &str) {
        if let Some(call) = self.call_mut(key) {
            call.set_source_trunk(name);
        }
    }

    /// Sets the trunk that has answered or refused the call, and the Request-URI that was sent there. Must come before
    /// [`handle_answer`](Self::handle_answer) or [`handle_failure`](Self::handle_failure).
    pub fn set_target_trunk(&mut self, key: CallKey, name: Option<&str>, request_uri: &[u8]) {
        if let Some(call) = self.call_mut(key)
            && call.state != State::Answered
        {
            call.set_target_trunk(name, request_uri);
        }
    }

    /// Assigns the call to the target of the guard until it ends: while it is in progress, and while a challenged
    /// caller may retry. If the INVITE passed here twice on its way to two targets, the target assigned last has the
    /// call.
    pub fn assign_target(&mut self, key: CallKey, seat: CallGuard) {
        if let Some(call) = self.call_mut(key)
            && matches!(call.state, State::Answered | State::Challenged)
        {
            call.call_guard = Some(seat);
        }
    }

    /// Returns the balanced target of the call that the caller's request belongs to. For an INVITE without a To tag,
    /// the target that challenged the caller.
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

    /// Handles the caller's CANCEL. The call ends with the final response to the INVITE; it may still be answered.
    pub fn handle_cancel(&mut self, _now: Timestamp, key: CallKey) {
        if let Some(call) = self.call_mut(key)
            && call.state != State::Answered
            && call.stop == Stop::No
        {
            call.stop = Stop::ByCaller;
        }
    }

    /// Handles a BYE to the other party. Ends the call if the BYE is in the answered dialog, and returns what ended.
    ///
    /// The parties treat the session as ended as soon as BYE is sent, whatever the response (RFC 3261 §15.1.1). A
    /// target may still have to respond, so its call guard is returned.
    pub fn handle_bye(&mut self, now: Timestamp, bye: &Message<'_>) -> Option<ByeOutcome> {
        let Some((place, is_caller)) = self.dialog(bye) else {
            if self.early_byes.is_some() {
                self.note_early_bye(now, bye);
            }
            return None;
        };
        let by = if is_caller { Reason::CallerHungUp } else { Reason::CalleeHungUp };
        let call = self.calls.get_mut(place)?;
        let (seat, is_commanded) = (call.call_guard.take(), call.stop == Stop::ByOperator);
        self.end(place, now, if is_commanded { Reason::EndedByOperator } else { by }, Some(200));
        Some(ByeOutcome { by, call_guard: seat })
    }

    /// Returns the keys of the calls with this Call-ID: several if the caller's tag differs. Scans all calls.
    #[must_use]
    pub fn find_by_call_id(&self, call_id: &[u8]) -> Vec<CallKey> {
        self.calls.iter().filter(|call| call.call_id() == call_id).map(|call| CallKey(call.key)).collect()
    }

    /// Marks the call as one that the operator ends, and returns its state. Whatever ends it from here on, that is the
    /// reason in its record.
    pub fn begin_ending(&mut self, key: CallKey) -> Option<State> {
        let call = self.call_mut(key)?;
        call.stop = Stop::ByOperator;
        Some(call.state)
    }

    /// Whether the operator ends the call.
    #[must_use]
    pub fn is_ending(&self, key: CallKey) -> bool {
        let call = self.place(key.0).and_then(|place| self.calls.get(place));
        call.is_some_and(|call| call.stop == Stop::ByOperator)
    }

    /// Returns the dialog of an answered call; `None` if a party has not given what it takes, or for one longer than
    /// [`MAX_DIALOG`](crate::MAX_DIALOG).
    #[must_use]
    pub fn dialog_of(&self, key: CallKey) -> Option<(DialogView<'_>, CallView<'_>)> {
        let call = self.calls.get(self.place(key.0)?)?;
        Some((call.dialog()?, call.view()))
    }

    /// Ends the call at the operator's command, after both parties were told.
    pub fn end_by_operator(&mut self, now: Timestamp, key: CallKey) {
        let Some(place) = self.place(key.0) else { return };
        let Some(call) = self.calls.get(place) else { return };
        let status = match call.state {
            State::Answered => Some(200),
            State::Challenged => Some(call.challenge),
            State::Trying | State::Ringing => None,
        };
        self.end(place, now, Reason::EndedByOperator, status);
    }

    /// Handles a message within a dialog, which shows that the call is alive. A re-INVITE or UPDATE restarts the
    /// session timer with its own interval, or stops it if it has none. Its 2xx then carries the interval that both
    /// parties use, which is never longer (RFC 4028 §7.2, §9). If only one of the two is seen, the call ends later
    /// than the parties do, never earlier.
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

    /// Whether records are waiting to be polled.
    #[must_use]
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Returns the next record; call until `None`.
    pub fn poll_record(&mut self) -> Option<CallRecord> {
        let record = self.records.pop_front();
        // Releases the queue's memory after a burst.
        if record.is_none() && self.records.capacity() > EXPIRIES_PER_CALL {
            self.records = VecDeque::new();
        }
        record
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        self.timers.next_deadline().map(|at| Wakeup::at(at, "the time of a call"))
    }

    /// Frees the memory for calls if there are none. Worth calling when there were none for some time.
    pub fn free_if_empty(&mut self) {
        self.calls.free_if_empty();
        self.timers.free_if_empty();
        if self.index.is_empty() {
            self.index = HashTable::new();
        }
        if self.records.is_empty() {
            self.records = VecDeque::new();
        }
    }

    /// Ends expired calls, at most [`EXPIRIES_PER_CALL`].
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

    /// Passes each call in progress to `visit`, in no particular order.
    pub fn for_each(&self, visit: impl FnMut(CallView<'_>)) {
        self.calls.iter().map(Call::view).for_each(visit);
    }

    /// Number of calls in progress.
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

    /// Times of call setup.
    #[must_use]
    pub const fn setup_times(&self) -> &SetupTimes {
        &self.setup
    }

    /// Checks the invariants; for tests and simulation.
    pub fn check_invariants(&self) {
        let Counters { begun, ended, .. } = self.counters;
        debug_assert_eq!(self.index.len(), self.calls.len());
        debug_assert_eq!(self.timers.len(), self.calls.len(), "each call ends by itself some day");
        debug_assert_eq!(begun - ended, self.calls.len() as u64);
        debug_assert!(self.calls.iter().zip(0..).all(|(call, place)| self.place(call.key) == Some(place)));
    }

    /// Adds a call that is not known, without its timer, and returns its place.
    #[inline]
    fn push(&mut self, call: Call) -> u32 {
        let (key, place) = (call.key, u32::try_from(self.calls.len()).unwrap_or(u32::MAX));
        self.calls.push(call);
        let Self { calls, index, .. } = self;
        index.insert_unique(key, place, |place| calls.get(*place).map_or(0, |call| call.key));
        self.counters.begun += 1;
        place
    }

    /// Adds a call with its own expiry; returns `false` if the table is full.
    pub(crate) fn insert(&mut self, call: Call) -> bool {
        if self.calls.len() >= self.limits.calls {
            self.counters.overflow += 1;
            return false;
        }
        let (until, is_session, is_answered) = (call.until, call.has_session_timer, call.state == State::Answered);
        let place = self.push(call);
        self.arm(place, until, is_session);
        self.counters.answered += u64::from(is_answered);
        true
    }

    /// Ends an answered call.
    pub(crate) fn end_call(&mut self, key: CallKey, at: Timestamp, reason: Reason) {
        if let Some(place) = self.place(key.0) {
            self.end(place, at, reason, Some(200));
        }
    }

    /// Removes a call without a record.
    pub(crate) fn forget(&mut self, key: CallKey) {
        if let Some(place) = self.place(key.0) {
            self.remove(place);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }

    pub(crate) fn call(&self, key: CallKey) -> Option<&Call> {
        self.place(key.0).and_then(|place| self.calls.get(place))
    }

    pub(crate) const fn early_byes(&self) -> &Option<Box<EarlyByes>> {
        &self.early_byes
    }

    pub(crate) const fn early_byes_mut(&mut self) -> &mut Option<Box<EarlyByes>> {
        &mut self.early_byes
    }

    /// Handles an INVITE of a known call.
    fn on_repeated_invite(&mut self, now: Timestamp, place: u32) {
        let Some(call) = self.calls.get_mut(place) else { return };
        call.legs = call.legs.saturating_add(1);
        if call.state == State::Challenged {
            call.state = State::Trying;
            // During setup the request itself identifies the target.
            call.call_guard = None;
            self.arm(place, now + self.limits.age, false);
        }
    }

    /// Applies the session interval of a message; without one there is no session timer (RFC 4028 §7.2).
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
            // Most calls end before it fires; otherwise it is rearmed for the remaining time.
            Some(_) if is_later => return,
            Some(timer) => {
                self.timers.cancel(timer);
            }
            None => {}
        }
        call.timer = Some(self.timers.insert(at, call.key));
    }

    fn end(&mut self, place: u32, ended: Timestamp, reason: Reason, status: Option<u16>) {
        let call = self.remove(place);
        if self.is_recording {
            self.records.extend(call.map(|call| call.into_record(ended, reason, status)));
        }
    }

    /// Removes a call, its index and its timer.
    fn remove(&mut self, place: u32) -> Option<Call> {
        let key = self.calls.get(place).map(|call| call.key)?;
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
        let call = calls.swap_remove(place)?;
        if let Some(timer) = call.timer {
            self.timers.cancel(timer);
        }
        self.counters.ended += 1;
        Some(call)
    }

    /// Returns the answered call of an in-dialog message, and whether the caller sent the request.
    fn dialog(&self, message: &Message<'_>) -> Option<(u32, bool)> {
        let (from, to) = (message.from().tag(), message.to().tag());
        [(from, to, true), (to, from, false)].into_iter().find_map(|(caller, callee, is_caller)| {
            let place = self.place(self.hash(message.call_id(), caller).0)?;
            let call = self.calls.get(place)?;
            let is_it = call.state == State::Answered && call.callee_tag == self.short_hash(callee);
            is_it.then_some((place, is_caller))
        })
    }

    pub(crate) fn call_mut(&mut self, key: CallKey) -> Option<&mut Call> {
        let place = self.place(key.0)?;
        self.calls.get_mut(place)
    }

    fn place(&self, key: u64) -> Option<u32> {
        self.index.find(key, |place| self.calls.get(*place).is_some_and(|call| call.key == key)).copied()
    }

    /// Hashes Call-ID and tag; RFC 2543 clients have no tag.
    fn hash(&self, call_id: &[u8], tag: Option<&[u8]>) -> CallKey {
        CallKey(self.key.table64(&[call_id, tag.unwrap_or_default()]).max(1))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a part of the hash is what is wanted")]
    pub(crate) fn short_hash(&self, tag: Option<&[u8]>) -> u32 {
        self.key.table64(&[tag.unwrap_or_default()]) as u32
    }
}
