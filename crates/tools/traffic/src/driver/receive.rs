//! Incoming messages: the session they belong to, whether they are new, and what the script does with them.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use strowger_auth::client;
use strowger_foundation::Timestamp;
use strowger_message::{AuthParams, Head, HeaderName, Method, StartLine, unquote};

use crate::driver::answer::IncomingMessage;
use crate::meter::ResponseClass;
use crate::script::{Expect, Failure, Kind, MethodId, SessionResult, Step};
use crate::session::{ALONE, CANCELLED, Challenge, NEVER, NO_INVITE, TRYING_LATER, UNSPECIFIED_ADDRESS};

use super::answer::{has_tag, reply_address, without_class};
use super::{Driver, LastMessage, Outbox, StepContext, dialog};

/// Maximum number of challenges answered in a row, separately for the proxy and the callee: the second may be of
/// another realm.
const MAX_CHALLENGES: u8 = 2;

impl Driver {
    /// A message came. `arrived` is when the kernel had it, `now` when it is handled. Where it belongs to a call of another of
    /// those who answer at this address ([`Setup::partition`](super::Setup::share)), nothing is done but to say whose.
    pub fn handle_message(
        &mut self,
        now: Timestamp,
        arrived: Timestamp,
        (link, peer): (u32, SocketAddr),
        bytes: &[u8],
        out: &mut dyn Outbox,
    ) -> Option<u32> {
        let Ok(head) = Head::scan(bytes) else {
            // Empty lines are NAT keep-alives.
            if !bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                self.meter.on_received(Kind::Garbage);
                self.meter.on_unexpected(bytes);
            }
            return None;
        };
        let kind = match head.start() {
            StartLine::Request { method, .. } => Kind::Request(MethodId::of(method)),
            StartLine::Response { status, .. } => Kind::Response(status.code()),
        };
        let (Some(call_id), Some((number, verb))) =
            (head.first(HeaderName::CallId), head.first(HeaderName::CSeq).and_then(read_cseq))
        else {
            self.meter.on_received(Kind::Garbage);
            self.meter.on_unexpected(bytes);
            return None;
        };
        let call = self.hash(call_id);
        let owner = self.setup.partition.owner_elsewhere(call);
        if owner.is_some() {
            return owner;
        }
        let answers_by_via =
            !self.setup.transport.is_reliable() && matches!(kind, Kind::Request(verb) if verb != MethodId::Ack);
        let (to, is_plain) = if answers_by_via { reply_address(&head, peer) } else { (peer, false) };
        let got = IncomingMessage { kind, number, method: verb, from: (link, to), head: &head, bytes };
        let slot = self.calls.get(call);
        // An ACK to a known call does not need it.
        let may_ask = matches!(kind, Kind::Request(verb) if verb != MethodId::Ack || slot.is_none());
        let has_tag = may_ask.then(|| has_tag(&head));
        let last = LastMessage { head: &head, plain_via: is_plain.then(|| peer.ip()), has_tag };
        let mut walk = StepContext { now, out, last: Some(last) };
        match (kind, slot) {
            (Kind::Response(status), Some(slot)) => self.on_response(slot, status, &got, arrived, &mut walk),
            (Kind::Request(verb), Some(slot)) => self.on_request(slot, verb, &got, &mut walk),
            (Kind::Request(MethodId::Invite), None) if has_tag == Some(false) && self.has_ended(now, call, number) => {
                self.meter.repeats_received += 1;
            }
            (Kind::Request(verb), None) => self.on_new_request(call, verb, has_tag == Some(true), &got, &mut walk),
            //= rfc3261#17.1.1.2
            // The ACK to the refusal was lost or is late.
            (Kind::Response(300..), None)
                if verb == MethodId::Invite && self.acknowledge_again(call, (link, peer), &mut walk) =>
            {
                self.meter.repeats_received += 1;
            }
            (_, None) | (Kind::Garbage, _) => self.meter.late += 1,
        }
        let out = walk.out;
        self.begin_started(now, out);
        None
    }

    fn on_response(
        &mut self,
        slot: u32,
        status: u16,
        got: &IncomingMessage<'_>,
        arrived: Timestamp,
        walk: &mut StepContext<'_, '_>,
    ) {
        let max_ring = self.setup.max_ring;
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let is_invite = got.method == MethodId::Invite;
        let is_current = if is_invite {
            got.number == session.invite_cseq && session.invite_class == 0
        } else {
            let number = if got.method == MethodId::Cancel { session.invite_cseq } else { session.cseq };
            got.number == number && got.method == session.sent_method && !session.flags.is_answered
        };
        if !is_current {
            return self.on_other_response(slot, status, got, arrived, walk);
        }
        let is_counted = session.flags.epoch == self.epoch;
        if is_counted {
            self.meter.on_received(got.kind);
        }
        let begun = if is_invite { session.invite_at } else { session.sent_at };
        let is_first = status >= 200 || !session.flags.is_ringing;
        session.flags.is_ringing |= is_invite && status > 100;
        if ResponseClass::of(status).is_some() && is_first {
            let after = arrived.saturating_since(begun);
            if is_counted {
                self.meter.on_answer(got.method, status, after);
            }
            if (200..300).contains(&status) {
                let from_due = session.attempt.on_success(after).filter(|_| session.flags.is_ours && is_counted);
                if let Some(after) = from_due {
                    self.meter.from_due.entry(got.method).or_default().record(after);
                }
            }
        }
        if is_counted {
            session.attempt.on_response(got.method, status, arrived, &mut self.meter.metrics);
        }
        if status >= 200 {
            if let Some(extra) = session.extra.as_mut().filter(|_| status < 300) {
                extra.challenges.iter_mut().for_each(|challenged| challenged.times = 0);
            }
            if is_invite {
                session.invite_class = u8::try_from(status / 100).unwrap_or(9);
                if status < 300 && session.accepted_cseq == NO_INVITE {
                    session.accepted_cseq = session.invite_cseq;
                }
            } else {
                session.flags.is_answered = true;
                session.flags.is_hung_up |= got.method == MethodId::Bye && status < 300;
            }
        }
        let is_of_resent = got.method == session.sent_method;
        session.flags.is_proceeding |= is_of_resent && !is_invite && status < 200;
        if status >= 200 && is_of_resent {
            (session.resend_at, session.give_up_at) = (NEVER, NEVER);
        } else if is_of_resent && is_invite {
            session.resend_at = NEVER;
            session.give_up_at = walk.now + max_ring;
        }
        if status >= 200 && got.method == MethodId::Cancel && session.invite_class == 0 {
            // The final response to the INVITE is still to come.
            session.give_up_at = walk.now + self.setup.t1 * 64;
        }
        self.deliver(slot, got, walk);
    }

    /// Handles a response that does not answer the last request, mostly a retransmission.
    fn on_other_response(
        &mut self,
        slot: u32,
        status: u16,
        got: &IncomingMessage<'_>,
        arrived: Timestamp,
        walk: &mut StepContext<'_, '_>,
    ) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if got.method == MethodId::Cancel
            && status >= 200
            && let Some(cancel) = session.extra.as_mut().map(|extra| &mut extra.cancel)
            && let Some((_, sent_at)) = cancel.take_if(|(number, _)| *number == got.number)
        {
            // No step waits for it.
            if session.flags.epoch == self.epoch {
                self.meter.on_received(got.kind);
                self.meter.on_answer(got.method, status, arrived.saturating_since(sent_at));
                self.meter.transactions.add(got.method, status < 300);
            }
            return;
        }
        if Self::is_of_forks_bye(session, got) {
            if session.flags.epoch == self.epoch {
                self.meter.on_received(got.kind);
            }
            return;
        }
        self.meter.repeats_received += 1;
        if got.method != MethodId::Invite || status < 200 {
            return;
        }
        let is_last = got.number == session.invite_cseq;
        let is_refused =
            session.invite_class > 2 && (session.ack_step != UNSPECIFIED_ADDRESS || session.step == TRYING_LATER);
        match status {
            //= rfc3261#13.2.2.4
            // Each repeated final response to an INVITE is acknowledged again.
            ..300 if is_last && session.invite_class == 2 => {
                if Self::is_of_other_fork(session, got) {
                    self.end_fork(slot, got, walk);
                } else if session.ack_step != UNSPECIFIED_ADDRESS {
                    let step = session.ack_step;
                    self.write_again(slot, step, walk);
                }
            }
            //= rfc3261#17.1.1.2
            300.. if got.number < session.invite_cseq || (is_last && is_refused) => self.acknowledge(slot, true, walk),
            _ => {}
        }
    }

    fn on_request(&mut self, slot: u32, verb: MethodId, got: &IncomingMessage<'_>, walk: &mut StepContext<'_, '_>) {
        let (link, peer) = got.from;
        let is_stream = self.setup.transport.is_reliable();
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let is_repeat = got.number == session.got_cseq && verb == session.received_method;
        if is_repeat {
            self.meter.repeats_received += 1;
            let step = session.reply_step;
            match step {
                _ if verb == MethodId::Ack => {}
                ALONE => self.answer_again(slot, verb, got.head, walk),
                UNSPECIFIED_ADDRESS => {}
                step => self.write_again(slot, step, walk),
            }
            return;
        }
        if verb == MethodId::Ack {
            if got.number == session.got_cseq && session.received_method == MethodId::Invite {
                (session.resend_at, session.give_up_at) = (NEVER, NEVER);
            }
        } else if verb == MethodId::Cancel {
            //= rfc3261#18.2.2
            // The response to the CANCEL goes to its source; the response to the INVITE goes to the source of the
            // INVITE.
        } else if !(session.flags.is_ours || session.flags.is_routed) {
            // Responses leave on the connection on which the request came.
            session.peer = peer;
            if session.link != link {
                if is_stream {
                    self.sessions.move_to_link(slot, link);
                } else {
                    session.link = link;
                }
            }
        } else if session.reply_to() != (link, peer) {
            let is_usual = (session.link, session.peer) == (link, peer);
            session.extra_mut().reply_to = (!is_usual).then_some((link, peer));
        }
        let Some(session) = self.sessions.get_mut(slot) else { return };
        if !matches!(verb, MethodId::Cancel | MethodId::Ack) {
            if session.received_method == MethodId::Invite && session.resend_step == session.reply_step {
                // A peer that continues has received the 200, although its ACK is late or lost.
                (session.resend_at, session.give_up_at) = (NEVER, NEVER);
            }
            (session.got_cseq, session.received_method) = (got.number, verb);
            session.reply_step = UNSPECIFIED_ADDRESS;
            session.flags.is_pending |= verb == MethodId::Invite;
        }
        session.flags.is_hung_up |= verb == MethodId::Bye;
        if session.flags.epoch == self.epoch {
            self.meter.on_received(got.kind);
            if verb == MethodId::Bye {
                session.attempt.on_bye(walk.now, &mut self.meter.metrics);
            }
        }
        self.deliver(slot, got, walk);
    }

    /// Handles a request that belongs to no session: begins one, or answers it statelessly.
    fn on_new_request(
        &mut self,
        call: u64,
        verb: MethodId,
        is_in_dialog: bool,
        got: &IncomingMessage<'_>,
        walk: &mut StepContext<'_, '_>,
    ) {
        let (link, peer) = got.from;
        let script = self.script_answering(verb, got.head);
        if let (Some(script), false) = (script, is_in_dialog) {
            if self.sessions.len() >= self.setup.max_sessions {
                self.meter.answered.refused += u64::from(self.counts);
                return;
            }
            let serial = self.next_serial();
            let (slot, epoch) = (self.sessions.insert(), self.epoch_of_new());
            let is_stream = self.setup.transport.is_reliable();
            let local = if is_stream { 0 } else { u16::try_from(link).unwrap_or(0) };
            let Some(session) = self.sessions.get_mut(slot) else { return };
            (session.serial, session.call, session.began) = (serial, call, walk.now);
            (session.script, session.step) = (script, 0);
            (session.peer, session.link, session.local) = (peer, link, local);
            (session.got_cseq, session.received_method) = (got.number, verb);
            if verb == MethodId::Invite {
                session.first_cseq = got.number;
            }
            session.flags.is_live = true;
            session.flags.epoch = epoch;
            session.flags.is_pending = verb == MethodId::Invite;
            if is_stream {
                self.sessions.move_to_link(slot, link);
            }
            self.calls.insert(call, slot);
            if self.counts {
                self.meter.on_begin(false);
                self.meter.on_begin_of(script);
                self.meter.on_received(got.kind);
            }
            // A script of the answering end begins by waiting for the message that starts it.
            return self.deliver(slot, got, walk);
        }
        if verb == MethodId::Ack {
            self.meter.late += 1;
            return;
        }
        if verb == MethodId::Cancel {
            //= rfc3261#9.2
            // The transaction to cancel has ended or never existed.
            self.meter.late += 1;
            let status = (481, "Call/Transaction Does Not Exist");
            return self.answer_stateless(call, status, (link, peer), got.head, walk);
        }
        // If our 200 was lost, the BYE of an ended call comes again; the tag proves that the call was ours.
        let to = got.head.first(HeaderName::To).unwrap_or(&[]);
        let was_ours = without_class(to).ends_with(&super::hex(self.tag(call))[..10]);
        let (status, reason) = match verb {
            MethodId::Bye if was_ours => (200, "OK"),
            MethodId::Options => (200, "OK"),
            _ if is_in_dialog => (481, "Call/Transaction Does Not Exist"),
            _ => (405, "Method Not Allowed"),
        };
        if was_ours {
            self.meter.repeats_received += 1;
        } else {
            self.meter.on_received(got.kind);
            self.meter.on_unexpected(got.bytes);
        }
        self.answer_stateless(call, (status, reason), (link, peer), got.head, walk);
    }

    /// Passes a message to the waiting step.
    fn deliver(&mut self, slot: u32, got: &IncomingMessage<'_>, walk: &mut StepContext<'_, '_>) {
        let Some(session) = self.sessions.get(slot) else { return };
        if session.step == CANCELLED {
            return self.on_request_after_cancel(slot, got, walk);
        }
        let epoch = session.flags.epoch;
        let Some(script) = self.script_of(session) else { return };
        let policy = script.policy;
        let expects = match script.steps.get(usize::from(session.step)) {
            Some(Step::Wait { expects, .. }) => {
                script.expects.get(usize::from(expects.start)..usize::from(expects.end)).unwrap_or(&[])
            }
            _ => &[],
        };
        let fitting = expects.iter().find(|expect| expect.what.fits(got.kind, got.method));
        let Some(expect) = fitting.cloned() else { return self.on_unexpected(slot, got, walk) };
        let taken = self.extract(slot, &expect, got, policy.follow_routes);
        if matches!(got.kind, Kind::Response(200..)) && epoch == self.epoch {
            self.meter.transactions.add(got.method, taken.is_ok());
        }
        if let Err(ending) = taken {
            //= rfc3261#17.1.1.3
            // The script does not continue, so it does not send its own ACK.
            if got.method == MethodId::Invite && matches!(got.kind, Kind::Response(300..)) {
                self.acknowledge(slot, false, walk);
            }
            return self.end(slot, ending, walk);
        }
        if !expect.actions.is_empty() && !self.run_actions(slot, expect.actions.clone(), walk) {
            return self.end(slot, SessionResult::Failed(Failure::Script), walk);
        }
        let Some(session) = self.sessions.get_mut(slot) else { return };
        match expect.to {
            Some(to) => {
                (session.step, session.deadline) = (to, NEVER);
                self.run_steps(slot, walk);
                self.keep_invite(slot, got, policy.answer_unexpected);
            }
            None => self.arm(slot),
        }
    }

    /// Stores an unanswered INVITE for a CANCEL that the script does not expect.
    fn keep_invite(&mut self, slot: u32, got: &IncomingMessage<'_>, answers: bool) {
        if got.kind != Kind::Request(MethodId::Invite) || !answers {
            return;
        }
        let Some(session) = self.sessions.get_mut(slot).filter(|session| session.flags.is_live) else { return };
        if session.flags.is_pending && session.last.is_empty() {
            session.last.extend_from_slice(got.bytes);
        }
    }

    /// Extracts from a message what the script asks for.
    fn extract(
        &mut self,
        slot: u32,
        expect: &Expect,
        got: &IncomingMessage<'_>,
        follow: bool,
    ) -> Result<(), SessionResult> {
        let is_stream = self.setup.transport.is_reliable();
        let Some(session) = self.sessions.get_mut(slot) else { return Ok(()) };
        let is_response = matches!(got.kind, Kind::Response(_));
        if expect.extract.dialog {
            dialog::store_dialog(&mut session.dialog, got.head, is_response);
            //= rfc3261#12.2.1.1
            // Responses still go to the sources of requests.
            if follow
                && !is_stream
                && let Some(peer) = dialog::destination(&session.dialog)
            {
                let from = session.reply_to();
                session.peer = peer;
                if !session.flags.is_ours {
                    session.flags.is_routed = true;
                    if session.reply_to() != from {
                        session.extra_mut().reply_to = Some(from);
                    }
                }
            }
        }
        if expect.extract.challenge {
            let (name, is_proxy) = match got.kind {
                Kind::Response(407) => (HeaderName::ProxyAuthenticate, true),
                _ => (HeaderName::WwwAuthenticate, false),
            };
            let known = got.head.all(name).find(|value| {
                AuthParams::parse(value).is_some_and(|challenge| client::algorithm(&challenge).is_some())
            });
            let user = session.caller;
            let challenged = &mut session.extra_mut().challenges[usize::from(is_proxy)];
            let parts = known.and_then(AuthParams::parse);
            let is_stale = parts.and_then(|challenge| challenge.value("stale"));
            let is_stale = is_stale.is_some_and(|stale| unquote(stale).eq_ignore_ascii_case(b"true"));
            let answered = challenged.challenge.as_ref().filter(|_| challenged.times > 0);
            let answered = answered.and_then(|known| AuthParams::parse(&known.value)).and_then(realm_of);
            //= rfc3261#22.3
            // A challenge to fresh credentials means that they are wrong; the same ones are not tried again.
            let is_refused = answered.is_some() && answered == parts.and_then(realm_of);
            if (is_refused || challenged.times >= MAX_CHALLENGES) && !is_stale {
                if let Some(nonces) = &mut self.nonces {
                    nonces.forget(user, got.method, is_proxy);
                }
                let status = if let Kind::Response(status) = got.kind { status } else { 0 };
                return Err(SessionResult::Refused(status));
            }
            let value = known.ok_or(SessionResult::Failed(Failure::Challenge))?.into();
            let challenge = Arc::new(Challenge { value, is_proxy });
            if let Some(nonces) = &mut self.nonces {
                nonces.put(user, got.method, &challenge);
            }
            challenged.times = challenged.times.saturating_add(1);
            (challenged.challenge, challenged.nonce_count) = (Some(challenge), 0);
        }
        if expect.extract.copy {
            session.last.clear();
            session.last.extend_from_slice(got.bytes);
        } else if expect.to.is_some() {
            session.last.clear();
        }
        Ok(())
    }

    /// Handles a message that the script does not expect.
    fn on_unexpected(&mut self, slot: u32, got: &IncomingMessage<'_>, walk: &mut StepContext<'_, '_>) {
        let Some(session) = self.sessions.get(slot) else { return };
        let is_counted = session.flags.epoch == self.epoch;
        let Some(policy) = self.script_of(session).map(|script| script.policy) else { return };
        match got.kind {
            Kind::Response(..=199) => self.arm(slot),
            Kind::Response(status) => {
                if is_counted {
                    self.meter.transactions.add(got.method, false);
                }
                if got.method == MethodId::Invite && status >= 300 && policy.acknowledge_unexpected {
                    self.acknowledge(slot, false, walk);
                }
                if status < 300 {
                    self.meter.on_unexpected(got.bytes);
                    return self.end(slot, SessionResult::Failed(Failure::Unexpected), walk);
                }
                self.meter.refusals.on_response(status, got.bytes);
                if !self.schedule_retry(slot, status, got, walk) {
                    self.end(slot, SessionResult::Refused(status), walk);
                }
            }
            Kind::Request(verb) => self.on_unexpected_request(slot, verb, policy, got, walk),
            Kind::Garbage => {
                self.meter.on_unexpected(got.bytes);
                self.end(slot, SessionResult::Failed(Failure::Unexpected), walk);
            }
        }
    }
}

fn realm_of(challenge: AuthParams<'_>) -> Option<Cow<'_, [u8]>> {
    challenge.value("realm").map(unquote)
}

/// Parses `number METHOD`.
fn read_cseq(value: &[u8]) -> Option<(u32, MethodId)> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, method) = value.split_at_checked(digits)?;
    let number = strowger_message::parse_decimal(digits).and_then(|number| u32::try_from(number).ok())?;
    Some((number, MethodId::of(Method::from_token(method.trim_ascii()))))
}
