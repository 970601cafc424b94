//! Outgoing requests of client transactions, stored apart from the transactions: most have their response and only
//! wait for retransmissions, which needs little memory.

use core::net::{Ipv6Addr, SocketAddr};

use smallvec::SmallVec;
use strowger_foundation::{ConnId, Flow};

use crate::client_slot::{Client, OutgoingRequest};
use crate::id::ClientId;
use crate::layer::Transactions;
use crate::unanswered_index::{Links, NIL};

impl Transactions {
    /// Returns the outgoing request of the transaction, if it still has one.
    pub(crate) fn outgoing(&self, id: ClientId) -> Option<&OutgoingRequest> {
        self.outgoing.get(self.client(id)?.outgoing)
    }

    pub(crate) fn outgoing_mut(&mut self, id: ClientId) -> Option<&mut OutgoingRequest> {
        let index = self.client(id)?.outgoing;
        self.outgoing.get_mut(index)
    }

    /// Releases the [`OutgoingRequest`] of `id` at `index`.
    pub(crate) fn release_outgoing(&mut self, id: ClientId, index: u32) {
        let Some(sending) = self.outgoing.get_mut(index) else { return };
        self.pool.recycle(core::mem::take(&mut sending.message));
        // The response to a CANCEL is found through the INVITE.
        if sending.cancel.is_none() {
            self.outgoing.remove(index);
            if let Some(client) = self.client_mut(id) {
                client.outgoing = NIL;
            }
        }
    }

    /// Adds an unanswered request to the list of `peer`.
    pub(crate) fn link_unanswered(&mut self, index: u32, peer: SocketAddr) {
        let list = self.unanswered.list_of(peer);
        let next = self.unanswered.set_head(list, index);
        if let Some(after) = self.outgoing.get_mut(next) {
            after.links.prev = index;
        }
        if let Some(sending) = self.outgoing.get_mut(index) {
            sending.links = Links { prev: NIL, next, list };
        }
    }

    pub(crate) fn unlink_unanswered(&mut self, index: u32) {
        let Some(sending) = self.outgoing.get_mut(index) else { return };
        let Links { prev, next, list } = core::mem::replace(&mut sending.links, Links::NONE);
        match self.outgoing.get_mut(prev) {
            Some(before) => before.links.next = next,
            None => {
                self.unanswered.set_head(list, next);
            }
        }
        if let Some(after) = self.outgoing.get_mut(next) {
            after.links.prev = prev;
        }
    }

    /// Returns the transactions in a list whose flow matches, among the `scan` newest.
    pub(crate) fn unanswered_of(
        &self,
        list: SocketAddr,
        scan: usize,
        is_lost: impl Fn(&Flow) -> bool,
    ) -> SmallVec<[ClientId; 16]> {
        let mut failed: SmallVec<[ClientId; 16]> = SmallVec::new();
        let mut index = self.unanswered.head(self.unanswered.list_of(list));
        for _ in 0..scan {
            let Some(sending) = self.outgoing.get(index) else { break };
            if is_lost(&sending.flow) {
                failed.push(sending.client);
            }
            index = sending.links.next;
        }
        failed
    }

    /// Counts the transactions in the lists; checks that each is in the list of its flow and linked both ways.
    pub(crate) fn count_listed(&self) -> usize {
        let mut listed = 0usize;
        for head in self.unanswered.heads() {
            let (mut index, mut prev) = (head, NIL);
            while let Some(sending) = self.outgoing.get(index) {
                assert!(self.client(sending.client).is_some_and(Client::is_unanswered));
                assert_eq!(sending.links.prev, prev);
                assert_eq!(self.unanswered.list_of(list_of(&sending.flow)), sending.links.list);
                assert_eq!(self.unanswered.head(sending.links.list), head);
                listed = listed.saturating_add(1);
                (prev, index) = (index, sending.links.next);
            }
        }
        listed
    }
}

/// Whether a request sent over `flow` may use another connection if that one closes.
pub(crate) const fn may_reconnect(flow: &Flow) -> bool {
    flow.reopen && flow.connection.is_some()
}

/// Returns the list for an unanswered transaction over `flow`: that of its connection if it has one, because
/// `flow.peer`, which is connected to after a close, may have another port than the connection; otherwise that of the
/// peer.
pub(crate) fn list_of(flow: &Flow) -> SocketAddr {
    flow.connection.map_or(flow.peer, list_of_connection)
}

/// Returns the list of a connection, named by an address that no peer has.
pub(crate) fn list_of_connection(connection: ConnId) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::from(u128::from(connection.to_bits())), 0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_request_stays_small() {
        assert!(size_of::<super::OutgoingRequest>() <= 104, "{}", size_of::<super::OutgoingRequest>());
    }
}
