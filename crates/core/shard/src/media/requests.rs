//! Requests with session descriptions.

use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::{Flow, Timestamp};
use strowger_media::{Command, Dialog, Exchange, MediaCall, RequestKind, SdpRole};
use strowger_message::{HeaderName, Message, Method, Status};
use strowger_proxy::forward::with_body;
use strowger_proxy::routing::RouteSet;
use strowger_proxy::{Changes, Target, TargetBody};
use strowger_transaction::ServerId;

use super::body::{body_with, sdp_of};
use super::parties::{applies, is_browser_target, may_carry_offer, profile, translated_source};
use super::{HeldKind, HeldMessage, HeldRequest, MediaFailure, Outgoing, user_of};
use crate::own_responses::Refusal;
use crate::request::Request;
use crate::router::ForwardOptions;
use crate::shard::Shard;

/// What a description of a request is to its call.
struct Description<'a> {
    role: SdpRole,
    offerer: &'a [u8],
    answerer: Option<&'a [u8]>,
}

/// What follows from looking at a request.
enum Verdict {
    /// It is forwarded now.
    Pass,
    /// It waits.
    Held,
    /// It cannot wait.
    Failed(MediaFailure),
}

impl Shard {
    /// Returns whether a request waits for an engine, or was refused because no engine can be asked.
    #[cold]
    pub(crate) fn hold_request(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        outgoing: &mut Outgoing<'_>,
    ) -> bool {
        match self.try_hold_request(now, request, outgoing) {
            Verdict::Pass => false,
            Verdict::Held => {
                self.drive_media(now);
                true
            }
            Verdict::Failed(failure) => self.fail_at_once(now, request, outgoing, &failure),
        }
    }

    fn try_hold_request(&mut self, now: Timestamp, request: &Request<'_, '_>, outgoing: &mut Outgoing<'_>) -> Verdict {
        let message = request.message;
        let (Some(policy), Some(hook), Some(calls)) = (&request.snapshot.media, &mut self.media, &self.calls) else {
            return Verdict::Pass;
        };
        let (Some(server), Some(from_tag)) = (outgoing.by.server(), message.from().tag()) else {
            return Verdict::Pass;
        };
        let (sdp, is_invite) = (sdp_of(message), message.method() == Method::Invite);
        if !may_carry_offer(message.method()) || (sdp.is_none() && !is_invite) {
            return Verdict::Pass;
        }
        let (keys, to_tag) = (calls.keys_of(message), message.to().tag());
        // An INVITE that passes this server twice is rewritten once.
        let is_spiral =
            |call: &MediaCall| to_tag.is_none() && call.invite_of_ack(message.cseq().number, from_tag).is_some();
        let (key, is_new) = match hook.calls.find(keys) {
            Some((_, call)) if is_spiral(call) => return Verdict::Pass,
            Some((key, _)) => (key, false),
            None if !applies(policy.when, message, &request.source, outgoing.targets) => return Verdict::Pass,
            None => (keys[0], true),
        };
        if is_new && to_tag.is_none() && outgoing.call == 0 {
            hook.table_full = hook.table_full.wrapping_add(1);
            return Verdict::Failed(MediaFailure::TableFull);
        }
        let Some(call) = hook.calls.begin(now, key, message.call_id(), from_tag) else {
            hook.table_full = hook.table_full.wrapping_add(1);
            return Verdict::Failed(MediaFailure::TableFull);
        };
        let transaction = server.to_bits();
        let described = describe(call, message, from_tag, sdp.is_some());
        if described.role == SdpRole::Offer {
            call.begin(Exchange {
                transaction,
                cseq: message.cseq().number,
                requester_tag: from_tag.into(),
                is_invite,
                has_offer: sdp.is_some(),
                branches: u8::try_from(outgoing.targets.len()).unwrap_or(u8::MAX),
                is_from_browser: request.source.transport.is_web_socket(),
                offered_by: None,
                is_offered_by_browser: false,
            });
        }
        let Some(sdp) = sdp else { return Verdict::Pass };
        if described.role == SdpRole::Answer && call.engine.is_none() {
            return Verdict::Pass;
        }
        if !hook.has_room() {
            return Verdict::Failed(MediaFailure::TableFull);
        }
        self.hold_and_ask(now, request, outgoing, (key, server), &described, sdp);
        Verdict::Held
    }

    /// Holds a request, and asks for a description for each of its targets.
    fn hold_and_ask(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        outgoing: &mut Outgoing<'_>,
        (key, server): (u64, ServerId),
        described: &Description<'_>,
        sdp: &[u8],
    ) {
        let Some(hook) = &mut self.media else { return };
        let message = request.message;
        let received_from = translated_source(message, &request.source);
        let to: SmallVec<[bool; 4]> = outgoing.targets.iter().map(is_browser_target).collect();
        let held = HeldMessage {
            bytes: message.bytes().to_vec(),
            source: request.source,
            call: key,
            transaction: server.to_bits(),
            kind: HeldKind::Request(Box::new(HeldRequest {
                by: outgoing.by,
                server,
                call: outgoing.call,
                is_authenticated: request.is_authenticated(),
                onward: outgoing.onward,
                targets: core::mem::take(outgoing.targets),
            })),
            bodies: to.iter().map(|_| None).collect(),
            missing: u8::try_from(to.len()).unwrap_or(u8::MAX),
            held_key: 0,
            result_key: 0,
            failure: None,
        };
        let token = hook.hold(held);
        for (number, is_to_browser) in to.iter().enumerate() {
            let branch = (to.len() > 1).then(|| branch_name(message.cseq().number, number));
            let dialog = Dialog {
                call_id: message.call_id(),
                from_tag: described.offerer,
                to_tag: described.answerer,
                branch: branch.as_deref(),
            };
            let profile = profile(request.source.transport.is_web_socket(), *is_to_browser, received_from);
            let (kind, command) = match described.role {
                SdpRole::Offer => (RequestKind::Offer, Command::Offer(dialog, profile, sdp)),
                SdpRole::Answer => (RequestKind::Answer, Command::Answer(dialog, profile, sdp)),
            };
            hook.ask(now, key, (user_of(token, number), kind), command);
        }
    }

    /// Handles a request that no engine can be asked about. Returns whether it was refused.
    fn fail_at_once(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        outgoing: &Outgoing<'_>,
        failure: &MediaFailure,
    ) -> bool {
        let on_failure = request.snapshot.media.as_ref().map(|policy| policy.on_failure).unwrap_or_default();
        let is_refused = on_failure == strowger_media::FailurePolicy::Refuse;
        self.report_media_failure(now, request.message.bytes(), failure, is_refused);
        let Some(hook) = &mut self.media else { return false };
        if !is_refused {
            hook.bypassed = hook.bypassed.wrapping_add(1);
            return false;
        }
        hook.refused = hook.refused.wrapping_add(1);
        let refusal = Refusal::Status(Status::SERVICE_UNAVAILABLE, Some(failure.phrase()));
        self.fail_tracked(now, outgoing.call, Status::SERVICE_UNAVAILABLE);
        self.refuse(now, outgoing.by, request.source, request.message, refusal);
        true
    }

    /// Forwards a request that has waited. Each target gets its own body.
    pub(super) fn release_request(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        source: Flow,
        held: HeldRequest,
        bodies: &[Vec<u8>],
    ) {
        let HeldRequest { by, server, call, is_authenticated, onward, mut targets } = held;
        let rewritten = bodies.first().and_then(|body| rewrite(bytes, body));
        let received = Message::parse(bytes).ok();
        for (number, (target, sdp)) in targets.iter_mut().zip(bodies).enumerate().skip(1) {
            let whole = received.as_ref().map_or(sdp.as_slice().into(), |message| body_with(message, sdp));
            let body = TargetBody { bytes: (&*whole).into(), number: u8::try_from(number).unwrap_or(u8::MAX) };
            let changes = target.changes.as_deref().cloned().unwrap_or_default();
            target.changes = Some(Arc::new(Changes { body: Some(body), ..changes }));
        }
        let Ok(message) = Message::parse(rewritten.as_deref().unwrap_or(bytes)) else {
            // The engine's description is longer than any message.
            let failure = MediaFailure::Refused("too long a description".to_owned());
            let held = HeldRequest { by, server, call, is_authenticated, onward, targets };
            return self.refuse_held(now, bytes, source, &held, &failure);
        };
        let snapshot = Arc::clone(&self.snapshot);
        let mut routes = RouteSet::default();
        match self.examine(source, &snapshot, &message, None, &mut routes) {
            Ok(request) => {
                request.set_authenticated(is_authenticated);
                self.forward_opened(now, server, &request, onward, call, &mut targets);
            }
            // The Routes were valid when it came, unless a listener that they name has closed meanwhile.
            Err(refusal) => {
                self.fail_tracked(now, call, Status::SERVER_ERROR);
                self.refuse(now, by, source, &message, refusal);
            }
        }
    }

    /// Refuses a request that has waited in vain.
    pub(super) fn refuse_held(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        source: Flow,
        held: &HeldRequest,
        failure: &MediaFailure,
    ) {
        let Ok(message) = Message::parse(bytes) else { return };
        self.fail_tracked(now, held.call, Status::SERVICE_UNAVAILABLE);
        let refusal = Refusal::Status(Status::SERVICE_UNAVAILABLE, Some(failure.phrase()));
        self.refuse(now, held.by, source, &message, refusal);
    }

    //= rfc3261#9.2
    /// Answers 487 to a held INVITE that is cancelled.
    pub(super) fn terminate_held(&mut self, now: Timestamp, bytes: &[u8], source: Flow, held: &HeldRequest) {
        let Ok(message) = Message::parse(bytes) else { return };
        self.fail_tracked(now, held.call, Status::REQUEST_TERMINATED);
        self.answer(now, held.by, source, &message, Status::REQUEST_TERMINATED, None, |reply| reply);
    }

    /// Returns whether an ACK waits for an engine: its description answers the offer in the 2xx.
    #[cold]
    pub(crate) fn hold_ack(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        onward: ForwardOptions,
        targets: &[Target],
    ) -> bool {
        let message = request.message;
        let (Some(hook), Some(calls)) = (&mut self.media, &self.calls) else { return false };
        let (Some(sdp), Some(from_tag), Some(to_tag)) = (sdp_of(message), message.from().tag(), message.to().tag())
        else {
            return false;
        };
        let keys = calls.keys_of(message);
        let Some((key, call)) = hook.calls.find(keys) else {
            let is_expected = calls.expects_imports();
            return is_expected
                && self.hold_early_ack(now, request, onward, targets, (keys[0], [to_tag, from_tag], sdp));
        };
        let Some(invite) = call.invite_of_ack(message.cseq().number, from_tag).filter(|invite| !invite.has_offer)
        else {
            return false;
        };
        let (transaction, is_to_browser) = (invite.transaction, invite.is_offered_by_browser);
        if call.engine.is_none() {
            return false;
        }
        let result_key = hook.calls.result_key(transaction, SdpRole::Answer, [to_tag, from_tag], sdp);
        let result = hook.calls.get_mut(key).and_then(|call| call.result(result_key)).map(<[u8]>::to_vec);
        if let Some(sdp) = result {
            self.release_ack(now, message.bytes(), request.source, onward, targets, &[sdp]);
            return true;
        }
        if hook.is_held(result_key) {
            return true;
        }
        if !hook.has_room() {
            hook.bypassed = hook.bypassed.wrapping_add(1);
            return false;
        }
        let token = hook.hold(held_ack(request, onward, targets, (key, result_key, result_key)));
        let command = answer_of_ack(request, [to_tag, from_tag], is_to_browser, sdp);
        hook.ask(now, key, (user_of(token, 0), RequestKind::Answer), command);
        self.drive_media(now);
        true
    }

    /// Like [`hold_ack`](Self::hold_ack), for an ACK that is faster than its call, which another process has set up. An
    /// ACK has a description only if the 2xx had the offer, and the engine of that is found by the Call-ID.
    fn hold_early_ack(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        onward: ForwardOptions,
        targets: &[Target],
        (key, [offerer, answerer], sdp): (u64, [&[u8]; 2], &[u8]),
    ) -> bool {
        let (message, snapshot) = (request.message, request.snapshot);
        let (Some(hook), Some(policy)) = (&mut self.media, &snapshot.media) else { return false };
        if !applies(policy.when, message, &request.source, targets) {
            return false;
        }
        let held_key = hook.calls.result_key(0, SdpRole::Answer, [offerer, answerer], sdp);
        if hook.is_held(held_key) {
            return true;
        }
        if !hook.has_room() {
            hook.bypassed = hook.bypassed.wrapping_add(1);
            return false;
        }
        let user = user_of(hook.hold(held_ack(request, onward, targets, (key, held_key, 0))), 0);
        let is_to_browser = targets.first().is_some_and(is_browser_target);
        let call = hook.calls.hash_of(message.call_id());
        let engine = policy.engines.select(call, &[]).map(Arc::clone);
        let command = answer_of_ack(request, [offerer, answerer], is_to_browser, sdp);
        hook.client.start(now, &strowger_media::Request { user, kind: RequestKind::Answer, call, engine, command });
        self.drive_media(now);
        true
    }

    pub(super) fn release_ack(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        source: Flow,
        onward: ForwardOptions,
        targets: &[Target],
        bodies: &[Vec<u8>],
    ) {
        let rewritten = bodies.first().and_then(|body| rewrite(bytes, body));
        let Ok(message) = Message::parse(rewritten.as_deref().unwrap_or(bytes)) else { return };
        let snapshot = Arc::clone(&self.snapshot);
        let mut routes = RouteSet::default();
        if let Ok(request) = self.examine(source, &snapshot, &message, None, &mut routes) {
            self.forward_stateless(now, &request, onward, targets);
        }
    }
}

/// Returns what a request's description is to its call.
fn describe<'a>(call: &mut MediaCall, message: &Message<'a>, from_tag: &'a [u8], has_sdp: bool) -> Description<'a> {
    let to_tag = message.to().tag();
    //= rfc3262#5
    // The PRACK for a response with an offer has the answer.
    let answered = (message.method() == Method::Prack && has_sdp)
        .then(|| to_tag.and_then(|tag| call.invite_of_prack(from_tag, tag)).map(|invite| invite.transaction));
    match (answered.flatten(), to_tag) {
        (Some(transaction), Some(offerer)) => {
            call.record_prack_answer(transaction);
            Description { role: SdpRole::Answer, offerer, answerer: Some(from_tag) }
        }
        _ => Description { role: SdpRole::Offer, offerer: from_tag, answerer: to_tag },
    }
}

/// Returns the name of a branch of a forked offer at the engine.
pub(super) fn branch_name(cseq: u32, number: usize) -> Vec<u8> {
    format!("{cseq}-{number}").into_bytes()
}

/// Returns a message with another description.
pub(super) fn rewrite(bytes: &[u8], sdp: &[u8]) -> Option<Vec<u8>> {
    let message = Message::parse(bytes).ok()?;
    debug_assert!(message.head().has(HeaderName::ContentType), "only descriptions are replaced");
    Some(with_body(&message, &body_with(&message, sdp)))
}

/// Returns an ACK that waits for the answer of an engine: for the call with key `call`, held under `held_key`, with its result
/// kept under `result_key` (0: not at all).
fn held_ack(
    request: &Request<'_, '_>,
    onward: ForwardOptions,
    targets: &[Target],
    (call, held_key, result_key): (u64, u64, u64),
) -> HeldMessage {
    HeldMessage {
        bytes: request.message.bytes().to_vec(),
        source: request.source,
        call,
        transaction: 0,
        kind: HeldKind::Ack { onward, targets: targets.to_vec() },
        bodies: SmallVec::from_elem(None, 1),
        missing: 1,
        held_key,
        result_key,
        failure: None,
    }
}

/// Returns the command for an ACK whose description answers the offer in the 2xx.
fn answer_of_ack<'m>(
    request: &Request<'_, 'm>,
    [offerer, answerer]: [&'m [u8]; 2],
    is_to_browser: bool,
    sdp: &'m [u8],
) -> Command<'m> {
    let message = request.message;
    let dialog = Dialog { call_id: message.call_id(), from_tag: offerer, to_tag: Some(answerer), branch: None };
    let received_from = translated_source(message, &request.source);
    Command::Answer(dialog, profile(request.source.transport.is_web_socket(), is_to_browser, received_from), sdp)
}
