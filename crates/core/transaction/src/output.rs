//! What comes out of the layer: messages to send, events for the user, and counts.

use strowger_foundation::{Buf, Flow};

use crate::id::{ClientId, ServerId};

/// The most messages that wait to be polled. Past it a message is dropped, as the network would drop it, and counted.
pub const MAX_OUTPUTS: usize = 65_536;

/// What a transaction tells its user. Each of these but none else ends the transaction: its id names nothing any more.
/// Transactions without a user (`u32::MAX`) tell nothing, also where [`respond`](crate::Transactions::respond) was their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No final response came: Timer B or F, or 64·T1 after a CANCEL.
    ClientTimeout {
        /// Whose.
        user: u32,
        /// Which.
        id: ClientId,
    },
    /// The peer cannot be reached.
    ClientFailed {
        /// Whose.
        user: u32,
        /// Which.
        id: ClientId,
    },
    /// The transaction ended after a final response: Timer D, K or M.
    ClientEnded {
        /// Whose.
        user: u32,
        /// Which.
        id: ClientId,
    },
    /// The transaction ended as it should: Timer I, J or L.
    ServerEnded {
        /// Whose.
        user: u32,
        /// Which.
        id: ServerId,
    },
    /// No ACK came for a failure: Timer H.
    ServerTimeout {
        /// Whose.
        user: u32,
        /// Which.
        id: ServerId,
    },
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent again by Timer A or E.
    pub request_retransmissions: u64,
    /// Responses sent again by Timer G, or because their request came again.
    pub response_retransmissions: u64,
    /// Requests of a server transaction that came again, answered or absorbed.
    pub requests_repeated: u64,
    /// Responses that no client transaction was waiting for.
    pub responses_unknown: u64,
    /// Responses that a client transaction absorbed.
    pub responses_absorbed: u64,
    /// The user's responses that the state, or RFC 4320, does not allow.
    pub responses_refused: u64,
    /// Client transactions without a final response.
    pub client_timeouts: u64,
    /// Client transactions whose peer could not be reached.
    pub client_failures: u64,
    /// INVITE server transactions without an ACK.
    pub server_timeouts: u64,
    /// Transactions that were not opened because the table was full.
    pub table_full: u64,
    /// Messages dropped because [`MAX_OUTPUTS`] waited.
    pub outputs_dropped: u64,
    /// ACK or CANCEL requests that could not be derived because the kept request is not SIP.
    pub underivable: u64,
}

/// A message that waits to be polled.
#[derive(Debug)]
pub(crate) enum Output {
    /// A message that is handed over.
    Once {
        flow: Flow,
        buf: Buf,
    },
    ReplayServer(ServerId),
    /// An answer that another element gave for good, by its place.
    ReplayCached(u32),
    ReplayClient(ClientId),
}
