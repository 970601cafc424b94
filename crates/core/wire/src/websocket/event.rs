//! What a connection reports to its owner.

use std::fmt;
use std::ops::Range;

use super::close_code::CloseCode;
use super::frame::ProtocolError;
use super::opening::UpgradeError;
use super::refusal::Refusal;

/// Result of one step: the first thing that the buffer contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Number of bytes at the start of the buffer to drop after the event is handled.
    pub consumed: usize,
    /// The event. Its ranges are positions in the buffer.
    pub event: Event,
}

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing is complete. Pass the bytes again when the buffer has at least `needed` of them.
    Incomplete {
        /// Number of bytes, from the start of the buffer.
        needed: usize,
    },
    /// The upgrade is complete; the consumed bytes are the HTTP head of the peer. Messages may be sent from now on.
    Opened,
    /// A message. It may be a keep-alive of line ends only (RFC 7118 §6).
    Message {
        /// How it was marked.
        kind: MessageKind,
        /// Its payload, unmasked.
        payload: Range<usize>,
    },
    /// A ping; the pong is in the send queue.
    Ping,
    /// A pong: the peer is alive.
    Pong,
    /// The peer closes, or confirms that this end closes. A closing frame is in the send queue; drop it if this end has
    /// already sent one. Close the connection after the queue is sent.
    Closed {
        /// The reason of the peer, if it gave one.
        code: Option<CloseCode>,
    },
    /// The connection failed; the response or closing frame is in the send queue. Close the connection after the queue
    /// is sent.
    Failed(Failure),
    /// Bytes after the end, to be dropped.
    Discarded,
}

/// How a message is marked. SIP does not distinguish the two (RFC 7118 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// Why a connection failed. The peer is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This server refused the upgrade.
    Refused(Refusal),
    /// The server at the far end did not upgrade.
    NotUpgraded(UpgradeError),
    /// The peer broke the protocol after the upgrade.
    Protocol(ProtocolError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => {
                write!(f, "the WebSocket request was refused with {}: {refusal}", refusal.status())
            }
            Self::NotUpgraded(error) => write!(f, "the server did not open the WebSocket: {error}"),
            Self::Protocol(error) => write!(f, "the peer broke the WebSocket protocol: {error}"),
        }
    }
}

impl std::error::Error for Failure {}
