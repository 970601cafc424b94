//! Output of the layer: messages to send, events for the user, and counters.

use strowger_foundation::{Buf, Flow};

use crate::id::{ClientId, ServerId};

/// Largest number of messages that wait to be polled. Beyond it messages are dropped and counted, as if lost in the
/// network.
pub const MAX_OUTPUTS: usize = 65_536;

/// Notification to a transaction's user. Each event ends the transaction, and nothing else does: its id becomes
/// invalid. Transactions without a user (`u32::MAX`) report nothing, even if
/// [`respond`](crate::Transactions::respond) ended them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No final response: Timer B or F, or 64·T1 after a CANCEL.
    ClientTimeout {
        /// The user.
        user: u32,
        /// The transaction.
        id: ClientId,
    },
    /// The peer is unreachable.
    ClientFailed {
        /// The user.
        user: u32,
        /// The transaction.
        id: ClientId,
    },
    /// The transaction ended after a final response: Timer D, K or M.
    ClientEnded {
        /// The user.
        user: u32,
        /// The transaction.
        id: ClientId,
    },
    /// The transaction ended normally: Timer I, J or L.
    ServerEnded {
        /// The user.
        user: u32,
        /// The transaction.
        id: ServerId,
    },
    /// No ACK for a failure: Timer H.
    ServerTimeout {
        /// The user.
        user: u32,
        /// The transaction.
        id: ServerId,
    },
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests retransmitted by Timer A or E.
    pub request_retransmissions: u64,
    /// Responses retransmitted by Timer G or because of a retransmitted request.
    pub response_retransmissions: u64,
    /// Retransmissions of requests, answered or absorbed.
    pub requests_repeated: u64,
    /// Responses without a matching client transaction.
    pub responses_unknown: u64,
    /// Responses that a client transaction absorbed.
    pub responses_absorbed: u64,
    /// Responses of the user that the state or RFC 4320 does not allow.
    pub responses_refused: u64,
    /// Client transactions without a final response.
    pub client_timeouts: u64,
    /// Client transactions whose peer was unreachable.
    pub client_failures: u64,
    /// INVITE server transactions without an ACK.
    pub server_timeouts: u64,
    /// Transactions not opened because the table was full.
    pub table_full: u64,
    /// Messages dropped because [`MAX_OUTPUTS`] were waiting.
    pub outputs_dropped: u64,
    /// ACK or CANCEL requests not built because the stored request is not SIP.
    pub underivable: u64,
}

/// A message waiting to be polled.
#[derive(Debug)]
pub(crate) enum Output {
    /// A message that is moved out.
    Once {
        flow: Flow,
        buf: Buf,
    },
    ReplayServer(ServerId),
    /// Another element's final response, by its position in the cache.
    ReplayCached(u32),
    ReplayClient(ClientId),
}

/// The `user` of a transaction whose end nobody is notified of.
pub const NO_USER: u32 = u32::MAX;
