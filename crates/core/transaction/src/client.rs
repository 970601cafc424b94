//! Client transactions (RFC 3261 §17.1).

use core::net::SocketAddr;

use strowger_foundation::{Buf, ConnId, Flow, Timestamp, fnv1a};
use strowger_message::{HeaderName, Message, Method, Status};

use crate::derived;
use crate::id::ClientId;
use crate::layer::{MAX_CLIENT, NO_USER, TableFull, Transactions};
use crate::machine::{Actions, ClientEvent, ClientState, Kind, start_client, step_client};
use crate::outgoing_request::{OutgoingRequest, list_of, list_of_connection, may_reconnect};
use crate::output::{Event, Output};
use crate::timer_queues::{TimerOwner, WaitDuration, WaitEnd};
use crate::timers::{TimerKind, Timers};
use crate::unanswered_index::Links;

/// The most transactions that one [`Transactions::handle_unreachable`] looks at, newest first. Those behind will be heard
/// of again when they retransmit.
pub const MAX_UNREACHABLE_SCAN: usize = 256;

/// The most transactions that one closed connection ends at once, newest first; those behind end by Timer B or F.
pub const MAX_CLOSED_SCAN: usize = 65_536;

/// What becomes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseVerdict {
    /// It is the user's.
    ToUser {
        /// Whose.
        user: u32,
    },
    /// It was said before, or answers a CANCEL; it goes no further.
    Absorbed,
    /// It belongs to no transaction.
    Unknown,
}

/// A slot of the table, reserved while it has no transaction.
#[derive(Debug)]
pub(crate) struct ClientSlot {
    generation: u32,
    client: Option<Client>,
}

/// What a transaction has to its end. What it needs only while it may send something is apart: most have had their answer, and
/// wait for what comes late.
#[derive(Debug)]
pub(crate) struct Client {
    timers: Timers,
    /// Its [`Sending`]; [`NIL`](crate::peers::NIL) when it has none any more.
    pub(crate) outgoing: u32,
    user: u32,
    /// A hash of the request's method.
    method: u32,
    kind: Kind,
    state: ClientState,
    is_reliable: bool,
    retransmissions: u8,
}

impl ClientSlot {
    /// Whether its transaction waits for this and for nothing else.
    pub(crate) fn waits_for(&self, end: &WaitEnd) -> bool {
        let waits = |client: &Client| client.timers.is_last_until(end.at);
        self.generation == end.owner.generation && self.client.as_ref().is_some_and(waits)
    }

    /// Whether its end is in the queue of last waits.
    pub(crate) fn is_queued(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.timers.is_queued())
    }
}

impl Client {
    pub(crate) const fn is_unanswered(&self) -> bool {
        matches!(self.state, ClientState::Calling | ClientState::Trying)
    }
}

impl Transactions {
    /// Takes a name for a transaction, to be written into its branch, before there is a request.
    ///
    /// # Errors
    /// [`TableFull`] past [`MAX_CLIENT`], counted.
    pub fn reserve_client(&mut self) -> Result<ClientId, TableFull> {
        if self.clients.len() >= MAX_CLIENT {
            self.counters.table_full = self.counters.table_full.saturating_add(1);
            return Err(TableFull);
        }
        let generation = self.next_generation();
        let index = self.clients.insert(ClientSlot { generation, client: None });
        Ok(ClientId { index, generation })
    }

    /// Gives a reserved name back; a transaction that was started is left alone.
    pub fn release_client(&mut self, id: ClientId) {
        if self.slot_mut(id).is_some_and(|slot| slot.client.is_none()) {
            self.clients.remove(id.index);
        }
    }

    /// Starts the transaction of a reserved name: `request` is sent to `flow`. `user` is told of its end; `u32::MAX` is
    /// nobody.
    pub fn start_client(&mut self, now: Timestamp, id: ClientId, kind: Kind, flow: Flow, request: Buf, user: u32) {
        let is_reliable = flow.transport.is_reliable();
        let reserved = self.slot_mut(id).is_some_and(|slot| slot.client.is_none());
        debug_assert!(reserved, "a client transaction starts once, from a name that was reserved");
        if !reserved {
            self.pool.recycle(request);
            return;
        }
        // A non-INVITE request is kept for its retransmission only, and where it may have to take another connection.
        let keep = kind == Kind::Invite || !is_reliable || may_reconnect(&flow);
        let kept = if keep { self.pool.copy_of(&request) } else { Buf::new() };
        let sending =
            self.outgoing.insert(OutgoingRequest { client: id, message: kept, flow, cancel: None, links: Links::NONE });
        let (state, actions) = start_client(kind, is_reliable);
        let method = match kind {
            Kind::Invite => method_hash(Method::Invite),
            Kind::NonInvite => fnv1a(request.split(|byte| *byte == b' ').next().unwrap_or(&[])),
        };
        let (timers, retransmissions) = (Timers::NONE, 0);
        let client = Client { timers, outgoing: sending, user, method, kind, state, is_reliable, retransmissions };
        if let Some(slot) = self.slot_mut(id) {
            slot.client = Some(client);
        }
        self.link_unanswered(sending, list_of(&flow));
        self.push_output(Output::Once { flow, buf: request });
        self.apply_client(now, id, state, actions);
    }

    /// A response came whose branch names `id`. The ACK to a failure is sent from here; a success that comes again goes
    /// to the user again, who passes it on.
    pub fn handle_response(&mut self, now: Timestamp, id: ClientId, response: &Message<'_>) -> ResponseVerdict {
        let Some(status) = response.status() else { return ResponseVerdict::Unknown };
        let Some(client) = self.client(id) else { return self.on_stray(response) };
        let (kind, user) = (client.kind, client.user);
        if client.method != method_hash(response.method()) {
            //= rfc3261#17.1.3
            // CANCEL has the branch of what it cancels; the method in CSeq tells them apart.
            let cancel = self.outgoing(id).and_then(|sending| sending.cancel);
            return match (response.method(), cancel) {
                (Method::Cancel, Some(cancel)) => {
                    self.on_response(now, cancel, Kind::NonInvite, status, response);
                    ResponseVerdict::Absorbed
                }
                _ => self.on_stray(response),
            };
        }
        if self.on_response(now, id, kind, status, response) {
            ResponseVerdict::ToUser { user }
        } else {
            self.counters.responses_absorbed = self.counters.responses_absorbed.saturating_add(1);
            ResponseVerdict::Absorbed
        }
    }

    /// Cancels an INVITE that has had a provisional response and no final one; returns whether it is cancelled, now or
    /// before. The CANCEL is a transaction of its own that tells nobody; without room for one it is sent once.
    pub fn cancel(&mut self, now: Timestamp, invite: ClientId) -> bool {
        let Some(client) = self.client(invite) else { return false };
        //= rfc3261#9.1
        // No CANCEL before a provisional response, none after a final one, and none for another method.
        if client.kind != Kind::Invite || client.state != ClientState::Proceeding {
            return false;
        }
        let Some(sending) = self.outgoing(invite) else { return false };
        if sending.cancel.is_some() {
            return true;
        }
        let (flow, length) = (sending.flow, sending.message.len());
        let mut request = self.pool.take(length);
        let Some(sending) = self.outgoing(invite) else { return false };
        if derived::write_cancel(&sending.message, &mut request).is_none() {
            self.counters.underivable = self.counters.underivable.saturating_add(1);
            self.pool.recycle(request);
            return false;
        }
        match self.reserve_client() {
            Ok(cancel) => {
                self.start_client(now, cancel, Kind::NonInvite, flow, request, NO_USER);
                if let Some(sending) = self.outgoing_mut(invite) {
                    sending.cancel = Some(cancel);
                }
            }
            Err(TableFull) => self.push_output(Output::Once { flow, buf: request }),
        }
        self.on_client(now, invite, ClientEvent::Cancelled);
        true
    }

    /// Changes who is told of the transaction's end.
    pub fn set_client_user(&mut self, id: ClientId, user: u32) {
        if let Some(client) = self.client_mut(id) {
            client.user = user;
        }
    }

    /// Whose the transaction is, while there is one.
    #[must_use]
    pub fn client_user(&self, id: ClientId) -> Option<u32> {
        self.client(id).map(|client| client.user)
    }

    /// Whether the transaction has had a provisional response and no final one.
    #[must_use]
    pub fn client_has_provisional(&self, id: ClientId) -> bool {
        self.client(id).is_some_and(|client| client.state == ClientState::Proceeding)
    }

    /// The network says that datagrams do not reach `peer`: transactions that went there and heard nothing fail. At most
    /// [`MAX_UNREACHABLE_SCAN`] are looked at.
    pub fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        let is_lost = |flow: &Flow| flow.peer == peer && !flow.transport.is_reliable();
        self.fail_unanswered(now, peer, MAX_UNREACHABLE_SCAN, is_lost);
    }

    /// No connection for `flow` could be opened, or what was to leave on one is lost with it: transactions that were sent so
    /// and heard nothing fail (RFC 3261 §17.1.4).
    pub fn handle_unconnected(&mut self, now: Timestamp, flow: &Flow) {
        self.fail_unanswered(now, list_of(flow), MAX_CLOSED_SCAN, |sent| sent == flow);
    }

    /// A connection with `peer` is closed: transactions that went over it and heard nothing fail, or are sent again, once, where
    /// another connection may take its place. One that was sent to the peer by no connection in particular went over this one,
    /// as there is one at a time.
    pub fn handle_closed(&mut self, now: Timestamp, connection: ConnId, peer: SocketAddr) {
        let went_to = |flow: &Flow| flow.transport.is_reliable() && flow.connection.is_none() && flow.peer == peer;
        self.fail_unanswered(now, peer, MAX_CLOSED_SCAN, went_to);
        let list = list_of_connection(connection);
        let went_over = |flow: &Flow| flow.connection == Some(connection);
        for id in self.unanswered_of(list, MAX_CLOSED_SCAN, went_over) {
            if !self.resend_on_new_connection(id) {
                self.on_client(now, id, ClientEvent::Unreachable);
            }
        }
    }

    /// Sends a request to its peer by whatever connection there is; whether it may be.
    ///
    /// A peer may close a connection while we write to it, and has then not read us; if it has, or if the request took another
    /// connection in the first place, this one is a retransmission to it (RFC 3261 §17.2.3).
    fn resend_on_new_connection(&mut self, id: ClientId) -> bool {
        let Some((kind, index)) = self.client(id).map(|client| (client.kind, client.outgoing)) else { return false };
        let sending = self.outgoing.get_mut(index);
        let Some(sending) = sending.filter(|sending| may_reconnect(&sending.flow) && !sending.message.is_empty())
        else {
            return false;
        };
        let Flow { listener, transport, peer, .. } = sending.flow;
        let flow = Flow::new(listener, transport, peer);
        sending.flow = flow;
        let kept = core::mem::take(&mut sending.message);
        if kind == Kind::Invite {
            sending.message = self.pool.copy_of(&kept);
        }
        self.unlink_unanswered(index);
        self.link_unanswered(index, list_of(&flow));
        self.counters.request_retransmissions = self.counters.request_retransmissions.saturating_add(1);
        self.push_output(Output::Once { flow, buf: kept });
        true
    }

    fn fail_unanswered(&mut self, now: Timestamp, list: SocketAddr, scan: usize, is_lost: impl Fn(&Flow) -> bool) {
        for id in self.unanswered_of(list, scan, is_lost) {
            self.on_client(now, id, ClientEvent::Unreachable);
        }
    }

    /// Sends the request of `id` no more, and waits on for what may still come: it is tried elsewhere.
    pub fn stop_retransmitting(&mut self, id: ClientId) {
        let Self { clients, timer_queues: clocks, .. } = self;
        let slot = clients.get_mut(id.index).filter(|slot| slot.generation == id.generation);
        if let Some(client) = slot.and_then(|slot| slot.client.as_mut()) {
            client.timers.rearm(clocks, TimerOwner::client(id), None, Timers::stop_retransmit);
        }
    }

    /// Feeds a response to its machine; returns whether it is the user's.
    fn on_response(
        &mut self,
        now: Timestamp,
        id: ClientId,
        kind: Kind,
        status: Status,
        response: &Message<'_>,
    ) -> bool {
        let event = match status {
            status if status.is_provisional() => ClientEvent::Provisional,
            status if status.is_success() => ClientEvent::Success,
            _ => ClientEvent::Failure,
        };
        let Some((state, actions)) = self.step_client(id, event) else { return false };
        debug_assert!(kind == Kind::Invite || !actions.has(Actions::ACK));
        if actions.has(Actions::ACK) {
            let to = response.head().first(HeaderName::To).unwrap_or(&[]);
            self.acknowledge(id, to);
        }
        self.apply_client(now, id, state, actions);
        actions.has(Actions::TO_USER)
    }

    /// Sends the ACK to a failure and keeps it in the place of the request.
    fn acknowledge(&mut self, id: ClientId, to: &[u8]) {
        let Some(sending) = self.outgoing_mut(id) else { return };
        let flow = sending.flow;
        let invite = core::mem::take(&mut sending.message);
        let mut ack = self.pool.take(invite.len().min(512));
        let written = derived::write_ack(&invite, to, &mut ack);
        self.pool.recycle(invite);
        if written.is_none() {
            self.counters.underivable = self.counters.underivable.saturating_add(1);
            self.pool.recycle(ack);
            return;
        }
        // A reliable transport ends the transaction here, and the ACK is never sent again.
        if !flow.transport.is_reliable() {
            let kept = self.pool.copy_of(&ack);
            if let Some(sending) = self.outgoing_mut(id) {
                sending.message = kept;
            }
        }
        self.push_output(Output::Once { flow, buf: ack });
    }

    /// A response that no machine waits for. One to a CANCEL is ours all the same, whose INVITE has ended before.
    fn on_stray(&mut self, response: &Message<'_>) -> ResponseVerdict {
        if response.method() == Method::Cancel {
            self.counters.responses_absorbed = self.counters.responses_absorbed.saturating_add(1);
            return ResponseVerdict::Absorbed;
        }
        self.counters.responses_unknown = self.counters.responses_unknown.saturating_add(1);
        ResponseVerdict::Unknown
    }

    /// The timer of the transaction at `index` has fired.
    pub(crate) fn on_client_timer(&mut self, now: Timestamp, index: u32) {
        let Some(slot) = self.clients.get_mut(index) else { return };
        let id = ClientId { index, generation: slot.generation };
        let Some(client) = &mut slot.client else { return };
        let event = match client.timers.on_fired() {
            TimerKind::Retransmit => ClientEvent::Retransmit,
            TimerKind::Deadline => ClientEvent::Deadline,
        };
        self.on_client(now, id, event);
    }

    /// A last wait of the transaction at `index` is over, where it is still that transaction. That is its end, and all.
    pub(crate) fn on_client_wait_end(&mut self, now: Timestamp, index: u32, end: &WaitEnd) {
        let Some(slot) = self.clients.get(index).filter(|slot| slot.waits_for(end)) else { return };
        let id = ClientId { index, generation: slot.generation };
        debug_assert_eq!(self.step_client(id, ClientEvent::Deadline), Some((ClientState::Terminated, Actions::NONE)));
        self.end_client(now, id, Actions::NONE);
    }

    fn on_client(&mut self, now: Timestamp, id: ClientId, event: ClientEvent) {
        if let Some((state, actions)) = self.step_client(id, event) {
            self.apply_client(now, id, state, actions);
        }
    }

    fn step_client(&self, id: ClientId, event: ClientEvent) -> Option<(ClientState, Actions)> {
        let client = self.client(id)?;
        Some(step_client(client.kind, client.state, event, client.is_reliable))
    }

    /// Does what a step asked for, but for what needs the message that came.
    fn apply_client(&mut self, now: Timestamp, id: ClientId, state: ClientState, actions: Actions) {
        let Self { timing, clients, timer_queues: clocks, .. } = self;
        let slot = clients.get_mut(id.index).filter(|slot| slot.generation == id.generation);
        let Some(client) = slot.and_then(|slot| slot.client.as_mut()) else { return };
        debug_assert!(client.state != ClientState::Terminated);
        let was_unanswered = client.is_unanswered();
        client.state = state;
        let is_heard = was_unanswered && !client.is_unanswered();
        let sending = client.outgoing;
        let last = last_wait(state, actions);
        let retransmissions = &mut client.retransmissions;
        client.timers.rearm(clocks, TimerOwner::client(id), last, |timers| {
            if actions.has(Actions::STOP_RETRANSMIT) {
                timers.stop_retransmit();
            }
            if actions.has(Actions::STOP_DEADLINE) {
                timers.stop_deadline();
            }
            if actions.has(Actions::ARM_TIMEOUT) {
                timers.end_at(now + timing.timeout());
            }
            if actions.has(Actions::ARM_T4) {
                timers.end_at(now + timing.t4);
            }
            if actions.has(Actions::ARM_RETRANSMIT) {
                let interval = match (client.kind, client.state) {
                    (Kind::Invite, _) => timing.doubling(*retransmissions),
                    //= rfc3261#17.1.2.2
                    // In Proceeding Timer E is T2.
                    (Kind::NonInvite, ClientState::Proceeding) => timing.t2,
                    (Kind::NonInvite, _) => timing.doubling_to_t2(*retransmissions),
                };
                *retransmissions = retransmissions.saturating_add(1);
                timers.retransmit_at(now + interval);
            }
        });
        if is_heard {
            self.unlink_unanswered(sending);
        }
        if actions.has(Actions::RELEASE) {
            self.release_outgoing(id, sending);
        }
        if actions.has(Actions::REPLAY) && self.outgoing(id).is_some_and(|sending| !sending.message.is_empty()) {
            self.counters.request_retransmissions = self.counters.request_retransmissions.saturating_add(1);
            self.push_output(Output::ReplayClient(id));
        }
        if state == ClientState::Terminated {
            self.end_client(now, id, actions);
        }
    }

    fn end_client(&mut self, now: Timestamp, id: ClientId, actions: Actions) {
        if self.client(id).is_none() {
            return;
        }
        let Some(mut client) = self.clients.remove(id.index).and_then(|slot| slot.client) else { return };
        client.timers.disarm(&mut self.timer_queues);
        let sending = self.outgoing.remove(client.outgoing);
        let cancel = sending.and_then(|sending| {
            self.pool.recycle(sending.message);
            sending.cancel
        });
        let user = client.user;
        let event = if actions.has(Actions::TIMED_OUT) {
            self.counters.client_timeouts = self.counters.client_timeouts.saturating_add(1);
            Event::ClientTimeout { user, id }
        } else if actions.has(Actions::FAILED) {
            self.counters.client_failures = self.counters.client_failures.saturating_add(1);
            Event::ClientFailed { user, id }
        } else {
            Event::ClientEnded { user, id }
        };
        if user != NO_USER {
            self.events.push_back(event);
        }
        // A CANCEL has no purpose without its INVITE, and its response could no longer be matched.
        if let Some(cancel) = cancel {
            self.abandon(now, cancel);
        }
    }

    fn abandon(&mut self, now: Timestamp, cancel: ClientId) {
        let Some((is_unanswered, sending)) =
            self.client(cancel).map(|client| (client.is_unanswered(), client.outgoing))
        else {
            return;
        };
        if is_unanswered {
            self.unlink_unanswered(sending);
        }
        self.end_client(now, cancel, Actions::NONE);
    }

    fn slot_mut(&mut self, id: ClientId) -> Option<&mut ClientSlot> {
        self.clients.get_mut(id.index).filter(|slot| slot.generation == id.generation)
    }

    pub(crate) fn client(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(id.index).filter(|slot| slot.generation == id.generation)?.client.as_ref()
    }

    pub(crate) fn client_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.slot_mut(id)?.client.as_mut()
    }

    /// Checks every client transaction; returns how many timers they have armed.
    pub(crate) fn check_clients(&self) -> usize {
        let (mut timers, mut unanswered, mut senders) = (0usize, 0usize, 0usize);
        for (_, slot) in self.clients.iter() {
            let Some(client) = &slot.client else { continue };
            let sends = self.outgoing.get(client.outgoing);
            senders = senders.saturating_add(usize::from(sends.is_some()));
            let kept = sends.is_some_and(|sending| !sending.message.is_empty());
            let deadline = client.timers.has_deadline();
            let retransmits = client.timers.retransmits();
            let reliable = client.is_reliable;
            assert!(sends.is_none_or(|sending| sending.flow.transport.is_reliable() == reliable));
            assert!(sends.is_none_or(|sending| sending.client.generation == slot.generation));
            // Where datagrams may be lost the request is sent again, but for one that is tried elsewhere.
            assert!(!(retransmits && reliable));
            match (client.kind, client.state) {
                (Kind::Invite, ClientState::Calling) => assert!(kept && deadline),
                (Kind::Invite, ClientState::Proceeding) => assert!(kept && !retransmits),
                (Kind::Invite, ClientState::Completed) => assert!(deadline && !retransmits),
                (Kind::NonInvite, ClientState::Trying | ClientState::Proceeding) => {
                    let moves = sends.is_some_and(|sending| may_reconnect(&sending.flow));
                    assert!(deadline && kept == (!reliable || moves));
                }
                (Kind::Invite, ClientState::Accepted) | (Kind::NonInvite, ClientState::Completed) => {
                    assert!(!kept && deadline && !retransmits);
                    assert!(sends.is_none_or(|sending| sending.cancel.is_some()), "nothing is sent any more");
                }
                (kind, state) => unreachable!("a {kind:?} client transaction in {state:?}"),
            }
            unanswered = unanswered.saturating_add(usize::from(client.is_unanswered()));
            timers = timers.saturating_add(client.timers.armed());
        }
        assert_eq!(self.outgoing.len(), senders, "what is sent is a transaction's");
        assert_eq!(self.count_listed(), unanswered, "the lists hold exactly those that heard nothing");
        timers
    }
}

/// How long a transaction waits that has come to `state` by `actions`, where it has nothing else left to do.
fn last_wait(state: ClientState, actions: Actions) -> Option<WaitDuration> {
    let is_last = matches!(state, ClientState::Completed | ClientState::Accepted);
    is_last.then_some(if actions.has(Actions::ARM_T4) { WaitDuration::T4 } else { WaitDuration::Timeout })
}

/// Tells a transaction's own method from another; nobody gains by a collision with it.
fn method_hash(method: Method<'_>) -> u32 {
    const INVITE: u32 = fnv1a(b"INVITE");
    if matches!(method, Method::Invite) { INVITE } else { fnv1a(method.as_bytes()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_client_transaction_stays_small() {
        assert!(size_of::<super::ClientSlot>() <= 48, "{}", size_of::<super::ClientSlot>());
    }
}
