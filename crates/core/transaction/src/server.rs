//! Server transactions (RFC 3261 §17.2).

use core::time::Duration;

use strowger_foundation::{Buf, Flow, Timestamp, Transport};
use strowger_message::{Head, HeaderName, NameAddr, OwnFields, Status};

use crate::id::ServerId;
use crate::key::{RequestFingerprint, ServerKey};
use crate::layer::{MAX_SERVER, NO_USER, TableFull, Transactions};
use crate::machine::{Actions, Kind, ServerEvent, ServerState, start_server, step_server};
use crate::output::{Event, Output};
use crate::response_cache::{CachedResponse, NewResponse, ResponseCache};
use crate::timer_queues::{TimerOwner, WaitDuration, WaitEnd};
use crate::timers::{TimerKind, Timers};
use crate::timing::Timing;

/// Added to a moment, it makes of its whole milliseconds the next ones.
const NEARLY_A_MILLISECOND: Duration = Duration::from_nanos(999_999);

/// The allowance of a transaction that may send as much as its timers ask for.
const UNBOUNDED: u8 = u8::MAX;
/// What allowances count in, in bytes: what is sent is rounded up to it, and what is allowed down.
const UNIT: usize = 64;

/// What becomes of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckVerdict {
    /// It answered our failure and goes no further.
    Absorbed,
    /// The same once more, or before there was an answer: nothing comes of it.
    Ignored,
    /// It answers a success, or nothing that we know: it is the user's to route.
    ToUser,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) key: ServerKey,
    /// The last response, where the machine may have to send it again.
    pub(crate) response: Buf,
    pub(crate) flow: Flow,
    timers: Timers,
    /// When it was opened, in milliseconds, rounded up and cut: it counts for some seconds only.
    opened_ms: u32,
    generation: u32,
    user: u32,
    kind: Kind,
    state: ServerState,
    retransmissions: u8,
    /// How much may still be sent, in [`UNIT`]s; [`UNBOUNDED`] where nothing bounds it.
    allowance: u8,
}

/// Where a server transaction is, or what is left of it, with a part of its key: so an index that grows looks at no transaction,
/// for they lie all over the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) key_part: u32,
    index: u32,
}

impl Transactions {
    /// The transaction of `key`. Of one that has nothing left but its answer, the id serves retransmissions, and says nothing else.
    #[must_use]
    pub fn find_server(&self, key: ServerKey) -> Option<ServerId> {
        let key_part = part_of(key);
        let is_it = |place: &IndexEntry| place.key_part == key_part && self.key_at(place.index) == Some(key);
        let IndexEntry { index, .. } = *self.index.find(hash_of(key_part), is_it)?;
        if ResponseCache::is_place(index) {
            return Some(ServerId { index, generation: 0 });
        }
        let server = self.servers.get(index)?;
        Some(ServerId { index, generation: server.generation })
    }

    /// Opens a transaction for a request that belongs to none; its responses go to `flow`. `user` is told of its end;
    /// `u32::MAX` is nobody. A key that is taken gives its transaction as it is.
    ///
    /// # Errors
    /// [`TableFull`] past [`MAX_SERVER`], counted.
    pub fn open_server(
        &mut self,
        now: Timestamp,
        key: ServerKey,
        kind: Kind,
        flow: Flow,
        user: u32,
    ) -> Result<ServerId, TableFull> {
        if let Some(id) = self.find_server(key) {
            return Ok(id);
        }
        if self.servers() >= MAX_SERVER {
            self.counters.table_full = self.counters.table_full.saturating_add(1);
            return Err(TableFull);
        }
        let generation = self.next_generation();
        let state = start_server(kind);
        let server = Server {
            key,
            response: Buf::new(),
            flow,
            timers: Timers::NONE,
            opened_ms: cut_ms(now + NEARLY_A_MILLISECOND),
            generation,
            user,
            kind,
            state,
            retransmissions: 0,
            allowance: UNBOUNDED,
        };
        let index = self.servers.insert(server);
        let key_part = part_of(key);
        self.index.insert_unique(hash_of(key_part), IndexEntry { key_part, index }, |place| hash_of(place.key_part));
        Ok(ServerId { index, generation })
    }

    /// Changes who is told of the transaction's end.
    pub fn set_server_user(&mut self, id: ServerId, user: u32) {
        if let Some(server) = self.server_mut(id) {
            server.user = user;
        }
    }

    //= rfc3261#26.3.2.4
    /// Bounds the bytes that the transaction sends of itself: a 100, the first final response, and that response again, by Timer G and
    /// to retransmissions, for as long as `bytes` last. Whoever forges the source of an INVITE must not draw many responses onto it.
    pub fn bound_retransmissions(&mut self, id: ServerId, bytes: usize) {
        if let Some(server) = self.server_mut(id) {
            server.allowance = bounded(bytes / UNIT);
        }
    }

    /// So many bytes more may be sent, where that is [bounded](Self::bound_retransmissions): a retransmission has come, and brought bytes
    /// of its own.
    pub fn allow_bytes(&mut self, id: ServerId, bytes: usize) {
        if let Some(server) = self.server_mut(id).filter(|server| server.allowance != UNBOUNDED) {
            server.allowance = bounded(usize::from(server.allowance).saturating_add(bytes / UNIT));
        }
    }

    /// Who is told of the transaction's end: `u32::MAX` is nobody; `None` where there is no such transaction.
    #[must_use]
    pub fn server_user(&self, id: ServerId) -> Option<u32> {
        self.server(id).map(|server| server.user)
    }

    /// The transaction at `index`, where it is `user`'s: for users that name transactions by where they are.
    #[must_use]
    pub fn server_of(&self, index: u32, user: u32) -> Option<ServerId> {
        let server = self.servers.get(index).filter(|server| server.user == user)?;
        Some(ServerId { index, generation: server.generation })
    }

    /// The state of a transaction that has not ended.
    #[must_use]
    pub fn server_state(&self, id: ServerId) -> Option<ServerState> {
        self.server(id).map(|server| server.state)
    }

    /// The key that the transaction is found by.
    #[must_use]
    pub fn server_key(&self, id: ServerId) -> Option<ServerKey> {
        self.server(id).map(|server| server.key)
    }

    /// Where the transaction's responses go.
    #[must_use]
    pub fn server_flow(&self, id: ServerId) -> Option<Flow> {
        self.server(id).map(|server| server.flow)
    }

    /// Has responses that are still to come, or come again, sent to `flow`, where both that and where they went are datagrams: a
    /// retransmission has come by another server that stands in for the one before.
    pub fn redirect_responses(&mut self, id: ServerId, flow: Flow) {
        let is_datagram = |flow: &Flow| flow.transport == Transport::Udp;
        if let Some(server) = self.server_mut(id).filter(|server| is_datagram(&server.flow) && is_datagram(&flow)) {
            server.flow = flow;
        }
    }

    /// What is kept of the answer of our own that is all that `id` has left, and what it answers: where its request comes again, that
    /// is [answered again](Self::answer_again).
    #[must_use]
    pub fn cached_own_response(&self, id: ServerId) -> Option<(RequestFingerprint, &[u8])> {
        match self.response_cache.response_at(id.index)? {
            CachedResponse::Own(request, own) => Some((request, own)),
            CachedResponse::Whole(..) => None,
        }
    }

    /// A request came again that has an [answer of our own](Self::own_answer): here that is once more, and goes to `flow`.
    pub fn resend_own_response(&mut self, flow: Flow, response: Buf) {
        //= rfc3261#17.2.2
        // As in `handle_retransmission`.
        self.counters.requests_repeated = self.counters.requests_repeated.saturating_add(1);
        self.counters.response_retransmissions = self.counters.response_retransmissions.saturating_add(1);
        self.push_output(Output::Once { flow, buf: response });
    }

    /// The transaction's request came again: the last response is sent again where the state wants it. An
    /// [answer of our own](Self::own_answer) is for [`answer_again`](Self::answer_again).
    pub fn handle_retransmission(&mut self, now: Timestamp, id: ServerId) {
        self.counters.requests_repeated = self.counters.requests_repeated.saturating_add(1);
        if ResponseCache::is_place(id.index) {
            debug_assert!(self.cached_own_response(id).is_none(), "it has to be made again");
            //= rfc3261#17.2.2
            // While in the "Completed" state, the server transaction MUST pass the final response to the transport
            // layer for retransmission whenever a retransmission of the request is received.
            self.counters.response_retransmissions = self.counters.response_retransmissions.saturating_add(1);
            self.push_output(Output::ReplayCached(id.index));
            return;
        }
        let Some(server) = self.server(id) else { return };
        let length = server.response.len();
        if server.affords(length) {
            self.charge(id, length);
            self.on_server(now, id, ServerEvent::Request);
        }
    }

    /// An ACK came that matches the transaction.
    pub fn handle_ack(&mut self, now: Timestamp, id: ServerId) -> AckVerdict {
        //= rfc6026#7.1
        // An ACK in Accepted is never absorbed.
        match self.on_server(now, id, ServerEvent::Ack) {
            None => AckVerdict::ToUser,
            Some(actions) if actions.has(Actions::TO_USER) => AckVerdict::ToUser,
            Some(Actions::NONE) => AckVerdict::Ignored,
            Some(_) => AckVerdict::Absorbed,
        }
    }

    /// Whether the ACK `head` answers the failure that the transaction sent, by its To tag: what RFC 2543's matching
    /// asks besides the key. True where no failure is kept.
    #[must_use]
    pub fn ack_matches(&self, id: ServerId, head: &Head<'_>) -> bool {
        let Some(server) = self.server(id) else { return false };
        if server.state != ServerState::Completed {
            return true;
        }
        //= rfc3261#17.2.3
        // Without a branch of RFC 3261, the To tag of the ACK must be that of the response that the server sent.
        Head::scan(&server.response).is_ok_and(|response| to_tag(&response) == to_tag(head))
    }

    /// Sends the user's response. The final one of a non-INVITE transaction without a user is the last that is heard of `id`: on
    /// an unreliable transport the answer alone stays, to be found by its key.
    ///
    /// One that the state does not allow, or RFC 4320, is dropped and counted: to a
    /// non-INVITE request any provisional one but 100, a 100 before the client has reached T2 on an unreliable
    /// transport, and 408, which moreover ends the wait for an answer.
    pub fn respond(&mut self, now: Timestamp, id: ServerId, status: Status, response: Buf) {
        self.respond_with(now, id, status, response, None);
    }

    /// As [`respond`](Self::respond), for a response of our own to `request`. Where the answer alone stays, that is
    /// [as little](Self::own_answer) as `own` says.
    pub fn respond_own(
        &mut self,
        now: Timestamp,
        id: ServerId,
        status: Status,
        response: Buf,
        (own, request): (OwnFields, RequestFingerprint),
    ) {
        self.respond_with(now, id, status, response, Some((own, request)));
    }

    fn respond_with(
        &mut self,
        now: Timestamp,
        id: ServerId,
        status: Status,
        response: Buf,
        own: Option<(OwnFields, RequestFingerprint)>,
    ) {
        let Self { timing, servers, .. } = self;
        let server = servers.get(id.index).filter(|server| server.generation == id.generation);
        let Some((server, event)) = server.and_then(|server| {
            let event = server.response_event(timing, now, status)?;
            Some((server, event))
        }) else {
            self.refuse(response);
            return;
        };
        let (state, actions) = server.step(event);
        let flow = server.flow;
        let is_bounded = server.allowance != UNBOUNDED;
        if server.needs_only_response(state, actions) && self.cache_response(now, id, &response, own) {
            self.push_output(Output::Once { flow, buf: response });
            return;
        }
        // Other provisional responses, and successes, are those of who was called.
        if is_bounded && (status == Status::TRYING || event == ServerEvent::Failure) {
            self.charge(id, response.len());
        }
        let Self { servers, pool, .. } = self;
        let Some(server) = servers.get_mut(id.index) else { return self.refuse(response) };
        if actions.has(Actions::KEEP) {
            let spent = core::mem::replace(&mut server.response, pool.copy_of(&response));
            pool.recycle(spent);
        }
        if actions.has(Actions::SEND) {
            self.push_output(Output::Once { flow, buf: response });
        } else {
            self.refuse(response);
        }
        self.apply_server(now, id, state, actions);
    }

    /// Keeps nothing of a transaction but its answer, until Timer J; `false` where it cannot be kept so.
    fn cache_response(
        &mut self,
        now: Timestamp,
        id: ServerId,
        response: &[u8],
        own: Option<(OwnFields, RequestFingerprint)>,
    ) -> bool {
        let Self { timing, servers, index, response_cache: answered, timer_queues: clocks, pool, .. } = self;
        let Some(server) = servers.get(id.index) else { return false };
        let until = now + timing.timeout();
        let given = match own {
            Some((own, request)) => NewResponse::Own(request, own.slices(response)),
            None => NewResponse::Whole(&server.flow, response),
        };
        let Some(place) = answered.insert(server.key, until, given) else { return false };
        //= rfc3261#17.2.2
        // It stays for Timer J, so that what comes again finds its answer.
        match index.find_mut(hash_of(part_of(server.key)), |place| place.index == id.index) {
            Some(found) => found.index = place,
            None => debug_assert!(false, "a transaction is found by its key"),
        }
        if let Some(mut server) = servers.remove(id.index) {
            server.timers.disarm(clocks);
            pool.recycle(server.response);
        }
        true
    }

    /// Ends what was left of the next transaction whose Timer J is over.
    pub(crate) fn expire_response(&mut self, now: Timestamp) -> bool {
        let Some((place, key)) = self.response_cache.pop_expired(now) else { return false };
        self.forget_place(key, place);
        true
    }

    fn forget_place(&mut self, key: ServerKey, index: u32) {
        if let Ok(entry) = self.index.find_entry(hash_of(part_of(key)), |place| place.index == index) {
            entry.remove();
        }
    }

    fn refuse(&mut self, response: Buf) {
        self.counters.responses_refused = self.counters.responses_refused.saturating_add(1);
        self.pool.recycle(response);
    }

    /// The timer of the transaction at `index` has fired.
    pub(crate) fn on_server_timer(&mut self, now: Timestamp, index: u32) {
        let Some(server) = self.servers.get_mut(index) else { return };
        let id = ServerId { index, generation: server.generation };
        let event = match server.timers.on_fired() {
            TimerKind::Retransmit if !server.affords(server.response.len()) => {
                // Timer G is not set again; Timer H goes on.
                let state = server.state;
                self.apply_server(now, id, state, Actions::NONE);
                return;
            }
            TimerKind::Retransmit => {
                let length = server.response.len();
                self.charge(id, length);
                ServerEvent::Retransmit
            }
            TimerKind::Deadline => ServerEvent::Deadline,
        };
        self.on_server(now, id, event);
    }

    /// Takes what is sent from the allowance.
    fn charge(&mut self, id: ServerId, bytes: usize) {
        if let Some(server) = self.server_mut(id).filter(|server| server.allowance != UNBOUNDED) {
            server.allowance = server.allowance.saturating_sub(bounded(bytes.div_ceil(UNIT)));
        }
    }

    /// A last wait of the transaction at `index` is over, where it is still that transaction. That is its end, and all.
    pub(crate) fn on_server_wait_end(&mut self, index: u32, end: &WaitEnd) {
        let Some(server) = self.servers.get(index).filter(|server| server.waits_for(end)) else { return };
        let id = ServerId { index, generation: server.generation };
        debug_assert_eq!(server.step(ServerEvent::Deadline), (ServerState::Terminated, Actions::NONE));
        self.end_server(id, false);
    }

    fn on_server(&mut self, now: Timestamp, id: ServerId, event: ServerEvent) -> Option<Actions> {
        let (state, actions) = self.step_server(id, event)?;
        self.apply_server(now, id, state, actions);
        Some(actions)
    }

    fn step_server(&self, id: ServerId, event: ServerEvent) -> Option<(ServerState, Actions)> {
        self.server(id).map(|server| server.step(event))
    }

    /// Does what a step asked for, but for sending and keeping the user's response.
    fn apply_server(&mut self, now: Timestamp, id: ServerId, state: ServerState, actions: Actions) {
        let Self { timing, servers, timer_queues: clocks, pool, .. } = self;
        let slot = servers.get_mut(id.index).filter(|server| server.generation == id.generation);
        let Some(server) = slot else { return };
        debug_assert!(server.state != ServerState::Terminated);
        server.state = state;
        let replays = actions.has(Actions::REPLAY) && !server.response.is_empty();
        let last = last_wait(server.kind, state, actions);
        let retransmissions = &mut server.retransmissions;
        server.timers.rearm(clocks, TimerOwner::server(id), last, |timers| {
            if actions.has(Actions::STOP_RETRANSMIT) {
                timers.stop_retransmit();
            }
            if actions.has(Actions::ARM_TIMEOUT) {
                timers.end_at(now + timing.timeout());
            }
            if actions.has(Actions::ARM_T4) {
                timers.end_at(now + timing.t4);
            }
            if actions.has(Actions::ARM_RETRANSMIT) {
                timers.retransmit_at(now + timing.doubling_to_t2(*retransmissions));
                *retransmissions = retransmissions.saturating_add(1);
            }
        });
        if actions.has(Actions::RELEASE) {
            pool.recycle(core::mem::take(&mut server.response));
        }
        if replays {
            self.counters.response_retransmissions = self.counters.response_retransmissions.saturating_add(1);
            self.push_output(Output::ReplayServer(id));
        }
        if state == ServerState::Terminated {
            self.end_server(id, actions.has(Actions::TIMED_OUT));
        }
    }

    fn end_server(&mut self, id: ServerId, timed_out: bool) {
        if self.server(id).is_none() {
            return;
        }
        let Some(mut server) = self.servers.remove(id.index) else { return };
        self.forget_place(server.key, id.index);
        server.timers.disarm(&mut self.timer_queues);
        self.pool.recycle(server.response);
        if timed_out {
            self.counters.server_timeouts = self.counters.server_timeouts.saturating_add(1);
        }
        let user = server.user;
        if user != NO_USER {
            self.events.push_back(if timed_out {
                Event::ServerTimeout { user, id }
            } else {
                Event::ServerEnded { user, id }
            });
        }
    }

    pub(crate) fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(id.index).filter(|server| server.generation == id.generation)
    }

    fn server_mut(&mut self, id: ServerId) -> Option<&mut Server> {
        self.servers.get_mut(id.index).filter(|server| server.generation == id.generation)
    }

    fn key_at(&self, index: u32) -> Option<ServerKey> {
        if ResponseCache::is_place(index) {
            return self.response_cache.get(index).map(|(answer, _)| answer.key);
        }
        self.servers.get(index).map(|server| server.key)
    }

    /// Checks every server transaction; returns how many timers they have armed.
    pub(crate) fn check_servers(&self) -> usize {
        assert_eq!(self.index.len(), self.servers());
        for (place, answer) in self.response_cache.iter() {
            assert_eq!(self.find_server(answer.key), Some(ServerId { index: place, generation: 0 }));
            assert!(self.response_cache.response_at(place).is_some(), "it can be sent again");
        }
        let mut timers = 0usize;
        for (index, server) in self.servers.iter() {
            let found = self.find_server(server.key);
            assert_eq!(found.map(|id| (id.index, id.generation)), Some((index, server.generation)));
            let (kept, deadline) = (!server.response.is_empty(), server.timers.has_deadline());
            let retransmits = server.timers.retransmits();
            assert!(!(retransmits && server.flow.transport.is_reliable()));
            match (server.kind, server.state) {
                (Kind::NonInvite, ServerState::Trying) => assert!(!kept && !deadline && !retransmits),
                (_, ServerState::Proceeding) => assert!(!deadline && !retransmits),
                (Kind::Invite, ServerState::Completed) => assert!(kept && deadline),
                (Kind::NonInvite, ServerState::Completed) => assert!(deadline && !retransmits),
                (Kind::Invite, ServerState::Confirmed | ServerState::Accepted) => {
                    assert!(!kept && deadline && !retransmits);
                }
                (kind, state) => unreachable!("a {kind:?} server transaction in {state:?}"),
            }
            timers = timers.saturating_add(server.timers.armed());
        }
        timers
    }
}

impl Server {
    /// What a response is to the machine; `None` for one that must not be sent now.
    fn response_event(&self, timing: &Timing, now: Timestamp, status: Status) -> Option<ServerEvent> {
        match (self.kind, status) {
            (Kind::NonInvite, Status::TRYING) => {
                //= rfc4320#4.1
                // No 100 over an unreliable transport before the client's Timer E is reset to T2.
                let waited = Duration::from_millis(u64::from(self.age_ms(now))) >= timing.until_t2();
                (waited || self.flow.transport.is_reliable()).then_some(ServerEvent::Provisional)
            }
            //= rfc4320#4.1
            // No provisional response other than 100 to a non-INVITE request.
            (Kind::NonInvite, status) if status.is_provisional() => None,
            //= rfc4320#4.2
            // No 408 to a non-INVITE request.
            (Kind::NonInvite, Status::REQUEST_TIMEOUT) => Some(ServerEvent::Suppressed),
            (_, status) if status.is_provisional() => Some(ServerEvent::Provisional),
            (_, status) if status.is_success() => Some(ServerEvent::Success),
            _ => Some(ServerEvent::Failure),
        }
    }

    /// Whether all that it can do from now on is to send again what it was answered with, and nobody is told of its end.
    fn needs_only_response(&self, state: ServerState, actions: Actions) -> bool {
        let is_last = self.kind == Kind::NonInvite && state == ServerState::Completed;
        is_last && self.user == NO_USER && actions.has(Actions::SEND | Actions::KEEP)
    }

    /// Whether its allowance is enough for so many bytes.
    fn affords(&self, bytes: usize) -> bool {
        self.allowance == UNBOUNDED || bytes.div_ceil(UNIT) <= usize::from(self.allowance)
    }

    /// Whether it waits for this and for nothing else.
    pub(crate) fn waits_for(&self, end: &WaitEnd) -> bool {
        self.generation == end.owner.generation && self.timers.is_last_until(end.at)
    }

    /// Whether its end is in the queue of last waits.
    pub(crate) fn is_queued(&self) -> bool {
        self.timers.is_queued()
    }

    /// For how many whole milliseconds it has been open.
    fn age_ms(&self, now: Timestamp) -> u32 {
        // Within the millisecond in which it was opened it is less than none.
        cut_ms(now).wrapping_sub(self.opened_ms).cast_signed().max(0).unsigned_abs()
    }

    const fn step(&self, event: ServerEvent) -> (ServerState, Actions) {
        step_server(self.kind, self.state, event, self.flow.transport.is_reliable())
    }
}

/// An allowance of so many units, or the largest that is one.
fn bounded(units: usize) -> u8 {
    u8::try_from(units).unwrap_or(UNBOUNDED).min(UNBOUNDED - 1)
}

fn to_tag<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    head.first(HeaderName::To).and_then(NameAddr::parse).and_then(|to| to.tag())
}

/// How long a transaction waits that has come to `state` by `actions`, where it has nothing else left to do.
fn last_wait(kind: Kind, state: ServerState, actions: Actions) -> Option<WaitDuration> {
    let is_last = match state {
        ServerState::Accepted | ServerState::Confirmed => true,
        ServerState::Completed => kind == Kind::NonInvite,
        _ => false,
    };
    is_last.then_some(if actions.has(Actions::ARM_T4) { WaitDuration::T4 } else { WaitDuration::Timeout })
}

/// The last 32 bits of the whole milliseconds.
fn cut_ms(at: Timestamp) -> u32 {
    u32::try_from(at.as_millis() & u64::from(u32::MAX)).unwrap_or(0)
}

pub(crate) fn part_of(key: ServerKey) -> u32 {
    let [a, b, c, d, ..] = key.0;
    u32::from_le_bytes([a, b, c, d])
}

/// The index takes the place from the lower bits, and what tells neighbours apart from the highest ones.
pub(crate) fn hash_of(key_part: u32) -> u64 {
    u64::from(key_part) << 32 | u64::from(key_part)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_server_transaction_stays_small() {
        assert!(size_of::<super::Server>() <= 128, "{}", size_of::<super::Server>());
    }
}
