//! Who gives an answer of the server's own, with or without a server transaction, and how long it may be.

use strowger_foundation::{Buf, Flow, Timestamp};
use strowger_message::{Head, Message, Method, OwnFields, Status};
use strowger_proxy::local;
use strowger_transaction::{RequestFingerprint, ServerId, ServerKey};

use crate::shard::Shard;

/// How many bytes the server itself sends at most for each byte of a datagram whose sender has proven nothing: whoever forges the
/// source of a request makes a weak reflector of the server.
pub const MAX_AMPLIFICATION: usize = 2;

/// By how much the final response to an INVITE may be longer than its 100: by a To tag, a longer reason phrase and a Retry-After.
const FINAL_EXCESS: usize = 64;

/// Who gives the final response to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responder {
    /// `None` where the response is sent once and nothing is kept.
    transaction: Option<ServerId>,
    key: ServerKey,
    is_bounded: bool,
}

impl Responder {
    //= rfc3261#8.2.7
    /// One that keeps nothing: a request that comes again is answered anew, with the same To tag.
    pub(crate) const fn stateless(key: ServerKey, source: &Flow, is_proven: bool) -> Self {
        Self { transaction: None, key, is_bounded: is_bounded(source, is_proven) }
    }

    /// The server transaction `server`.
    pub(crate) const fn transaction(server: ServerId, key: ServerKey, source: &Flow, is_proven: bool) -> Self {
        Self { transaction: Some(server), key, is_bounded: is_bounded(source, is_proven) }
    }

    /// The transaction, where there is one.
    pub(crate) const fn server(&self) -> Option<ServerId> {
        self.transaction
    }

    pub(crate) const fn key(&self) -> ServerKey {
        self.key
    }

    pub(crate) const fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// The bytes that the answer to `message` may have.
    pub(crate) const fn limit(&self, message: &Message<'_>) -> usize {
        if self.is_bounded { answer_limit(message.bytes().len()) } else { usize::MAX }
    }
}

/// Whether answers have to be short. Who has opened a connection is where it says that it is.
pub(crate) const fn is_bounded(source: &Flow, is_proven: bool) -> bool {
    !is_proven && !source.transport.is_reliable()
}

/// How long the answers to so many bytes may be.
pub(crate) const fn answer_limit(bytes: usize) -> usize {
    bytes.saturating_mul(MAX_AMPLIFICATION)
}

impl Shard {
    /// Sends a final response of our own, of which `own` is what its request does not say. One that would be too long is made
    /// shorter, or is not sent.
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
        let Some(server) = by.transaction else {
            self.proxy.transactions().send_once(local::response_flow(message.via(), source), out);
            return;
        };
        // An INVITE's transaction is never left with its answer alone.
        if message.method() == Method::Invite {
            self.proxy.transactions().respond(now, server, status, out);
            return;
        }
        let request = RequestFingerprint::of(&self.match_key, message.call_id(), message.cseq().number);
        self.proxy.transactions().respond_own(now, server, status, out, (own, request));
    }

    //= rfc3261#21.5.7
    /// An answer that is nothing without its header fields is 513 instead; of another one the fields, and a reason phrase of ours,
    /// are left out.
    #[cold]
    fn send_shorter(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: &Flow,
        message: &Message<'_>,
        (status, mut out, own): (Status, Buf, OwnFields),
    ) {
        self.counters.answers_cut += 1;
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
            // Its client has stopped asking.
            Some(server) if message.method() == Method::Invite => {
                self.proxy.transactions().respond(now, server, status, out);
            }
            Some(server) => {
                self.proxy.transactions().pool().recycle(out);
                // No 408 is sent to a non-INVITE; told of one, the transaction stops waiting for an answer.
                self.proxy.transactions().respond(now, server, Status::REQUEST_TIMEOUT, Buf::new());
            }
        }
    }

    /// Sends a response to a request of which only the head is understood: as `write` writes it, or else short, or not at all where even
    /// that would be too long.
    pub(crate) fn send_short(&mut self, to: Flow, source: &Flow, head: &Head<'_>, write: impl Fn(&mut Vec<u8>, bool)) {
        let limit = if is_bounded(source, false) { answer_limit(head.bytes().len()) } else { usize::MAX };
        let mut out = self.proxy.transactions().pool().take(head.len());
        write(&mut out, false);
        if out.len() > limit {
            self.counters.answers_cut += 1;
            write(&mut out, true);
        }
        if out.len() <= limit {
            self.proxy.transactions().send_once(to, out);
        } else {
            self.proxy.transactions().pool().recycle(out);
        }
    }

    //= rfc3261#17.2.1
    /// Answers an INVITE that goes on 100 Trying. Where the sender has proven nothing, that, the final response and what Timer G
    /// sends share what the transaction may send; one so short that there would be nothing left for the final response gets no
    /// 100, and comes again.
    pub(crate) fn answer_trying(&mut self, now: Timestamp, by: Responder, source: &Flow, message: &Message<'_>) {
        let Some(server) = by.transaction else { return };
        let limit = by.limit(message);
        let mut out: Buf = self.proxy.transactions().pool().take(message.bytes().len().saturating_add(256));
        self.proxy.begin_response(now, &mut out, &[0; 16], message, source, Status::TRYING, None).finish();
        if out.len().saturating_mul(2).saturating_add(FINAL_EXCESS) > limit {
            self.counters.answers_cut += 1;
            self.proxy.transactions().pool().recycle(out);
            return;
        }
        self.proxy.transactions().respond(now, server, Status::TRYING, out);
    }
}
