//! State of a client transaction.

use strowger_foundation::{Buf, Flow};

use crate::id::ClientId;
use crate::machine::{ClientState, Kind};
use crate::timer_queues::WaitEnd;
use crate::timers::Timers;
use crate::unanswered_index::Links;

/// The request of a client transaction and its flow; released when the transaction cannot send any more.
#[derive(Debug)]
pub(crate) struct OutgoingRequest {
    /// The transaction.
    pub(crate) client: ClientId,
    /// The request while it may be needed; after a failure the ACK.
    pub(crate) message: Buf,
    pub(crate) flow: Flow,
    /// The transaction of an INVITE's CANCEL.
    pub(crate) cancel: Option<ClientId>,
    pub(crate) links: Links,
}

/// A slot of the table; reserved while it has no transaction.
#[derive(Debug)]
pub(crate) struct ClientSlot {
    pub(crate) generation: u32,
    pub(crate) client: Option<Client>,
}

/// The state that a transaction has until its end. What it needs only while it may send is stored separately: most
/// transactions have their response and only wait for retransmissions.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) timers: Timers,
    /// Index of its [`OutgoingRequest`]; [`NIL`](crate::unanswered_index::NIL) if it has none.
    pub(crate) outgoing: u32,
    pub(crate) user: u32,
    /// Hash of the request's method.
    pub(crate) method: u32,
    pub(crate) kind: Kind,
    pub(crate) state: ClientState,
    pub(crate) is_reliable: bool,
    pub(crate) retransmissions: u8,
}

impl ClientSlot {
    /// Whether `end` is the wait that this transaction is in.
    pub(crate) fn waits_for(&self, end: &WaitEnd) -> bool {
        let waits = |client: &Client| client.timers.is_last_until(end.at);
        self.generation == end.owner.generation && self.client.as_ref().is_some_and(waits)
    }

    /// Whether its end is in a timer queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.timers.is_queued())
    }
}

impl Client {
    pub(crate) const fn is_unanswered(&self) -> bool {
        matches!(self.state, ClientState::Calling | ClientState::Trying)
    }
}
