//! The server's own responses: refusals, challenges, responses to OPTIONS, redirections.

use core::time::Duration;

use smallvec::SmallVec;
use strowger_auth::Challenge;
use strowger_foundation::{Buf, Flow, Timestamp};
use strowger_message::{Head, HeaderName, Message, Method, OwnFields, Peek, ResponseBuilder, Status, Uri};
use strowger_proxy::NO_CONTEXT;
use strowger_proxy::local;
use strowger_transaction::{Kind, RequestFingerprint, ServerId, ServerKey};

use crate::boundary::Event;
use crate::receive::TransactionMatch;
use crate::responder::{Responder, answer_limit, is_bounded};
use crate::shard::Shard;

/// The methods that the server answers itself or forwards by special rules; all other methods are forwarded too.
const ALLOW: &[u8] =
    b"INVITE, ACK, BYE, CANCEL, REGISTER, OPTIONS, INFO, PRACK, UPDATE, MESSAGE, SUBSCRIBE, NOTIFY, PUBLISH, REFER";

/// The methods that the server itself serves.
const OWN_METHODS: &[u8] = b"OPTIONS, REGISTER";

/// The reason for refusing a request, and the contents of the response.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A status, with a custom reason phrase if the default one says too little.
    Status(Status, Option<&'static str>),
    /// A status with a reason phrase from the configuration.
    WithReason(Status, Option<Box<str>>),
    /// A challenge, 401 or 407.
    Challenge { status: Status, realm: SmallVec<[u8; 32]>, stale: bool },
    /// A status with a Retry-After.
    RetryAfter(Status, &'static str, Duration),
    /// 420, with the unsupported option tags.
    BadExtension(SmallVec<[u8; 64]>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status, None)
    }
}

impl Shard {
    /// Opens a server transaction; if the table is full, sends a 503 without one.
    pub(crate) fn open(
        &mut self,
        now: Timestamp,
        source: Flow,
        key: ServerKey,
        message: &Message<'_>,
        is_proven: bool,
    ) -> Option<Responder> {
        let kind = if message.method() == Method::Invite { Kind::Invite } else { Kind::NonInvite };
        let reply_to = local::response_flow(message.via(), &source);
        let opened = self.proxy.transactions().open_server(now, key, kind, reply_to, NO_CONTEXT);
        if let Ok(server) = opened {
            let by = Responder::transaction(server, key, &source, is_proven);
            if by.is_bounded() && kind == Kind::Invite {
                self.proxy.transactions().bound_retransmissions(server, by.limit(message));
            }
            return Some(by);
        }
        self.refuse_table_full(now, source, key, message);
        None
    }

    #[cold]
    fn refuse_table_full(&mut self, now: Timestamp, source: Flow, key: ServerKey, message: &Message<'_>) {
        self.counters.table_full += 1;
        self.report(Event::TableFull { table: "server transactions" });
        let by = Responder::stateless(key, &source, false);
        self.answer(now, by, source, message, Status::SERVICE_UNAVAILABLE, None, |reply| reply);
    }

    //= rfc3261#16.1:uas
    /// Sends a final response of the server; `headers` adds header fields.
    #[expect(clippy::too_many_arguments, reason = "all of it is the response's")]
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: Flow,
        message: &Message<'_>,
        status: Status,
        reason: Option<&str>,
        headers: impl for<'b> FnOnce(ResponseBuilder<'b>) -> ResponseBuilder<'b>,
    ) {
        let tag = local::to_tag(self.proxy.tag_key(), by.key());
        let mut out: Buf = self.proxy.transactions().pool().take(message.bytes().len().saturating_add(256));
        let reply = self.proxy.begin_response(now, &mut out, &tag, message, &source, status, reason);
        let reply = reply.with_limit(by.limit(message));
        let own = headers(reply).finish();
        self.send_answer(now, by, &source, message, (status, out, own));
    }

    /// Rebuilds the server's own response to a retransmitted request; `None` if another element answered it, or
    /// nobody yet. The fields that the response copies are in the retransmission, so the result is identical and goes
    /// to the same peer as the first.
    // Never inlined: most requests are new.
    #[inline(never)]
    pub(crate) fn rebuild_response(
        &mut self,
        now: Timestamp,
        source: &Flow,
        key: ServerKey,
        known: ServerId,
        peek: &Peek<'_>,
    ) -> Option<TransactionMatch> {
        let (answered, _) = self.proxy.transactions_ref().cached_own_response(known)?;
        // A client may reuse one branch for several requests. None of them may get the response to another.
        if RequestFingerprint::of_head(&self.match_key, peek.head()) != Some(answered) {
            self.counters.refused += 1;
            self.respond_statelessly(now, key, peek, source, Status::BAD_REQUEST, "Branch Used Before");
            return Some(TransactionMatch::ReusedBranch);
        }
        let via = peek.via.as_ref()?;
        let mut out = self.proxy.transactions().pool().take(peek.head().len().saturating_add(256));
        let (_, own) = self.proxy.transactions_ref().cached_own_response(known)?;
        let tag = local::to_tag(self.proxy.tag_key(), key);
        let feedback = self.proxy.feedback(now, via, source);
        local::rebuild(&mut out, &tag, peek.head(), via, source, own, feedback.as_ref())?;
        // A short request with the branch of a long one must not draw the long one's response if that response went
        // to an unproven source.
        let is_proven = self.snapshot.auth.requires(b"REGISTER") || self.snapshot.trusts(source.peer.ip());
        if is_bounded(source, is_proven) && out.len() > answer_limit(peek.head().bytes().len()) {
            self.counters.amplification_limited += 1;
            self.proxy.transactions().pool().recycle(out);
            return Some(TransactionMatch::Retransmission);
        }
        self.proxy.transactions().resend_own_response(local::response_flow(via, source), out);
        Some(TransactionMatch::Retransmission)
    }

    pub(crate) fn refuse(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: Flow,
        message: &Message<'_>,
        refusal: Refusal,
    ) {
        self.report_scanner(&source, message);
        match refusal {
            Refusal::Status(status, reason) => self.refuse_with_reason(now, by, source, message, status, reason),
            Refusal::WithReason(status, reason) => {
                self.refuse_with_reason(now, by, source, message, status, reason.as_deref());
            }
            Refusal::RetryAfter(status, reason, after) => {
                self.counters.refused += 1;
                self.answer(now, by, source, message, status, Some(reason), |reply| {
                    reply.optional_fmt("Retry-After", format_args!("{}", after.as_secs()))
                });
            }
            //= rfc3261#8.2.2.3:unsupported
            Refusal::BadExtension(tags) => {
                self.counters.refused += 1;
                let status = Status::BAD_EXTENSION;
                self.answer(now, by, source, message, status, None, |reply| reply.header("Unsupported", &[&tags]));
            }
            Refusal::Challenge { status, realm, stale } => {
                self.challenge(now, by, source, message, (status, &realm, stale));
            }
        }
    }

    /// Reports the sender of a request that is not served if its User-Agent begins like that of a scanner.
    fn report_scanner(&mut self, source: &Flow, message: &Message<'_>) {
        let Some(agent) = message.head().first(HeaderName::UserAgent) else { return };
        let is_like =
            |scanner: &[u8]| agent.get(..scanner.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scanner));
        if self.snapshot.scanners.iter().any(|scanner| is_like(scanner)) {
            let agent = strowger_message::lossy(agent);
            self.report(Event::Scanner { peer: source.peer, transport: source.transport, agent });
        }
    }

    fn refuse_with_reason(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: Flow,
        message: &Message<'_>,
        status: Status,
        reason: Option<&str>,
    ) {
        self.counters.refused += 1;
        //= rfc3261#21.4.6
        // A 405 must list the allowed methods.
        let allow = status == Status::METHOD_NOT_ALLOWED;
        self.answer(now, by, source, message, status, reason, |reply| {
            if allow { reply.header("Allow", &[OWN_METHODS]) } else { reply }
        });
    }

    //= rfc3261#26.3.2.4
    fn challenge(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: Flow,
        message: &Message<'_>,
        (status, realm, stale): (Status, &[u8], bool),
    ) {
        self.counters.challenged += 1;
        let header = match status {
            Status::UNAUTHORIZED => HeaderName::WwwAuthenticate,
            _ => HeaderName::ProxyAuthenticate,
        };
        let seal = local::to_seal(self.proxy.tag_key(), by.key());
        let mut out: Buf = self.proxy.transactions().pool().take(message.bytes().len().saturating_add(512));
        let limit = by.limit(message);
        let tag = seal.to_text();
        let reply = self.proxy.begin_response(now, &mut out, &tag, message, &source, status, None).with_limit(limit);
        // Requests that share one branch still get different nonces.
        let request = seal.0.wrapping_add(u64::from(message.cseq().number));
        let challenge = Challenge { header, realm, stale, request, source: source.peer.ip() };
        let own = self.authenticator.challenge(now, &self.snapshot.auth, reply, &challenge).finish();
        self.send_answer(now, by, &source, message, (status, out, own));
    }

    //= rfc3261#8.2.2:unknown-fields
    //= rfc3261#8.2.2:malformed-fields
    //= rfc3261#8.2.2.1:any-to
    //= rfc3261#11.2
    pub(crate) fn serve_local(&mut self, now: Timestamp, by: Responder, source: Flow, message: &Message<'_>) {
        //= rfc3261#8.2.2.3:bad-extension
        let required = option_tags(message, HeaderName::Require);
        if !required.is_empty() {
            self.refuse(now, by, source, message, Refusal::BadExtension(required));
            return;
        }
        //= rfc3261#8.2.1:405
        //= rfc3261#8.2.1:allow
        if message.method() != Method::Options {
            self.counters.refused += 1;
            self.answer(now, by, source, message, Status::METHOD_NOT_ALLOWED, None, |r| {
                r.header("Allow", &[OWN_METHODS])
            });
            return;
        }
        self.report_scanner(&source, message);
        self.answer(now, by, source, message, Status::OK, None, |reply| {
            reply
                .optional("Allow", &[ALLOW])
                .optional("Accept", &[b"application/sdp"])
                .optional("Supported", &[b"path, outbound, gruu"])
        });
    }

    //= rfc3261#8.3:ignores-unknown
    pub(crate) fn redirect(
        &mut self,
        now: Timestamp,
        by: Responder,
        source: Flow,
        message: &Message<'_>,
        contacts: &[Box<[u8]>],
    ) {
        //= rfc3261#8.3:own-uri
        // A client that follows such a contact comes back here.
        let is_asked = |uri: &[u8]| Uri::parse(uri).zip(message.uri()).is_some_and(|(uri, asked)| uri.same(asked));
        let contacts: SmallVec<[&[u8]; 4]> = contacts.iter().map(|uri| &**uri).filter(|uri| !is_asked(uri)).collect();
        if contacts.is_empty() {
            self.refuse(now, by, source, message, Status::NOT_FOUND.into());
            return;
        }
        self.answer(now, by, source, message, Status::MOVED_TEMPORARILY, None, |reply| {
            // The best contacts come first, and one of them is enough.
            contacts.iter().enumerate().fold(reply, |reply, (place, uri)| {
                let value: [&[u8]; 3] = [b"<", uri, b">"];
                if place == 0 { reply.header("Contact", &value) } else { reply.optional("Contact", &value) }
            })
        });
    }
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

    //= rfc3261#17.2.1:trying
    /// Answers a forwarded INVITE with 100 Trying. For an unproven sender, the 100, the final response and its
    /// retransmissions by Timer G share the byte limit of the transaction. If the INVITE is so short that nothing
    /// would be left for the final response, it gets no 100 and is retransmitted.
    //= rfc3261#16.2:trying
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

/// Returns all option tags of `header` as one list.
pub(crate) fn option_tags(message: &Message<'_>, header: HeaderName) -> SmallVec<[u8; 64]> {
    let mut tags: SmallVec<[u8; 64]> = SmallVec::new();
    if message.head().first(header).is_none() {
        return tags;
    }
    for tag in message.head().elements(header).filter(|tag| !tag.is_empty()) {
        if !tags.is_empty() {
            tags.extend_from_slice(b", ");
        }
        tags.extend_from_slice(tag);
    }
    tags
}

/// The refusal while stored registrations are being loaded.
pub(crate) const LOADING: Refusal =
    Refusal::RetryAfter(Status::SERVICE_UNAVAILABLE, "Registrations Are Being Loaded", Duration::from_secs(2));

/// Maximum excess of the final response to an INVITE over its 100, in bytes: a To tag, a longer reason phrase and a
/// Retry-After.
pub(crate) const FINAL_EXCESS: usize = 64;
