//! Received messages: which transaction they belong to, and whether new work is admitted.

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{Fault, Head, HeaderName, Message, Method, Peek, ResponseBuilder, Status, Via};
use strowger_overload::{Admission, Load, Verdict};
use strowger_proxy::branch::{ANY_SHARD, BranchId, BranchOwner};
use strowger_proxy::{ResponseOutcome, local};
use strowger_transaction::{AckVerdict, ServerId, ServerKey};

use crate::boundary::Event;
use crate::callbacks::ShardCallbacks;
use crate::class::begins_work;
use crate::ending::BYE_USERS;
use crate::probes::PROBE_USERS;
use crate::responder::answer_limit;
use crate::shard::Shard;
use crate::snapshot::Snapshot;
use crate::steering::{SteeringResult, server_key};

impl Shard {
    /// Handles a request: peek → known transaction? → admit → parse → serve.
    pub(crate) fn handle_request(
        &mut self,
        now: Timestamp,
        source: Flow,
        (peek, steered): (&Peek<'_>, &SteeringResult),
        method: Method<'_>,
        verdict: Verdict,
    ) {
        self.counters.requests += 1;
        debug_assert_eq!(peek.via.is_some(), steered.key.is_some(), "steering has read the same message");
        let (Some(via), Some(key)) = (&peek.via, steered.key) else {
            self.refuse_without_via(&source, peek.head(), method);
            return;
        };
        //= rfc3261#16.3:merged-requests
        if let Some(known) = self.proxy.transactions_ref().find_server(key)
            && let Some(arrival) = self.handle_known(now, &source, key, known, method, peek)
        {
            self.counters.retransmissions += u64::from(arrival == TransactionMatch::Retransmission);
            return;
        }
        if begins_work(peek, method) && !self.admit((now, verdict), key, peek.head(), via, &source) {
            return;
        }
        //= rfc3261#16.3:well-formed
        // By reference, because moving a message is expensive.
        match &Message::from_peek(peek) {
            Ok(message) => self.serve(now, NewRequest { source, key, message, steered }),
            Err(fault) => {
                self.on_malformed(&source, *fault);
                if method != Method::Ack {
                    self.respond_statelessly(now, key, peek, &source, fault.status(), &fault.to_string());
                }
            }
        }
    }

    /// Answers a request whose topmost Via cannot be parsed. Only its source address is known (RFC 4475 §3.1.2.1,
    /// §3.1.2.16). Without any Via no response is possible.
    fn refuse_without_via(&mut self, source: &Flow, head: &Head<'_>, method: Method<'_>) {
        let fault = match head.first(HeaderName::Via) {
            None => Fault::Missing("Via"),
            Some(_) if !head.is_sip_2_0() => Fault::Version,
            Some(_) => Fault::Header("Via"),
        };
        self.on_malformed(source, fault);
        if method == Method::Ack || fault == Fault::Missing("Via") {
            return;
        }
        let tag = local::to_tag_without_via(self.proxy.tag_key(), head);
        self.send_short(*source, source, head, |out, is_short| {
            let status = fault.status();
            let reason = if is_short { status.reason().to_owned() } else { fault.to_string() };
            ResponseBuilder::begin(out, head, status, &reason, &tag, None).finish();
        });
    }

    /// Handles a request that matches the transaction `known`: a retransmission, or the ACK to a non-2xx. Returns
    /// `None` if the transaction does not absorb it.
    fn handle_known(
        &mut self,
        now: Timestamp,
        source: &Flow,
        key: ServerKey,
        known: ServerId,
        method: Method<'_>,
        peek: &Peek<'_>,
    ) -> Option<TransactionMatch> {
        if method == Method::Ack {
            // Under the rules of RFC 2543, only the To tag distinguishes an ACK from one of another transaction.
            let by_branch = peek.via.as_ref().is_some_and(|via| via.rfc3261_branch().is_some());
            if !by_branch && !self.proxy.transactions_ref().ack_matches(known, peek.head()) {
                return None;
            }
            return match self.proxy.transactions().handle_ack(now, known) {
                AckVerdict::Absorbed => Some(TransactionMatch::Ack),
                AckVerdict::Ignored => Some(TransactionMatch::Retransmission),
                AckVerdict::ToUser => None,
            };
        }
        if let Some(arrival) = self.rebuild_response(now, source, key, known, peek) {
            return Some(arrival);
        }
        if self.snapshot.siblings.contains(&source.peer) {
            self.proxy.transactions().redirect_responses(known, *source);
        }
        self.proxy.transactions().allow_bytes(known, answer_limit(peek.head().bytes().len()));
        self.proxy.transactions().handle_retransmission(now, known);
        Some(TransactionMatch::Retransmission)
    }

    /// Returns the transaction key of the INVITE that a CANCEL refers to.
    pub(crate) fn cancelled_key(&self, message: &Message<'_>) -> ServerKey {
        server_key(self.proxy.ring(), &self.match_key, message.head(), message.via(), Method::Invite)
    }

    /// Returns whether a request that may begin new work is served. Both the worker and the shard must have capacity.
    fn admit(
        &mut self,
        (now, verdict): (Timestamp, Verdict),
        key: ServerKey,
        head: &Head<'_>,
        via: &Via<'_>,
        source: &Flow,
    ) -> bool {
        let server_transactions = self.proxy.transactions_ref().servers();
        let Snapshot { limits, is_draining: draining, .. } = *self.snapshot;
        let load = Load { in_progress: self.proxy.contexts(), server_transactions, limits, is_draining: draining };
        let admission = match verdict {
            Verdict::Admit => strowger_overload::admit(load, self.refusals),
            Verdict::Refuse { retry_after } => Admission::Refuse { retry_after },
            Verdict::Drop => Admission::Drop,
        };
        if admission == Admission::Admit {
            return true;
        }
        self.refusals = self.refusals.wrapping_add(1);
        self.counters.overloaded += 1;
        if let Admission::Refuse { retry_after } = admission {
            let status = Status::SERVICE_UNAVAILABLE;
            let tag = local::to_tag(self.proxy.tag_key(), key);
            let feedback = self.proxy.feedback(now, via, source);
            self.send_short(local::response_flow(via, source), source, head, |out, is_short| {
                let about = (status, status.reason());
                let reply = local::begin_with(out, &tag, (head, via), source, about, feedback.as_ref());
                if is_short {
                    reply.finish();
                } else {
                    reply.header_fmt("Retry-After", format_args!("{}", retry_after.as_secs())).finish();
                }
            });
        }
        false
    }

    pub(crate) fn respond_statelessly(
        &mut self,
        now: Timestamp,
        key: ServerKey,
        peek: &Peek<'_>,
        source: &Flow,
        status: Status,
        reason: &str,
    ) {
        let Some(via) = &peek.via else { return };
        let tag = local::to_tag(self.proxy.tag_key(), key);
        let feedback = self.proxy.feedback(now, via, source);
        self.send_short(local::response_flow(via, source), source, peek.head(), |out, is_short| {
            let about = (status, if is_short { status.reason() } else { reason });
            local::begin_with(out, &tag, (peek.head(), via), source, about, feedback.as_ref()).finish();
        });
    }

    pub(crate) fn handle_response(&mut self, now: Timestamp, source: Flow, peek: &Peek<'_>, steered: &SteeringResult) {
        self.counters.responses += 1;
        let is_ours = |branch: &BranchId| branch.shard == self.id || branch.shard == ANY_SHARD;
        //= rfc3261#18.1.2:foreign
        //= rfc3261#16.11:foreign
        let Some(branch) = steered.branch.filter(is_ours) else {
            self.counters.foreign_responses += 1;
            return;
        };
        let message = Message::from_peek(peek);
        let message = match &message {
            Ok(message) => message,
            Err(fault) => {
                self.on_malformed(&source, *fault);
                return;
            }
        };
        if self.media.is_some() && self.hold_response(now, source, branch.owner, message) {
            return;
        }
        self.pass_response(now, source, branch.owner, message);
    }

    /// Gives a response to the transaction layer.
    // Inlined because every response passes here.
    #[inline(always)]
    pub(crate) fn pass_response(&mut self, now: Timestamp, source: Flow, owner: BranchOwner, message: &Message<'_>) {
        let mut guide = ShardCallbacks {
            snapshot: &self.snapshot,
            locations: &self.locations,
            names: &self.names,
            outages: &self.outages,
            ring: *self.proxy.ring(),
            tag_key: *self.proxy.tag_key(),
            source,
            questions: &mut self.questions,
            refused: None,
        };
        let outcome = self.proxy.handle_response(now, owner, message, &mut guide);
        let refused = guide.refused;
        if let ResponseOutcome::OwnRequest(user) = outcome {
            match message.status() {
                Some(status) if user >= PROBE_USERS => self.handle_probe_response(now, user, status),
                Some(status) if user >= BYE_USERS => self.handle_bye_response(now, user, message, status),
                _ => self.trunk_registrations.handle_response(now, user, message),
            }
        }
        let has_answered = self.drain_components(now, Some((message, &source)));
        if let Some(refused) = refused {
            self.report_local_destination(refused);
        }
        // A source that answers a BYE is already proven by its answer to the INVITE.
        if message.status().is_some_and(Status::is_success) && message.cseq().method != Method::Bye {
            self.proven.insert(now, source.peer.ip());
        }
        // A response that answers a call has already set the session's lifetime.
        if !has_answered && message.status().is_some_and(Status::is_success) {
            self.refresh_call(now, message);
        }
    }

    fn on_malformed(&mut self, source: &Flow, fault: Fault) {
        self.counters.malformed += 1;
        self.report(Event::Malformed { peer: source.peer, transport: source.transport, fault });
    }
}

/// The relation of a request to the transaction that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionMatch {
    /// The ACK that the transaction waited for.
    Ack,
    /// A retransmission.
    Retransmission,
    /// A different request with the branch of one already answered.
    ReusedBranch,
}

/// A received request that matches no transaction.
#[derive(Clone, Copy)]
pub(crate) struct NewRequest<'a, 'm> {
    pub(crate) source: Flow,
    pub(crate) key: ServerKey,
    pub(crate) message: &'m Message<'a>,
    pub(crate) steered: &'m SteeringResult,
}
