//! Sending of the server's own responses, with or without a server transaction, and their length limit.

use strowger_foundation::{Buf, Flow, Timestamp};
use strowger_message::{Head, Message, Method, OwnFields, Status};
use strowger_proxy::local;
use strowger_transaction::{RequestFingerprint, ServerId, ServerKey};

use crate::shard::Shard;

/// Maximum number of bytes that the server itself sends per byte of a datagram from an unproven source, so that
/// forged source addresses make it a weak reflector.
pub const MAX_AMPLIFICATION: usize = 2;

/// Maximum excess of the final response to an INVITE over its 100, in bytes: a To tag, a longer reason phrase and a
/// Retry-After.
const FINAL_EXCESS: usize = 64;

/// The way to send the final response to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responder {
    /// `None` if the response is sent once and nothing is stored.
    transaction: Option<ServerId>,
    key: ServerKey,
    is_bounded: bool,
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

impl Shard {
    /// Sends a final response of the server; `own` is the part that its request does not contain. A response that
    /// exceeds the limit is shortened or not sent.
    pub(crate) fn send_answer(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: &Flow,
        message: &Message<'_>,
        (status, out, own): (Status, Buf, OwnFields),
    ) {
        if out.len() > by.limit(message) {
            self.send_shorter(now, by, source, message, (status, out, own));
            return;
        }
        //= rfc3261#8.2.7:no-retransmission
        let Some(server) = by.transaction else {
            self.proxy.transactions().send_once(local::response_flow(message.via(), source), out);
            return;
        };
        // An INVITE transaction always stores the whole response.
        if message.method() == Method::Invite {
            self.proxy.transactions().respond(now, server, status, out);
            return;
        }
        let request = RequestFingerprint::of(&self.match_key, message.call_id(), message.cseq().number);
        self.proxy.transactions().respond_own(now, server, status, out, (own, request));
    }

    //= rfc3261#21.5.7
    /// Sends 513 in place of a response that is useless without its header fields. Other responses lose those fields
    /// and a custom reason phrase.
    #[cold]
    fn send_shorter(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: &Flow,
        message: &Message<'_>,
        (status, mut out, own): (Status, Buf, OwnFields),
    ) {
        self.counters.amplification_limited += 1;
        let (status, reason) = match own.has_headers() {
            true => (Status::MESSAGE_TOO_LARGE, Some("Answer Too Long For UDP")),
            false => (status, None),
        };
        let tag = local::to_tag(self.proxy.tag_key(), by.key);
        let own = self.proxy.begin_response(now, &mut out, &tag, message, source, status, reason).finish();
        if out.len() <= by.limit(message) {
            self.send_answer(now, by, source, message, (status, out, own));
            return;
        }
        match by.transaction {
            None => self.proxy.transactions().pool().recycle(out),
            // The client has stopped retransmitting.
            Some(server) if message.method() == Method::Invite => {
                self.proxy.transactions().respond(now, server, status, out);
            }
            Some(server) => {
                self.proxy.transactions().pool().recycle(out);
                // A non-INVITE never gets a 408; this only makes the transaction stop waiting for a response.
                self.proxy.transactions().respond(now, server, Status::REQUEST_TIMEOUT, Buf::new());
            }
        }
    }

    /// Sends a response to a request of which only the head was parsed: as `write` writes it, else in its short form,
    /// or not at all if even that exceeds the limit.
    pub(crate) fn send_short(&mut self, to: Flow, source: &Flow, head: &Head<'_>, write: impl Fn(&mut Vec<u8>, bool)) {
        let limit = if is_bounded(source, false) { answer_limit(head.bytes().len()) } else { usize::MAX };
        let mut out = self.proxy.transactions().pool().take(head.len());
        write(&mut out, false);
        if out.len() > limit {
            self.counters.amplification_limited += 1;
            write(&mut out, true);
        }
        if out.len() <= limit {
            self.proxy.transactions().send_once(to, out);
        } else {
            self.proxy.transactions().pool().recycle(out);
        }
    }

    //= rfc3261#16.2:trying
    //= rfc3261#17.2.1:trying
    /// Answers a forwarded INVITE with 100 Trying. For an unproven sender, the 100, the final response and its
    /// retransmissions by Timer G share the byte limit of the transaction. If the INVITE is so short that nothing
    /// would be left for the final response, it gets no 100 and is retransmitted.
    pub(crate) fn answer_trying(&mut self, now: Timestamp, by: Responder, source: &Flow, message: &Message<'_>) {
        //= rfc3261#8.2.7:no-provisional
        let Some(server) = by.transaction else { return };
        let limit = by.limit(message);
        let mut out: Buf = self.proxy.transactions().pool().take(message.bytes().len().saturating_add(256));
        self.proxy.begin_response(now, &mut out, &[0; 16], message, source, Status::TRYING, None).finish();
        if out.len().saturating_mul(2).saturating_add(FINAL_EXCESS) > limit {
            self.counters.amplification_limited += 1;
            self.proxy.transactions().pool().recycle(out);
            return;
        }
        self.proxy.transactions().respond(now, server, Status::TRYING, out);
    }
}
