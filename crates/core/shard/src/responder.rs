//! Sending of the server's own responses, with or without a server transaction, and their length limit.

use strowger_foundation::Flow;
use strowger_message::Message;
use strowger_transaction::{ServerId, ServerKey};

/// Maximum number of bytes that the server itself sends per byte of a datagram from an unproven source, so that
/// forged source addresses make it a weak reflector.
pub const MAX_AMPLIFICATION: usize = 2;

/// The way to send the final response to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responder {
    /// `None` if the response is sent once and nothing is stored.
    pub(crate) transaction: Option<ServerId>,
    pub(crate) key: ServerKey,
    pub(crate) is_bounded: bool,
}

impl Responder {
    //= rfc3261#8.2.7:same-to-tag
    /// Creates a responder without state: a repeated request is answered anew, with the same To tag.
    pub(crate) const fn stateless(key: ServerKey, source: &Flow, is_proven: bool) -> Self {
        Self { transaction: None, key, is_bounded: is_bounded(source, is_proven) }
    }

    /// Creates a responder for the server transaction `server`.
    pub(crate) const fn transaction(server: ServerId, key: ServerKey, source: &Flow, is_proven: bool) -> Self {
        Self { transaction: Some(server), key, is_bounded: is_bounded(source, is_proven) }
    }

    /// Returns the server transaction, if there is one.
    pub(crate) const fn server(&self) -> Option<ServerId> {
        self.transaction
    }

    pub(crate) const fn key(&self) -> ServerKey {
        self.key
    }

    pub(crate) const fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// Returns the maximum length of the response to `message`, in bytes.
    pub(crate) const fn limit(&self, message: &Message<'_>) -> usize {
        if self.is_bounded { answer_limit(message.bytes().len()) } else { usize::MAX }
    }
}

/// Returns whether responses are limited in length. The source of a connection is proven by the handshake.
pub(crate) const fn is_bounded(source: &Flow, is_proven: bool) -> bool {
    !is_proven && !source.transport.is_reliable()
}

/// Returns the maximum length of the responses to so many bytes.
pub(crate) const fn answer_limit(bytes: usize) -> usize {
    bytes.saturating_mul(MAX_AMPLIFICATION)
}
