//! Messages that come in: whose they are, whether they are new, and what the script makes of them.

use std::net::SocketAddr;

use strowger_auth::client;
use strowger_foundation::Timestamp;
use strowger_message::{AuthParams, Head, HeaderName, Method, StartLine};

use crate::meter::Answer;
use crate::script::{Ending, Expect, Failure, Kind, Step, Template, Verb};
use crate::session::{NEVER, NOWHERE, Session};

use super::{Driver, Outbox, Walk, dialog};

/// Challenges in a row that are answered: one of the proxy's and one of the callee's.
const MAX_CHALLENGES: u8 = 2;

/// What every message has.
struct Got<'a> {
    kind: Kind,
    /// CSeq.
    number: u32,
    verb: Verb,
    head: &'a Head<'a>,
    bytes: &'a [u8],
}

impl Driver {
    /// A message came. `arrived` is when the kernel had it, `now` when it is handled.
    pub fn handle_message(
        &mut self,
        now: Timestamp,
        arrived: Timestamp,
        (link, peer): (u32, SocketAddr),
        bytes: &[u8],
        out: &mut dyn Outbox,
    ) {
        let Ok(head) = Head::scan(bytes) else {
            // Empty lines keep bindings of address translators alive.
            if !bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                self.meter.on_received(Kind::Garbage);
                self.meter.on_unexpected(bytes);
            }
            return;
        };
        let kind = match head.start() {
            StartLine::Request { method, .. } => Kind::Request(Verb::of(method)),
            StartLine::Response { status, .. } => Kind::Response(status.code()),
        };
        let (Some(call_id), Some((number, verb))) =
            (head.first(HeaderName::CallId), head.first(HeaderName::CSeq).and_then(read_cseq))
        else {
            self.meter.on_received(Kind::Garbage);
            return self.meter.on_unexpected(bytes);
        };
        let call = self.hash(call_id);
        let got = Got { kind, number, verb, head: &head, bytes };
        let slot = self.calls.get(call);
        let mut walk = Walk { now, out, last: Some(&head) };
        match (kind, slot) {
            (Kind::Response(status), Some(slot)) => self.on_response(slot, status, &got, arrived, &mut walk),
            (Kind::Request(verb), Some(slot)) => self.on_request(slot, verb, (link, peer), &got, &mut walk),
            (Kind::Request(verb), None) => self.on_new_request(call, verb, (link, peer), &got, &mut walk),
            (_, None) | (Kind::Garbage, _) => self.meter.late += 1,
        }
        let out = walk.out;
        self.begin_started(now, out);
    }

    fn on_response(&mut self, slot: u32, status: u16, got: &Got<'_>, arrived: Timestamp, walk: &mut Walk<'_, '_>) {
        let t2 = self.setup.t2;
        let max_ring = self.setup.max_ring;
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let is_invite = got.verb == Verb::Invite;
        let is_current = if is_invite {
            got.number == session.invite_cseq && session.invite_class == 0
        } else {
            let number = if got.verb == Verb::Cancel { session.invite_cseq } else { session.cseq };
            got.number == number && got.verb == session.sent_verb && !session.flags.is_answered
        };
        if !is_current {
            self.meter.repeats_received += 1;
            //= rfc3261#13.2.2.4
            // Each repeated final response to an INVITE is acknowledged again.
            if is_invite && got.number == session.invite_cseq && status >= 200 && session.ack_step != NOWHERE {
                let step = session.ack_step;
                self.write_again(slot, step, walk);
            }
            return;
        }
        self.meter.on_received(got.kind);
        let begun = if is_invite { session.invite_at } else { session.sent_at };
        let is_first = status >= 200 || !session.flags.is_ringing;
        session.flags.is_ringing |= is_invite && status > 100;
        if Answer::of(status).is_some() && is_first && session.flags.epoch == self.epoch {
            self.meter.on_answer(got.verb, status, arrived.saturating_since(begun));
        }
        if session.flags.epoch == self.epoch {
            session.attempt.on_response(got.verb, status, arrived, &mut self.meter.metrics);
        }
        if status >= 200 {
            if let Some(extra) = session.extra.as_mut().filter(|_| status < 300) {
                extra.challenges = 0;
            }
            if is_invite {
                session.invite_class = u8::try_from(status / 100).unwrap_or(9);
            } else {
                session.flags.is_answered = true;
            }
        }
        let is_of_resent = got.verb == session.sent_verb;
        if status >= 200 && is_of_resent {
            (session.resend_at, session.give_up_at) = (NEVER, NEVER);
        } else if is_of_resent && is_invite {
            session.resend_at = NEVER;
            session.give_up_at = walk.now + max_ring;
        } else if is_of_resent && session.resend_at != NEVER {
            session.resend_at = walk.now + t2;
        }
        if status >= 200 && got.verb == Verb::Cancel && session.invite_class == 0 {
            // The INVITE's own answer is still to come.
            session.give_up_at = walk.now + self.setup.t1 * 64;
        }
        self.deliver(slot, got, walk);
    }

    fn on_request(
        &mut self,
        slot: u32,
        verb: Verb,
        (link, peer): (u32, SocketAddr),
        got: &Got<'_>,
        walk: &mut Walk<'_, '_>,
    ) {
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let is_repeat = got.number == session.got_cseq && verb == session.got_verb;
        if is_repeat {
            self.meter.repeats_received += 1;
            let step = session.reply_step;
            if verb != Verb::Ack && step != NOWHERE {
                self.write_again(slot, step, walk);
            }
            return;
        }
        if verb == Verb::Ack {
            if got.number == session.got_cseq && session.got_verb == Verb::Invite {
                (session.resend_at, session.give_up_at) = (NEVER, NEVER);
            }
        } else if !session.flags.is_ours {
            // Responses leave by the way that the request came.
            (session.link, session.peer) = (link, peer);
        }
        if !matches!(verb, Verb::Cancel | Verb::Ack) {
            (session.got_cseq, session.got_verb) = (got.number, verb);
            session.reply_step = NOWHERE;
        }
        if verb == Verb::Bye && session.flags.epoch == self.epoch {
            session.attempt.on_bye(walk.now, &mut self.meter.metrics);
        }
        self.meter.on_received(got.kind);
        self.deliver(slot, got, walk);
    }

    /// A request that belongs to no session begins one, or is answered from what it says alone.
    fn on_new_request(
        &mut self,
        call: u64,
        verb: Verb,
        (link, peer): (u32, SocketAddr),
        got: &Got<'_>,
        walk: &mut Walk<'_, '_>,
    ) {
        let tag = &super::hex(self.tag(call))[..10];
        let to = got.head.first(HeaderName::To).unwrap_or(&[]);
        let is_in_dialog = memchr::memmem::find(to, b";tag=").is_some();
        let script = self.setup.answers.iter().find(|(answered, _)| *answered == verb).map(|(_, script)| *script);
        if let (Some(script), false) = (script, is_in_dialog) {
            if self.sessions.len() >= self.setup.max_sessions {
                self.meter.answered.refused += 1;
                return;
            }
            let serial = self.next_serial();
            let slot = self.sessions.insert();
            let local = if self.setup.transport.is_reliable() { 0 } else { u16::try_from(link).unwrap_or(0) };
            let Some(session) = self.sessions.get_mut(slot) else { return };
            (session.serial, session.call, session.began) = (serial, call, walk.now);
            (session.script, session.step) = (script, 0);
            (session.peer, session.link, session.local) = (peer, link, local);
            (session.got_cseq, session.got_verb) = (got.number, verb);
            session.flags.is_live = true;
            session.flags.epoch = self.epoch;
            self.calls.insert(call, slot);
            self.meter.on_begin(false);
            self.meter.on_received(got.kind);
            // A script of the answering end begins with waiting for the message that begins it.
            return self.deliver(slot, got, walk);
        }
        if verb == Verb::Ack {
            self.meter.late += 1;
            return;
        }
        // The BYE of a call that has ended comes again where our 200 was lost: the tag proves that it was ours.
        let was_ours = to.ends_with(tag);
        let (status, reason) = match verb {
            Verb::Bye if was_ours => (200, "OK"),
            Verb::Options => (200, "OK"),
            _ if is_in_dialog => (481, "Call/Transaction Does Not Exist"),
            _ => (405, "Method Not Allowed"),
        };
        if was_ours {
            self.meter.repeats_received += 1;
        } else {
            self.meter.on_received(got.kind);
            self.meter.on_unexpected(got.bytes);
        }
        self.answer_alone(call, status, reason, (link, peer), got, walk);
    }

    /// Answers a request without a script.
    fn answer_alone(
        &mut self,
        call: u64,
        status: u16,
        reason: &str,
        (link, peer): (u32, SocketAddr),
        got: &Got<'_>,
        walk: &mut Walk<'_, '_>,
    ) {
        let Ok(template) = Template::compile(&format!("SIP/2.0 {status} {reason}\n[answer]\nContent-Length: 0\n"))
        else {
            return;
        };
        let session = Session { call, ..Session::idle() };
        if self.render(&session, 0, &template, Some(got.head), walk.now, walk.out.slot(link)).is_ok() {
            walk.out.commit(link, peer);
            self.meter.on_sent(Kind::Response(status), false);
        }
    }

    /// Gives a message to the step that waits.
    fn deliver(&mut self, slot: u32, got: &Got<'_>, walk: &mut Walk<'_, '_>) {
        let scripts = self.setup.scripts.clone();
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let Some(script) = scripts.get(usize::from(session.script)) else { return };
        let expects = match script.steps.get(usize::from(session.step)) {
            Some(Step::Wait { expects, .. }) => {
                script.expects.get(usize::from(expects.start)..usize::from(expects.end)).unwrap_or(&[])
            }
            _ => &[],
        };
        let fitting = expects.iter().find(|expect| expect.what.fits(got.kind, got.verb));
        let Some(expect) = fitting else { return self.on_unexpected(slot, got, walk) };
        if let Err(ending) = self.take(slot, expect, got, script.policy.follow_routes) {
            return self.end(slot, ending, walk);
        }
        if !expect.actions.is_empty() && !self.act(slot, expect.actions.clone(), walk) {
            return self.end(slot, Ending::Failed(Failure::Script), walk);
        }
        let Some(session) = self.sessions.get_mut(slot) else { return };
        match expect.to {
            Some(to) => {
                (session.step, session.deadline) = (to, NEVER);
                self.walk(slot, walk);
            }
            None => self.arm(slot),
        }
    }

    /// Takes from a message what is to be taken.
    fn take(&mut self, slot: u32, expect: &Expect, got: &Got<'_>, follow: bool) -> Result<(), Ending> {
        let is_stream = self.setup.transport.is_reliable();
        let Some(session) = self.sessions.get_mut(slot) else { return Ok(()) };
        let is_response = matches!(got.kind, Kind::Response(_));
        if expect.takes.dialog {
            dialog::take(&mut session.dialog, got.head, is_response);
            if follow
                && !is_stream
                && session.flags.is_ours
                && let Some(peer) = dialog::destination(&session.dialog)
            {
                session.peer = peer;
            }
        }
        if expect.takes.challenge {
            let (name, is_proxy) = match got.kind {
                Kind::Response(407) => (HeaderName::ProxyAuthenticate, true),
                _ => (HeaderName::WwwAuthenticate, false),
            };
            let known = got.head.all(name).find(|value| {
                AuthParams::parse(value).is_some_and(|challenge| client::algorithm(&challenge).is_some())
            });
            let extra = session.extra_mut();
            // A challenge to fresh credentials says that they are wrong.
            let is_stale = known.is_some_and(|value| memchr::memmem::find(value, b"stale=true").is_some());
            if extra.challenges >= MAX_CHALLENGES && !is_stale {
                let status = if let Kind::Response(status) = got.kind { status } else { 0 };
                return Err(Ending::Refused(status));
            }
            extra.challenge.clear();
            extra.challenge.extend_from_slice(known.ok_or(Ending::Failed(Failure::Challenge))?);
            extra.challenges += 1;
            (extra.is_proxy, extra.nonce_count) = (is_proxy, 0);
        }
        if expect.takes.copy {
            session.last.clear();
            session.last.extend_from_slice(got.bytes);
        } else if expect.to.is_some() {
            session.last.clear();
        }
        Ok(())
    }

    /// The script has no use for a message.
    fn on_unexpected(&mut self, slot: u32, got: &Got<'_>, walk: &mut Walk<'_, '_>) {
        let Some(session) = self.sessions.get(slot) else { return };
        let Some(policy) = self.script_of(session).map(|script| script.policy) else { return };
        let (call, link, peer) = (session.call, session.link, session.peer);
        match got.kind {
            Kind::Response(..=199) => self.arm(slot),
            Kind::Response(status) => {
                if got.verb == Verb::Invite && status >= 300 && policy.acknowledge_unexpected {
                    self.acknowledge(slot, walk);
                }
                if status < 300 {
                    self.meter.on_unexpected(got.bytes);
                    return self.end(slot, Ending::Failed(Failure::Unexpected), walk);
                }
                self.end(slot, Ending::Refused(status), walk);
            }
            Kind::Request(Verb::Ack) => self.arm(slot),
            Kind::Request(verb) if policy.answer_unexpected => {
                let (status, reason) = match verb {
                    Verb::Bye
                    | Verb::Cancel
                    | Verb::Options
                    | Verb::Info
                    | Verb::Update
                    | Verb::Notify
                    | Verb::Message => (200, "OK"),
                    _ => (501, "Not Implemented"),
                };
                self.answer_alone(call, status, reason, (link, peer), got, walk);
                if matches!(verb, Verb::Bye | Verb::Cancel) {
                    self.meter.on_unexpected(got.bytes);
                    return self.end(slot, Ending::Failed(Failure::Unexpected), walk);
                }
                self.arm(slot);
            }
            _ => {
                self.meter.on_unexpected(got.bytes);
                self.end(slot, Ending::Failed(Failure::Unexpected), walk);
            }
        }
    }

    /// The ACK to a failure that the script has no ACK for (RFC 3261 §17.1.1.3), made of the response: it names all parts.
    fn acknowledge(&mut self, slot: u32, walk: &mut Walk<'_, '_>) {
        let Some(session) = self.sessions.get(slot) else { return };
        let Some(last) = walk.last else { return };
        // Its INVITE's request line is written anew, by the template that sent it.
        let invite = self
            .script_of(session)
            .and_then(|script| script.templates.iter().find(|template| template.kind() == Kind::Request(Verb::Invite)));
        let Some(invite) = invite else { return };
        let (link, peer) = (session.link, session.peer);
        let mut request = Vec::new();
        if self.render(session, 0, invite, None, walk.now, &mut request).is_err() {
            return;
        }
        let uri = request.split(|byte| *byte == b' ').nth(1).unwrap_or(&[]);
        let out = walk.out.slot(link);
        let value = |name| last.first(name).unwrap_or(&[]);
        let number = value(HeaderName::CSeq).split(|byte| *byte == b' ').next().unwrap_or(&[]);
        let lines: [&[&[u8]]; 7] = [
            &[b"ACK ", uri, b" SIP/2.0\r\n"],
            &[b"Via: ", value(HeaderName::Via), b"\r\nMax-Forwards: 70\r\n"],
            &[b"From: ", value(HeaderName::From), b"\r\n"],
            &[b"To: ", value(HeaderName::To), b"\r\n"],
            &[b"Call-ID: ", value(HeaderName::CallId), b"\r\n"],
            &[b"CSeq: ", number, b" ACK\r\n"],
            &[b"Content-Length: 0\r\n\r\n"],
        ];
        for part in lines.iter().flat_map(|line| line.iter()) {
            out.extend_from_slice(part);
        }
        walk.out.commit(link, peer);
        self.meter.on_sent(Kind::Request(Verb::Ack), false);
    }
}

/// `number METHOD`.
fn read_cseq(value: &[u8]) -> Option<(u32, Verb)> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, method) = value.split_at_checked(digits)?;
    let number = strowger_message::parse_decimal(digits).and_then(|number| u32::try_from(number).ok())?;
    Some((number, Verb::of(Method::from_token(method.trim_ascii()))))
}
