//! ACKs that no script sends: to refusals and their copies, and to further 2xx of a forked INVITE.

use std::net::SocketAddr;

use strowger_foundation::Timestamp;
use strowger_message::{Head, HeaderName, NameAddr};

use super::answer::IncomingMessage;
use crate::script::{Kind, MethodId, Step, Template};
use crate::session::Session;

use super::render::push_number;
use super::{Driver, StepContext, dialog, hex, mix};

/// Distance of the CSeq of a BYE that ends a fork from that of its INVITE; no other request of the session comes this
/// far.
const FORK_NUMBERS: u32 = 1 << 20;

impl Driver {
    /// Sends the ACK to a failure for which the script has no ACK (RFC 3261 §17.1.1.3). It is made from the response,
    /// which contains all parts.
    pub(super) fn acknowledge(&mut self, slot: u32, is_repeat: bool, walk: &mut StepContext<'_, '_>) {
        let (Some(session), Some(last)) = (self.sessions.get(slot), walk.last) else { return };
        let (link, peer, call) = (session.link, session.peer, session.call);
        let is_counted = session.flags.epoch == self.epoch;
        if self.write_acknowledgement(session, last.head, walk.now, walk.out.slot(link)) {
            walk.out.commit(link, peer, call);
            if is_counted || is_repeat {
                self.meter.on_sent(Kind::Request(MethodId::Ack), is_repeat);
            }
        }
    }

    /// Handles a response to an INVITE whose call is over; returns false if there is no such call.
    pub(super) fn acknowledge_again(
        &mut self,
        call: u64,
        (link, peer): (u32, SocketAddr),
        walk: &mut StepContext<'_, '_>,
    ) -> bool {
        let (Some(refused), Some(last)) = (self.refused.get(walk.now, call).cloned(), walk.last) else { return false };
        let super::recent_calls::RefusedCall {
            script,
            local,
            caller,
            callee,
            accepted_cseq,
            invite_cseq,
            invite_step,
            dialog,
        } = refused;
        let session = Session {
            call,
            script,
            local,
            caller,
            callee,
            accepted_cseq,
            invite_cseq,
            invite_step,
            link,
            peer,
            dialog: dialog.into(),
            ..Session::idle()
        };
        if self.write_acknowledgement(&session, last.head, walk.now, walk.out.slot(link)) {
            walk.out.commit(link, peer, call);
            self.meter.on_sent(Kind::Request(MethodId::Ack), true);
        }
        true
    }

    fn write_acknowledgement(&self, session: &Session, last: &Head<'_>, now: Timestamp, out: &mut Vec<u8>) -> bool {
        let value = |name| last.first(name).unwrap_or(&[]);
        let number = value(HeaderName::CSeq).split(|byte| *byte == b' ').next().unwrap_or(&[]);
        // The template of the INVITE yields its Request-URI and Route again.
        let Some(invite) = self.invite_of(session, number) else { return false };
        let mut request = Vec::new();
        if self.render(session, invite, None, now, &mut request).is_err() {
            return false;
        }
        let uri = request.split(|byte| *byte == b' ').nth(1).unwrap_or(&[]);
        let mut routes = Vec::new();
        if let Ok(head) = Head::scan(&request) {
            for route in head.all(HeaderName::Route) {
                [b"Route: ", route, b"\r\n"].iter().for_each(|part| routes.extend_from_slice(part));
            }
        }
        let lines: [&[&[u8]]; 8] = [
            &[b"ACK ", uri, b" SIP/2.0\r\n"],
            &[b"Via: ", value(HeaderName::Via), b"\r\n"],
            &[&routes, b"Max-Forwards: 70\r\n"],
            &[b"From: ", value(HeaderName::From), b"\r\n"],
            &[b"To: ", value(HeaderName::To), b"\r\n"],
            &[b"Call-ID: ", value(HeaderName::CallId), b"\r\n"],
            &[b"CSeq: ", number, b" ACK\r\n"],
            &[b"Content-Length: 0\r\n\r\n"],
        ];
        lines.iter().flat_map(|line| line.iter()).for_each(|part| out.extend_from_slice(part));
        true
    }

    /// Returns the template of the INVITE with this number: the last one, or one sent before the call was accepted;
    /// those are alike.
    fn invite_of(&self, session: &Session, number: &[u8]) -> Option<&Template> {
        let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
        let script = self.script_of(session)?;
        let is_invite = |template: &&Template| template.kind() == Kind::Request(MethodId::Invite);
        let is_last = number == session.invite_cseq || number > session.accepted_cseq;
        let last = match script.steps.get(usize::from(session.invite_step)) {
            Some(Step::Send { template, .. }) if is_last => script.templates.get(usize::from(*template)),
            _ => None,
        };
        last.filter(is_invite).or_else(|| script.templates.iter().find(is_invite))
    }

    /// Returns whether a 2xx to the session's INVITE belongs to another dialog than the session's.
    pub(super) fn is_of_other_fork(session: &Session, got: &IncomingMessage<'_>) -> bool {
        let tag_of = |value| NameAddr::parse(value).and_then(|party| party.tag());
        let ours = tag_of(dialog::parts(&session.dialog).peer);
        let theirs = got.head.first(HeaderName::To).and_then(tag_of);
        ours.is_some() && theirs.is_some() && ours != theirs
    }

    /// Returns whether a response answers a BYE of [`end_fork`](Self::end_fork).
    pub(super) const fn is_of_forks_bye(session: &Session, got: &IncomingMessage<'_>) -> bool {
        matches!(got.method, MethodId::Bye) && got.number == session.invite_cseq.saturating_add(FORK_NUMBERS)
    }

    /// Acknowledges a 2xx of an unwanted dialog and ends that dialog. Does the same for each copy of the 2xx.
    //= rfc3261#13.2.2.4
    pub(super) fn end_fork(&mut self, slot: u32, got: &IncomingMessage<'_>, walk: &mut StepContext<'_, '_>) {
        let Some(session) = self.sessions.get(slot) else { return };
        let follows = self.script_of(session).is_some_and(|script| script.policy.follow_routes);
        let mut fork = Vec::new();
        dialog::store_dialog(&mut fork, got.head, true);
        let to = dialog::destination(&fork).filter(|_| follows && !self.setup.transport.is_reliable());
        let (link, peer, call) = (session.link, to.unwrap_or(session.peer), session.call);
        let is_counted = session.flags.epoch == self.epoch;
        let parts = dialog::parts(&fork);
        let local = self.locals.get(usize::from(session.local)).map_or("", |local| &local.both);
        let transport = self.setup.transport.as_str();
        let identity = self.identity(session.serial) ^ self.hash(parts.peer);
        let value = |name| got.head.first(name).unwrap_or(&[]);
        let invite_cseq = session.invite_cseq;
        for (verb, number) in [(MethodId::Ack, invite_cseq), (MethodId::Bye, invite_cseq.saturating_add(FORK_NUMBERS))]
        {
            let out = walk.out.slot(link);
            let method = verb.as_str().as_bytes();
            let lines: [&[&[u8]]; 7] = [
                &[method, b" ", parts.next, b" SIP/2.0\r\n"],
                &[b"Via: SIP/2.0/", transport.as_bytes(), b" ", local.as_bytes(), b";branch=z9hG4bK"],
                &[&hex(mix(identity ^ u64::from(verb as u8))), b"\r\n", parts.routes, b"Max-Forwards: 70\r\n"],
                &[b"From: ", value(HeaderName::From), b"\r\n"],
                &[b"To: ", parts.peer, b"\r\n"],
                &[b"Call-ID: ", value(HeaderName::CallId), b"\r\n"],
                &[b"CSeq: "],
            ];
            lines.iter().flat_map(|line| line.iter()).for_each(|part| out.extend_from_slice(part));
            push_number(u64::from(number), out);
            [&b" "[..], method, b"\r\nContent-Length: 0\r\n\r\n"].iter().for_each(|part| out.extend_from_slice(part));
            walk.out.commit(link, peer, call);
            if is_counted {
                self.meter.on_sent(Kind::Request(verb), false);
            }
        }
    }
}
