//! Client transactions (RFC 3261 §17.1).

use core::net::SocketAddr;
use core::time::Duration;

use strowger_foundation::{Buf, ConnId, Flow, Timestamp, fnv1a};
use strowger_message::{HeaderName, Message, Method, Status};

use crate::client_slot::{Client, ClientSlot, OutgoingRequest};
use crate::derived;
use crate::id::ClientId;
use crate::layer::Transactions;
use crate::limits::{MAX_CLIENT, TableFull};
use crate::machine::{Actions, ClientEvent, ClientState, Kind, start_client, step_client};
use crate::outgoing_request::{list_of, list_of_connection, may_reconnect};
use crate::output::{Event, NO_USER, Output};
use crate::timer_queues::{TimerOwner, WaitDuration, WaitEnd};
use crate::timers::{TimerKind, Timers};
use crate::unanswered_index::Links;

/// Largest number of transactions that one [`Transactions::handle_unreachable`] examines, newest first. Others are
/// reported again when they retransmit.
pub const MAX_UNREACHABLE_SCAN: usize = 256;

/// Largest number of transactions that one closed connection ends at once, newest first. The others end by Timer B or
/// F.
pub const MAX_CLOSED_SCAN: usize = 65_536;

//= rfc3261#17.1.1.2:timer-d
//= rfc6026#8.4:timer-d
/// The server goes by a T1 of its own, so a shorter one of ours does not shorten Timer D on an unreliable transport.
const LEAST_TIMER_D: Duration = Duration::from_secs(32);

/// What to do with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseVerdict {
    /// Pass it to the user.
    ToUser {
        /// The user.
        user: u32,
    },
    /// A retransmission or a response to a CANCEL; not forwarded.
    Absorbed,
    /// The response matches no transaction.
    Unknown,
}

impl Transactions {
    /// Reserves the id of a transaction, to be written into its branch before the request exists.
    ///
    /// # Errors
    /// [`TableFull`] beyond [`MAX_CLIENT`], counted.
    pub fn reserve_client(&mut self) -> Result<ClientId, TableFull> {
        if self.clients.len() >= MAX_CLIENT {
            self.counters.table_full = self.counters.table_full.saturating_add(1);
            return Err(TableFull);
        }
        let generation = self.next_generation();
        let index = self.clients.insert(ClientSlot { generation, client: None });
        Ok(ClientId { index, generation })
    }

    /// Releases a reserved id; a started transaction is left alone.
    pub fn release_client(&mut self, id: ClientId) {
        if self.slot_mut(id).is_some_and(|slot| slot.client.is_none()) {
            self.clients.remove(id.index);
        }
    }

    /// Starts the transaction of a reserved id by sending `request` to `flow`. `user` is notified of its end;
    /// `u32::MAX` means nobody.
    pub fn start_client(&mut self, now: Timestamp, id: ClientId, kind: Kind, flow: Flow, request: Buf, user: u32) {
        let is_reliable = flow.transport.is_reliable();
        let reserved = self.slot_mut(id).is_some_and(|slot| slot.client.is_none());
        debug_assert!(reserved, "a client transaction starts once, from a name that was reserved");
        if !reserved {
            self.pool.recycle(request);
            return;
        }
        // A non-INVITE request is stored only for retransmission or for a change of connection.
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
        //= rfc3261#17.1.1.2:request-sent
        //= rfc3261#17.1.2.2:request-sent
        self.push_output(Output::Once { flow, buf: request });
        self.apply_client(now, id, state, actions);
    }

    /// Processes a response whose branch names `id`. Sends the ACK to a failure. Passes a retransmitted success to
    /// the user again, who forwards it.
    pub fn handle_response(&mut self, now: Timestamp, id: ClientId, response: &Message<'_>) -> ResponseVerdict {
        let Some(status) = response.status() else { return ResponseVerdict::Unknown };
        let Some(client) = self.client(id) else { return self.on_stray(response) };
        let (kind, user) = (client.kind, client.user);
        //= rfc3261#18.1.2:matched
        if client.method != method_hash(response.method()) {
            //= rfc3261#17.1.3
            // A CANCEL has the branch of the INVITE; the CSeq method distinguishes them.
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

    /// Cancels an INVITE that has had a provisional response and no final one. Returns whether it is cancelled, by
    /// this call or an earlier one. The CANCEL is a transaction without a user; if the table is full it is sent once,
    /// without a transaction.
    pub fn cancel(&mut self, now: Timestamp, invite: ClientId) -> bool {
        let Some(client) = self.client(invite) else { return false };
        //= rfc3261#9.1
        // Never CANCEL before a provisional response, after a final one, or a method other than INVITE.
        if client.kind != Kind::Invite || client.state != ClientState::Proceeding {
            return false;
        }
        let Some(sending) = self.outgoing(invite) else { return false };
        if sending.cancel.is_some() {
            return true;
        }
        //= rfc3263#4:cancel-same-server
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

    /// Changes the user that is notified of the transaction's end.
    pub fn set_client_user(&mut self, id: ClientId, user: u32) {
        if let Some(client) = self.client_mut(id) {
            client.user = user;
        }
    }

    /// Returns the user of the transaction, if it exists.
    #[must_use]
    pub fn client_user(&self, id: ClientId) -> Option<u32> {
        self.client(id).map(|client| client.user)
    }

    /// Whether the transaction has had a provisional response and no final one.
    #[must_use]
    pub fn client_has_provisional(&self, id: ClientId) -> bool {
        self.client(id).is_some_and(|client| client.state == ClientState::Proceeding)
    }

    /// Handles a report that datagrams do not reach `peer`: transactions sent there without any response fail.
    /// Examines at most [`MAX_UNREACHABLE_SCAN`].
    pub fn handle_unreachable(&mut self, now: Timestamp, peer: SocketAddr) {
        let is_lost = |flow: &Flow| flow.peer == peer && !flow.transport.is_reliable();
        self.fail_unanswered(now, peer, MAX_UNREACHABLE_SCAN, is_lost);
    }

    /// Handles a failure to connect `flow`, the end of its connection or loss of what was queued for it: transactions sent there
    /// without any response fail (RFC 3261 §17.1.4).
    pub fn handle_unconnected(&mut self, now: Timestamp, flow: &Flow) {
        self.fail_unanswered(now, list_of(flow), MAX_CLOSED_SCAN, |sent| sent == flow);
    }

    /// Handles the close of a connection with `peer`. A transaction sent over it without any response fails, or is
    /// resent once if another connection may be used. A request sent to the peer without naming a connection used
    /// this one, because there is one at a time; but over TLS there is one per name, and its ways are
    /// [reported](Self::handle_unconnected) one by one.
    pub fn handle_closed(&mut self, now: Timestamp, connection: ConnId, peer: SocketAddr) {
        let is_plain = |flow: &Flow| flow.transport.is_reliable() && !flow.transport.is_secure();
        let went_to = |flow: &Flow| is_plain(flow) && flow.connection.is_none() && flow.peer == peer;
        self.fail_unanswered(now, peer, MAX_CLOSED_SCAN, went_to);
        let list = list_of_connection(connection);
        let went_over = |flow: &Flow| flow.connection == Some(connection);
        for id in self.unanswered_of(list, MAX_CLOSED_SCAN, went_over) {
            if !self.resend_on_new_connection(id) {
                self.on_client(now, id, ClientEvent::Unreachable);
            }
        }
    }

    /// Resends a request to its peer over any connection. Returns whether that is allowed.
    ///
    /// A peer may close a connection while we write to it, without having read the request. If it has read it, or if
    /// the request used another connection in the first place, the peer sees a retransmission (RFC 3261 §17.2.3).
    fn resend_on_new_connection(&mut self, id: ClientId) -> bool {
        let Some((kind, index)) = self.client(id).map(|client| (client.kind, client.outgoing)) else { return false };
        let sending = self.outgoing.get_mut(index);
        let Some(sending) = sending.filter(|sending| may_reconnect(&sending.flow) && !sending.message.is_empty())
        else {
            return false;
        };
        let flow = Flow { reopen: false, connection: None, ..sending.flow };
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

    /// Stops retransmitting the request of `id`, which is being tried elsewhere, but keeps waiting for a response.
    pub fn stop_retransmitting(&mut self, id: ClientId) {
        let Self { clients, timer_queues: clocks, .. } = self;
        let slot = clients.get_mut(id.index).filter(|slot| slot.generation == id.generation);
        if let Some(client) = slot.and_then(|slot| slot.client.as_mut()) {
            client.timers.rearm(clocks, TimerOwner::client(id), None, Timers::stop_retransmit);
        }
    }

    /// Feeds a response to the state machine. Returns whether it goes to the user.
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
        let mut waits_from = now;
        if actions.has(Actions::ACK) {
            let to = response.head().first(HeaderName::To).unwrap_or(&[]);
            self.acknowledge(id, to);
            // Only Timer D runs now; where 64·T1 is shorter than it must be, it runs from later on.
            waits_from = now + LEAST_TIMER_D.saturating_sub(self.timing.timeout());
        }
        self.apply_client(waits_from, id, state, actions);
        actions.has(Actions::TO_USER)
    }

    /// Sends the ACK to a failure and stores it in place of the request.
    fn acknowledge(&mut self, id: ClientId, to: &[u8]) {
        let Some(sending) = self.outgoing_mut(id) else { return };
        //= rfc3263#4:same-server
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
        // On a reliable transport the transaction ends here and the ACK is never resent.
        if !flow.transport.is_reliable() {
            let kept = self.pool.copy_of(&ack);
            if let Some(sending) = self.outgoing_mut(id) {
                sending.message = kept;
            }
        }
        //= rfc3261#17.1.1.2:ack-same-way
        self.push_output(Output::Once { flow, buf: ack });
    }

    /// Handles a response that no state machine waits for. A response to a CANCEL whose INVITE has ended is still
    /// ours.
    fn on_stray(&mut self, response: &Message<'_>) -> ResponseVerdict {
        if response.method() == Method::Cancel {
            self.counters.responses_absorbed = self.counters.responses_absorbed.saturating_add(1);
            return ResponseVerdict::Absorbed;
        }
        self.counters.responses_unknown = self.counters.responses_unknown.saturating_add(1);
        ResponseVerdict::Unknown
    }

    /// Handles the timer of the transaction at `index`.
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

    /// Ends the transaction at `index` whose last wait is over, if the slot still holds that transaction.
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

    /// Performs the actions of a step, except those that need the received message.
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
                    //= rfc3261#17.1.2.2:timer-e-in-proceeding
                    // In Proceeding, Timer E is T2.
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
            //= rfc3263#4:same-server
            self.push_output(Output::ReplayClient(id));
        }
        //= rfc3261#17.1.1.2:destroyed
        //= rfc3261#17.1.2.2:destroyed
        //= rfc6026#7.2:destroyed
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
        // A CANCEL has no purpose without its INVITE, and its response could not be matched.
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

    /// Checks every client transaction. Returns the number of timers armed.
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
            // On an unreliable transport the request is retransmitted, unless it is being tried elsewhere.
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

/// Returns the duration of the last wait of a transaction that has reached `state` with `actions`, if only waiting
/// remains.
fn last_wait(state: ClientState, actions: Actions) -> Option<WaitDuration> {
    let is_last = matches!(state, ClientState::Completed | ClientState::Accepted);
    is_last.then_some(if actions.has(Actions::ARM_T4) { WaitDuration::T4 } else { WaitDuration::Timeout })
}

/// Distinguishes the transaction's method from others; nobody gains by a collision.
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
