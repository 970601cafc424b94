//! Server transactions (RFC 3261 §17.2).

use core::time::Duration;

use strowger_foundation::{Buf, Flow, Timestamp, Transport};
use strowger_message::{Head, HeaderName, NameAddr, OwnFields, Status};

use crate::id::ServerId;
use crate::key::{RequestFingerprint, ServerKey};
use crate::layer::Transactions;
use crate::limits::{MAX_SERVER, TableFull};
use crate::machine::{Actions, Kind, ServerEvent, ServerState, start_server};
use crate::output::{Event, NO_USER, Output};
use crate::response_cache::{CachedResponse, NewResponse, ResponseCache};
use crate::server_slot::{IndexEntry, Server, UNBOUNDED, UNIT, bounded, cut_ms, hash_of, part_of};
use crate::timer_queues::{TimerOwner, WaitDuration, WaitEnd};
use crate::timers::{TimerKind, Timers};

/// Added before truncation to round up to whole milliseconds.
const NEARLY_A_MILLISECOND: Duration = Duration::from_nanos(999_999);

/// What to do with an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckVerdict {
    /// It acknowledges our failure and is not forwarded.
    Absorbed,
    /// A retransmission, or an ACK before the response; ignored.
    Ignored,
    /// It acknowledges a success or nothing known: the user routes it.
    ToUser,
}

impl Transactions {
    /// Returns the transaction of `key`. If only its cached response is left, the id serves for retransmissions only.
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

    /// Opens a transaction for a request that matches none; its responses go to `flow`. `user` is notified of its
    /// end; `u32::MAX` means nobody. If the key exists, returns its transaction unchanged.
    ///
    /// # Errors
    /// [`TableFull`] beyond [`MAX_SERVER`], counted.
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

    /// Changes the user that is notified of the transaction's end.
    pub fn set_server_user(&mut self, id: ServerId, user: u32) {
        if let Some(server) = self.server_mut(id) {
            server.user = user;
        }
    }

    //= rfc3261#26.3.2.4
    /// Limits the bytes that the transaction sends: a 100, the first final response, and its retransmissions by Timer
    /// G and for retransmitted requests, until `bytes` are used up. An INVITE with a forged source address must not
    /// draw many responses to it.
    pub fn bound_retransmissions(&mut self, id: ServerId, bytes: usize) {
        if let Some(server) = self.server_mut(id) {
            server.allowance = bounded(bytes / UNIT);
        }
    }

    /// Raises the [limit](Self::bound_retransmissions), if there is one, by the bytes of a retransmission received.
    pub fn allow_bytes(&mut self, id: ServerId, bytes: usize) {
        if let Some(server) = self.server_mut(id).filter(|server| server.allowance != UNBOUNDED) {
            server.allowance = bounded(usize::from(server.allowance).saturating_add(bytes / UNIT));
        }
    }

    /// Returns the user that is notified of the transaction's end: `u32::MAX` means nobody, `None` that there is no
    /// such transaction.
    #[must_use]
    pub fn server_user(&self, id: ServerId) -> Option<u32> {
        self.server(id).map(|server| server.user)
    }

    /// Returns the transaction at `index` if it is `user`'s; for users that identify transactions by index.
    #[must_use]
    pub fn server_of(&self, index: u32, user: u32) -> Option<ServerId> {
        let server = self.servers.get(index).filter(|server| server.user == user)?;
        Some(ServerId { index, generation: server.generation })
    }

    /// Returns the state of a transaction that has not ended.
    #[must_use]
    pub fn server_state(&self, id: ServerId) -> Option<ServerState> {
        self.server(id).map(|server| server.state)
    }

    /// Returns the key of the transaction.
    #[must_use]
    pub fn server_key(&self, id: ServerId) -> Option<ServerKey> {
        self.server(id).map(|server| server.key)
    }

    /// Returns the flow for the transaction's responses.
    #[must_use]
    pub fn server_flow(&self, id: ServerId) -> Option<Flow> {
        self.server(id).map(|server| server.flow)
    }

    /// Redirects further and retransmitted responses to `flow`, if both flows are datagram flows: a retransmission
    /// has arrived through another server that stands in for the previous one.
    pub fn redirect_responses(&mut self, id: ServerId, flow: Flow) {
        let is_datagram = |flow: &Flow| flow.transport == Transport::Udp;
        if let Some(server) = self.server_mut(id).filter(|server| is_datagram(&server.flow) && is_datagram(&flow)) {
            server.flow = flow;
        }
    }

    /// Returns what is stored of the server's own response, if that is all that is left of `id`, with the fingerprint
    /// of its request. A retransmission of the request is answered with
    /// [`resend_own_response`](Self::resend_own_response).
    #[must_use]
    pub fn cached_own_response(&self, id: ServerId) -> Option<(RequestFingerprint, &[u8])> {
        match self.response_cache.response_at(id.index)? {
            CachedResponse::Own(request, own) => Some((request, own)),
            CachedResponse::Whole(..) => None,
        }
    }

    //= rfc3261#17.2.2:final-again
    /// Sends the rebuilt [own response](Self::cached_own_response) to `flow` after a retransmission.
    pub fn resend_own_response(&mut self, flow: Flow, response: Buf) {
        //= rfc3261#17.2.2
        // As in `handle_retransmission`.
        self.counters.requests_repeated = self.counters.requests_repeated.saturating_add(1);
        self.counters.response_retransmissions = self.counters.response_retransmissions.saturating_add(1);
        self.push_output(Output::Once { flow, buf: response });
    }

    /// Handles a retransmission of the transaction's request: resends the last response if the state requires it. The
    /// server's [own cached response](Self::cached_own_response) is resent by
    /// [`resend_own_response`](Self::resend_own_response) instead.
    pub fn handle_retransmission(&mut self, now: Timestamp, id: ServerId) {
        self.counters.requests_repeated = self.counters.requests_repeated.saturating_add(1);
        if ResponseCache::is_place(id.index) {
            debug_assert!(self.cached_own_response(id).is_none(), "it has to be made again");
            //= rfc3261#17.2.2
            // While in the "Completed" state, the server transaction MUST pass the final response to the transport
            // layer for retransmission whenever a retransmission of the request is received.
            self.counters.response_retransmissions = self.counters.response_retransmissions.saturating_add(1);
            //= rfc3261#17.2.2:final-again
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

    /// Handles an ACK that matches the transaction.
    pub fn handle_ack(&mut self, now: Timestamp, id: ServerId) -> AckVerdict {
        //= rfc6026#7.1:ack-to-user
        // An ACK in Accepted is never absorbed.
        match self.on_server(now, id, ServerEvent::Ack) {
            None => AckVerdict::ToUser,
            Some(actions) if actions.has(Actions::TO_USER) => AckVerdict::ToUser,
            Some(Actions::NONE) => AckVerdict::Ignored,
            Some(_) => AckVerdict::Absorbed,
        }
    }

    /// Whether the To tag of the ACK `head` is that of the failure that the transaction sent, as RFC 2543 matching
    /// requires in addition to the key. True if no failure is stored.
    #[must_use]
    pub fn ack_matches(&self, id: ServerId, head: &Head<'_>) -> bool {
        let Some(server) = self.server(id) else { return false };
        //= rfc6026#7.1:old-ack
        if server.state != ServerState::Completed {
            return true;
        }
        //= rfc3261#17.2.3
        // Without an RFC 3261 branch, the ACK's To tag must equal that of the response sent.
        Head::scan(&server.response).is_ok_and(|response| to_tag(&response) == to_tag(head))
    }

    /// Sends the user's response. The final one of a non-INVITE transaction without a user ends `id`: on an
    /// unreliable transport only the response stays, found by its key.
    ///
    /// A response that the state or RFC 4320 does not allow is dropped and counted. For a non-INVITE request these
    /// are any provisional response but 100, a 100 on an unreliable transport before the client has reached T2, and
    /// 408, which also ends the wait for a response.
    pub fn respond(&mut self, now: Timestamp, id: ServerId, status: Status, response: Buf) {
        self.respond_with(now, id, status, response, None);
    }

    /// Like [`respond`](Self::respond), for the server's own response to `request`. If only the response stays, just
    /// the [parts](Self::cached_own_response) given by `own` are stored.
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
            //= rfc3261#17.2.2:other-finals
            //= rfc4320#4.2:no-stray
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
        // Other provisional responses and successes come from the called party.
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

    /// Reduces a transaction to its cached response until Timer J; `false` if it cannot be cached.
    fn cache_response(
        &mut self,
        now: Timestamp,
        id: ServerId,
        response: &[u8],
        own: Option<(OwnFields, RequestFingerprint)>,
    ) -> bool {
        let Self { timing, servers, index, response_cache: answered, timer_queues: clocks, pool, .. } = self;
        let Some(server) = servers.get(id.index) else { return false };
        //= rfc3261#17.2.2:timer-j
        let until = now + timing.timeout();
        let given = match own {
            Some((own, request)) => NewResponse::Own(request, own.slices(response)),
            None => NewResponse::Whole(&server.flow, response),
        };
        let Some(place) = answered.insert(server.key, until, given) else { return false };
        //= rfc3261#17.2.2
        // It stays until Timer J, so that a retransmission finds the response.
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

    //= rfc3261#17.2.2:timer-j-ends
    /// Removes the next cached response whose Timer J has fired.
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

    /// Handles the timer of the transaction at `index`.
    pub(crate) fn on_server_timer(&mut self, now: Timestamp, index: u32) {
        let Some(server) = self.servers.get_mut(index) else { return };
        let id = ServerId { index, generation: server.generation };
        let event = match server.timers.on_fired() {
            TimerKind::Retransmit if !server.affords(server.response.len()) => {
                // Timer G is not restarted; Timer H keeps running.
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

    /// Deducts what is sent from the allowance.
    fn charge(&mut self, id: ServerId, bytes: usize) {
        if let Some(server) = self.server_mut(id).filter(|server| server.allowance != UNBOUNDED) {
            server.allowance = server.allowance.saturating_sub(bounded(bytes.div_ceil(UNIT)));
        }
    }

    /// Ends the transaction at `index` whose last wait is over, if the slot still holds that transaction.
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

    /// Performs the actions of a step, except sending and storing the user's response.
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
        //= rfc3261#17.2.1:destroyed
        //= rfc3261#17.2.2:destroyed
        //= rfc6026#7.1:destroyed
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

    /// Visits the key of each server transaction, those of which only the response is left included.
    pub fn for_each_server_key(&self, mut visit: impl FnMut(ServerKey)) {
        self.index.iter().filter_map(|place| self.key_at(place.index)).for_each(&mut visit);
    }

    /// Checks every server transaction. Returns the number of timers armed.
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

fn to_tag<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    head.first(HeaderName::To).and_then(NameAddr::parse).and_then(|to| to.tag())
}

/// Returns the duration of the last wait of a transaction that has reached `state` with `actions`, if only waiting
/// remains.
fn last_wait(kind: Kind, state: ServerState, actions: Actions) -> Option<WaitDuration> {
    let is_last = match state {
        ServerState::Accepted | ServerState::Confirmed => true,
        ServerState::Completed => kind == Kind::NonInvite,
        _ => false,
    };
    is_last.then_some(if actions.has(Actions::ARM_T4) { WaitDuration::T4 } else { WaitDuration::Timeout })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_server_transaction_stays_small() {
        assert!(size_of::<super::Server>() <= 128, "{}", size_of::<super::Server>());
    }
}
