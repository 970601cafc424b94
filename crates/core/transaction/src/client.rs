//! Client transactions (RFC 3261 §17.1).

use core::net::{Ipv6Addr, SocketAddr};

use smallvec::SmallVec;
use strowger_foundation::{Buf, ConnId, Flow, Timestamp};
use strowger_message::{HeaderName, Message, Method, Status};

use crate::derived;
use crate::id::ClientId;
use crate::layer::{MAX_CLIENT, NO_USER, TableFull, Timer, Transactions, make_room};
use crate::machine::{Actions, ClientEvent, ClientState, Kind, start_client, step_client};
use crate::output::{Event, Output};
use crate::peers::{Links, NIL};
use crate::timers::{Over, Timers};

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

#[derive(Debug)]
pub(crate) struct Client {
    /// The request while it may be needed; after a failure the ACK.
    pub(crate) kept: Buf,
    pub(crate) flow: Flow,
    timers: Timers,
    /// An INVITE's CANCEL.
    cancel: Option<ClientId>,
    links: Links,
    user: u32,
    /// A hash of the request's method.
    method: u32,
    kind: Kind,
    state: ClientState,
    retransmissions: u8,
}

impl Client {
    const fn is_unanswered(&self) -> bool {
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
        make_room(&mut self.clients);
        let index = self.clients.insert(ClientSlot { generation, client: None });
        Ok(ClientId { index: u32::try_from(index).unwrap_or(NIL), generation })
    }

    /// Gives a reserved name back; a transaction that was started is left alone.
    pub fn release_client(&mut self, id: ClientId) {
        if self.slot_mut(id).is_some_and(|slot| slot.client.is_none()) {
            self.clients.remove(id.index as usize);
        }
    }

    /// Starts the transaction of a reserved name: `request` is sent to `flow`. `user` is told of its end; `u32::MAX` is
    /// nobody.
    pub fn start_client(&mut self, now: Timestamp, id: ClientId, kind: Kind, flow: Flow, request: Buf, user: u32) {
        let reliable = flow.transport.is_reliable();
        let reserved = self.slot_mut(id).is_some_and(|slot| slot.client.is_none());
        debug_assert!(reserved, "a client transaction starts once, from a name that was reserved");
        if !reserved {
            self.pool.give(request);
            return;
        }
        // A non-INVITE request is kept for its retransmission only, and where it may have to take another connection.
        let keep = kind == Kind::Invite || !reliable || may_move(&flow);
        let kept = if keep { self.pool.copy_of(&request) } else { Buf::new() };
        let (state, actions) = start_client(kind, reliable);
        let method = method_hash(request.split(|byte| *byte == b' ').next().unwrap_or(&[]));
        let (timers, links) = (Timers::NONE, Links::NONE);
        let client = Client { kept, flow, timers, cancel: None, links, user, method, kind, state, retransmissions: 0 };
        if let Some(slot) = self.slot_mut(id) {
            slot.client = Some(client);
        }
        self.link_unanswered(id, list_of(&flow));
        self.push_output(Output::Once { flow, buf: request });
        self.apply_client(now, id, state, actions);
    }

    /// A response came whose branch names `id`. The ACK to a failure is sent from here; a success that comes again goes
    /// to the user again, who passes it on.
    pub fn handle_response(&mut self, now: Timestamp, id: ClientId, response: &Message<'_>) -> ResponseVerdict {
        let Some(status) = response.status() else { return ResponseVerdict::Unknown };
        let Some(client) = self.client(id) else { return self.on_stray(response) };
        let (kind, user) = (client.kind, client.user);
        if client.method != method_hash(response.method().as_bytes()) {
            //= rfc3261#17.1.3
            // CANCEL has the branch of what it cancels; the method in CSeq tells them apart.
            return match (response.method(), client.cancel) {
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
        if client.cancel.is_some() {
            return true;
        }
        let (flow, length) = (client.flow, client.kept.len());
        let mut request = self.pool.take(length);
        let Some(client) = self.client(invite) else { return false };
        if derived::write_cancel(&client.kept, &mut request).is_none() {
            self.counters.underivable = self.counters.underivable.saturating_add(1);
            self.pool.give(request);
            return false;
        }
        match self.reserve_client() {
            Ok(cancel) => {
                self.start_client(now, cancel, Kind::NonInvite, flow, request, NO_USER);
                if let Some(client) = self.client_mut(invite) {
                    client.cancel = Some(cancel);
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
            if !self.move_to_another(id) {
                self.on_client(now, id, ClientEvent::Unreachable);
            }
        }
    }

    /// Sends a request to its peer by whatever connection there is; whether it may be.
    ///
    /// A peer may close a connection while we write to it, and has then not read us; if it has, or if the request took another
    /// connection in the first place, this one is a retransmission to it (RFC 3261 §17.2.3).
    fn move_to_another(&mut self, id: ClientId) -> bool {
        let Some(client) = self.client(id).filter(|client| may_move(&client.flow) && !client.kept.is_empty()) else {
            return false;
        };
        let Flow { listener, transport, peer, .. } = client.flow;
        let flow = Flow::new(listener, transport, peer);
        self.unlink_unanswered(id);
        let Some(client) = self.client_mut(id) else { return false };
        client.flow = flow;
        let (kind, kept) = (client.kind, core::mem::take(&mut client.kept));
        if kind == Kind::Invite {
            let copy = self.pool.copy_of(&kept);
            if let Some(client) = self.client_mut(id) {
                client.kept = copy;
            }
        }
        self.link_unanswered(id, list_of(&flow));
        self.counters.request_retransmissions = self.counters.request_retransmissions.saturating_add(1);
        self.push_output(Output::Once { flow, buf: kept });
        true
    }

    fn fail_unanswered(&mut self, now: Timestamp, list: SocketAddr, scan: usize, is_lost: impl Fn(&Flow) -> bool) {
        for id in self.unanswered_of(list, scan, is_lost) {
            self.on_client(now, id, ClientEvent::Unreachable);
        }
    }

    fn unanswered_of(
        &self,
        list: SocketAddr,
        scan: usize,
        is_lost: impl Fn(&Flow) -> bool,
    ) -> SmallVec<[ClientId; 16]> {
        let mut failed: SmallVec<[ClientId; 16]> = SmallVec::new();
        let mut index = self.unanswered.head(self.unanswered.list_of(list));
        for _ in 0..scan {
            let Some(slot) = self.clients.get(index as usize) else { break };
            let Some(client) = &slot.client else { break };
            if is_lost(&client.flow) {
                failed.push(ClientId { index, generation: slot.generation });
            }
            index = client.links.next;
        }
        failed
    }

    /// Sends the request of `id` no more, and waits on for what may still come: it is tried elsewhere.
    pub fn stop_retransmitting(&mut self, id: ClientId) {
        let Self { clients, wheel, .. } = self;
        let slot = clients.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation);
        if let Some(client) = slot.and_then(|slot| slot.client.as_mut()) {
            client.timers.change(wheel, Timer::Client(id), Timers::stop_retransmit);
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
        let Some(client) = self.client_mut(id) else { return };
        let flow = client.flow;
        let invite = core::mem::take(&mut client.kept);
        let mut ack = self.pool.take(invite.len().min(512));
        let written = derived::write_ack(&invite, to, &mut ack);
        self.pool.give(invite);
        if written.is_none() {
            self.counters.underivable = self.counters.underivable.saturating_add(1);
            self.pool.give(ack);
            return;
        }
        // A reliable transport ends the transaction here, and the ACK is never sent again.
        if !flow.transport.is_reliable() {
            let kept = self.pool.copy_of(&ack);
            if let Some(client) = self.client_mut(id) {
                client.kept = kept;
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

    pub(crate) fn on_client_timer(&mut self, now: Timestamp, id: ClientId) {
        let Some(client) = self.client_mut(id) else { return };
        let event = match client.timers.on_fired() {
            Over::Retransmit => ClientEvent::Retransmit,
            Over::Deadline => ClientEvent::Deadline,
        };
        self.on_client(now, id, event);
    }

    fn on_client(&mut self, now: Timestamp, id: ClientId, event: ClientEvent) {
        if let Some((state, actions)) = self.step_client(id, event) {
            self.apply_client(now, id, state, actions);
        }
    }

    fn step_client(&self, id: ClientId, event: ClientEvent) -> Option<(ClientState, Actions)> {
        let client = self.client(id)?;
        Some(step_client(client.kind, client.state, event, client.flow.transport.is_reliable()))
    }

    /// Does what a step asked for, but for what needs the message that came.
    fn apply_client(&mut self, now: Timestamp, id: ClientId, state: ClientState, actions: Actions) {
        let Self { timing, clients, wheel, pool, .. } = self;
        let slot = clients.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation);
        let Some(client) = slot.and_then(|slot| slot.client.as_mut()) else { return };
        debug_assert!(client.state != ClientState::Terminated);
        let was_unanswered = client.is_unanswered();
        client.state = state;
        let is_heard = was_unanswered && !client.is_unanswered();
        let replays = actions.has(Actions::REPLAY) && !client.kept.is_empty();
        let retransmissions = &mut client.retransmissions;
        client.timers.change(wheel, Timer::Client(id), |timers| {
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
        if actions.has(Actions::RELEASE) {
            pool.give(core::mem::take(&mut client.kept));
        }
        if is_heard {
            self.unlink_unanswered(id);
        }
        if replays {
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
        let Some(mut client) = self.clients.remove(id.index as usize).client else { return };
        client.timers.disarm(&mut self.wheel);
        self.pool.give(client.kept);
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
        if let Some(cancel) = client.cancel {
            self.abandon(now, cancel);
        }
    }

    fn abandon(&mut self, now: Timestamp, cancel: ClientId) {
        if self.client(cancel).is_none() {
            return;
        }
        if self.client(cancel).is_some_and(Client::is_unanswered) {
            self.unlink_unanswered(cancel);
        }
        self.end_client(now, cancel, Actions::NONE);
    }

    fn link_unanswered(&mut self, id: ClientId, peer: SocketAddr) {
        let list = self.unanswered.list_of(peer);
        let next = self.unanswered.set_head(list, id.index);
        if let Some(client) = self.client_at(next) {
            client.links.prev = id.index;
        }
        if let Some(client) = self.client_at(id.index) {
            client.links = Links { prev: NIL, next, list };
        }
    }

    fn unlink_unanswered(&mut self, id: ClientId) {
        let Some(client) = self.client_at(id.index) else { return };
        let Links { prev, next, list } = core::mem::replace(&mut client.links, Links::NONE);
        match self.client_at(prev) {
            Some(before) => before.links.next = next,
            None => {
                self.unanswered.set_head(list, next);
            }
        }
        if let Some(after) = self.client_at(next) {
            after.links.prev = prev;
        }
    }

    fn client_at(&mut self, index: u32) -> Option<&mut Client> {
        self.clients.get_mut(index as usize)?.client.as_mut()
    }

    fn slot_mut(&mut self, id: ClientId) -> Option<&mut ClientSlot> {
        self.clients.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)
    }

    pub(crate) fn client(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(id.index as usize).filter(|slot| slot.generation == id.generation)?.client.as_ref()
    }

    fn client_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.slot_mut(id)?.client.as_mut()
    }

    /// Checks every client transaction; returns how many timers they have armed.
    pub(crate) fn check_clients(&self) -> usize {
        let (mut timers, mut unanswered) = (0usize, 0usize);
        for (_, slot) in &self.clients {
            let Some(client) = &slot.client else { continue };
            let (kept, deadline) = (!client.kept.is_empty(), client.timers.has_deadline());
            let retransmits = client.timers.retransmits();
            let reliable = client.flow.transport.is_reliable();
            // Where datagrams may be lost the request is sent again, but for one that is tried elsewhere.
            assert!(!(retransmits && reliable));
            match (client.kind, client.state) {
                (Kind::Invite, ClientState::Calling) => assert!(kept && deadline),
                (Kind::Invite, ClientState::Proceeding) => assert!(kept && !retransmits),
                (Kind::Invite, ClientState::Completed) => assert!(deadline && !retransmits),
                (Kind::NonInvite, ClientState::Trying | ClientState::Proceeding) => {
                    assert!(deadline && kept == (!reliable || may_move(&client.flow)));
                }
                (Kind::Invite, ClientState::Accepted) | (Kind::NonInvite, ClientState::Completed) => {
                    assert!(!kept && deadline && !retransmits);
                }
                (kind, state) => unreachable!("a {kind:?} client transaction in {state:?}"),
            }
            unanswered = unanswered.saturating_add(usize::from(client.is_unanswered()));
            timers = timers.saturating_add(client.timers.armed());
        }
        assert_eq!(self.count_listed(), unanswered, "the lists hold exactly those that heard nothing");
        timers
    }

    /// How many transactions the lists by peer hold, each found where its flow says and linked both ways.
    fn count_listed(&self) -> usize {
        let mut listed = 0usize;
        for head in self.unanswered.heads() {
            let (mut index, mut prev) = (head, NIL);
            while let Some(client) = self.clients.get(index as usize).and_then(|slot| slot.client.as_ref()) {
                assert!(client.is_unanswered() && client.links.prev == prev);
                assert_eq!(self.unanswered.list_of(list_of(&client.flow)), client.links.list);
                assert_eq!(self.unanswered.head(client.links.list), head);
                listed = listed.saturating_add(1);
                (prev, index) = (index, client.links.next);
            }
        }
        listed
    }
}

/// Whether what was sent over `flow` may take another connection when that one is closed.
const fn may_move(flow: &Flow) -> bool {
    flow.reopen && flow.connection.is_some()
}

/// The list that a transaction over `flow` stands in while it is unanswered: its connection's, which may lead to another
/// port than the one that is connected to once it is closed, else its peer's.
fn list_of(flow: &Flow) -> SocketAddr {
    flow.connection.map_or(flow.peer, list_of_connection)
}

/// A connection's list, named so that it is no peer's.
fn list_of_connection(connection: ConnId) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::from(u128::from(connection.to_bits())), 0))
}

/// FNV-1a: tells a transaction's own method from another; nobody gains by a collision with it.
fn method_hash(method: &[u8]) -> u32 {
    method.iter().fold(0x811C_9DC5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_client_transaction_stays_small() {
        assert!(size_of::<super::ClientSlot>() <= 160, "{}", size_of::<super::ClientSlot>());
    }
}
