//! What the driver answers by itself: requests without a session, requests that a script does not expect, and
//! cancelled INVITEs. Also the destinations of responses.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_message::{Head, HeaderName, NameAddr, Rport, Via};

use crate::script::{Failure, Kind, MethodId, Policy, SessionResult, Template};
use crate::session::{ALONE, CANCELLED, NEVER, Session};

use super::{Driver, LastMessage, StepContext};

/// Separates the class from the rest of a caller's tag.
pub(super) const CLASS_MARK: u8 = b'.';

/// Returns the class in a caller's tag; a tag without one means the first class.
fn class_of_tag(tag: &[u8]) -> u8 {
    let mark = tag.iter().rposition(|byte| *byte == CLASS_MARK);
    let digits = mark.and_then(|mark| tag.get(mark + 1..)).unwrap_or(&[]);
    strowger_message::parse_decimal(digits).and_then(|class| u8::try_from(class).ok()).unwrap_or(0)
}

/// Returns a caller's tag without the class.
pub(super) fn without_class(tag: &[u8]) -> &[u8] {
    let digits = tag.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    tag.split_at(tag.len() - digits).0.strip_suffix(&[CLASS_MARK]).unwrap_or(tag)
}

/// Port of a Via that names none.
const DEFAULT_PORT: u16 = 5060;

impl Driver {
    /// Handles a request of a session whose script does not expect it.
    pub(super) fn on_unexpected_request(
        &mut self,
        slot: u32,
        verb: MethodId,
        policy: Policy,
        got: &IncomingMessage<'_>,
        walk: &mut StepContext<'_, '_>,
    ) {
        let Some(session) = self.sessions.get(slot) else { return };
        let (call, to) = (session.call, if verb == MethodId::Cancel { got.from } else { session.reply_to() });
        if verb == MethodId::Ack {
            return self.arm(slot);
        }
        if !policy.answer_unexpected {
            self.meter.on_unexpected(got.bytes);
            return self.end(slot, SessionResult::Failed(Failure::Unexpected), walk);
        }
        self.answer_stateless(call, alone_to(verb), to, got.head, walk);
        if let Some(session) = self.sessions.get_mut(slot).filter(|_| verb != MethodId::Cancel) {
            session.reply_step = ALONE;
        }
        if verb == MethodId::Bye {
            self.meter.on_unexpected(got.bytes);
        }
        match verb {
            //= rfc3261#9.2
            //= rfc3261#15.1.2
            // A CANCEL, and a BYE before the answer, end the INVITE.
            MethodId::Cancel | MethodId::Bye if self.ends_invite(slot) => self.on_cancelled(slot, walk),
            MethodId::Bye => self.end(slot, SessionResult::Failed(Failure::Unexpected), walk),
            //= rfc3261#9.2
            // A CANCEL does not change what was already answered.
            _ => self.arm(slot),
        }
    }

    /// Handles a retransmission of a request that was answered without a step.
    pub(super) fn answer_again(
        &mut self,
        slot: u32,
        verb: MethodId,
        request: &Head<'_>,
        walk: &mut StepContext<'_, '_>,
    ) {
        let Some(session) = self.sessions.get(slot) else { return };
        let (call, to) = (session.call, session.reply_to());
        self.answer_stateless(call, alone_to(verb), to, request, walk);
    }

    /// Returns the script that answers a request that begins a call; if there are several, the one of the caller's
    /// class.
    pub(super) fn script_answering(&self, verb: MethodId, request: &Head<'_>) -> Option<u16> {
        let mut all = self.setup.answers.iter().filter(|(answered, _)| *answered == verb).map(|(_, script)| *script);
        let first = all.next()?;
        let class_of = |script: u16| self.setup.scripts.get(usize::from(script)).map_or(0, |script| script.class);
        let mut rest = all.peekable();
        if rest.peek().is_none() {
            return Some(first);
        }
        let from = request.first(HeaderName::From).and_then(NameAddr::parse);
        let class = from.and_then(|from| from.tag()).map_or(0, class_of_tag);
        std::iter::once(first).chain(rest).find(|script| class_of(*script) == class).or(Some(first))
    }

    /// Returns whether an INVITE waits for its final response and can be answered.
    fn ends_invite(&self, slot: u32) -> bool {
        let session = self.sessions.get(slot);
        session.is_some_and(|session| session.flags.is_pending && session.last.starts_with(b"INVITE "))
    }

    /// Answers the session's INVITE with 487. A new call ends when the ACK arrives; a call that was answered before
    /// continues unchanged.
    fn on_cancelled(&mut self, slot: u32, walk: &mut StepContext<'_, '_>) {
        self.write_cancelled(slot, false, walk);
        let (t1, repeats) = (self.setup.t1, self.setup.retransmits && !self.setup.transport.is_reliable());
        let Some(session) = self.sessions.get_mut(slot) else { return };
        session.flags.is_pending = false;
        session.reply_step = CANCELLED;
        let is_first = !session.flags.is_ours && Head::scan(&session.last).is_ok_and(|invite| !has_tag(&invite));
        if is_first {
            (session.step, session.deadline) = (CANCELLED, NEVER);
            session.give_up_at = walk.now + t1 * 64;
            (session.resend_step, session.resends) = (CANCELLED, 0);
            session.resend_at = if repeats { walk.now + t1 } else { NEVER };
        }
        self.arm(slot);
    }

    /// Handles a request to a session whose INVITE was cancelled.
    pub(super) fn on_request_after_cancel(
        &mut self,
        slot: u32,
        got: &IncomingMessage<'_>,
        walk: &mut StepContext<'_, '_>,
    ) {
        let Some(session) = self.sessions.get(slot) else { return };
        let (call, to) = (session.call, session.reply_to());
        match got.kind {
            Kind::Request(MethodId::Ack) => {
                let is_well = self.script_of(session).is_some_and(|script| script.ends_cancelled);
                return self.end(
                    slot,
                    if is_well { SessionResult::Carried } else { SessionResult::Refused(487) },
                    walk,
                );
            }
            Kind::Request(MethodId::Cancel) => self.answer_stateless(call, (200, "OK"), got.from, got.head, walk),
            Kind::Request(MethodId::Bye) => self.answer_stateless(call, (200, "OK"), to, got.head, walk),
            Kind::Request(_) => {
                self.answer_stateless(call, (481, "Call/Transaction Does Not Exist"), to, got.head, walk);
            }
            _ => {}
        }
        self.arm(slot);
    }

    /// Sends the 487 to a cancelled INVITE, which the session has stored.
    pub(super) fn write_cancelled(&mut self, slot: u32, is_repeat: bool, walk: &mut StepContext<'_, '_>) {
        let Some(template) = self.alone((487, "Request Terminated")) else { return };
        let Some(session) = self.sessions.get(slot) else { return };
        let Ok(invite) = Head::scan(&session.last) else { return };
        let (call, (link, peer)) = (session.call, session.reply_to());
        let is_counted = session.flags.epoch == self.epoch;
        if self.render(session, &template, Some(LastMessage::of(&invite)), walk.now, walk.out.slot(link)).is_ok() {
            walk.out.commit(link, peer, call);
            if is_counted || is_repeat {
                self.meter.on_sent(Kind::Response(487), is_repeat);
            }
        }
    }

    /// Answers a request without a script.
    pub(super) fn answer_stateless(
        &mut self,
        call: u64,
        status: (u16, &str),
        (link, peer): (u32, SocketAddr),
        request: &Head<'_>,
        walk: &mut StepContext<'_, '_>,
    ) {
        let Some(template) = self.alone(status) else { return };
        let session = Session { call, link, peer, ..Session::idle() };
        if self.render(&session, &template, Some(LastMessage::of(request)), walk.now, walk.out.slot(link)).is_ok() {
            walk.out.commit(link, peer, call);
            self.meter.on_sent(Kind::Response(status.0), false);
        }
    }

    /// Returns the template of a response with this status that belongs to no script.
    fn alone(&mut self, (status, reason): (u16, &str)) -> Option<Arc<Template>> {
        if let Some((_, template)) = self.alone.iter().find(|(known, _)| *known == status) {
            return Some(Arc::clone(template));
        }
        //= rfc3261#21.4.6
        let allow = if status == 405 { self.allowed() } else { String::new() };
        let text = format!("SIP/2.0 {status} {reason}\n[answer]\n{allow}Content-Length: 0\n");
        let template = Arc::new(Template::compile(&text).ok()?);
        self.alone.push((status, Arc::clone(&template)));
        Some(template)
    }

    /// Returns the Allow line: the methods that are answered outside a dialog and those that belong to every dialog.
    fn allowed(&self) -> String {
        let mut all: Vec<_> = self.setup.answers.iter().map(|(verb, _)| *verb).collect();
        all.extend([MethodId::Ack, MethodId::Bye, MethodId::Cancel, MethodId::Options]);
        all.sort_unstable();
        all.dedup();
        let names: Vec<_> = all.iter().filter(|verb| **verb != MethodId::Other).map(|verb| verb.as_str()).collect();
        format!("Allow: {}\n", names.join(", "))
    }
}

/// Returns the response to a request that no script expects.
const fn alone_to(verb: MethodId) -> (u16, &'static str) {
    match verb {
        MethodId::Bye
        | MethodId::Cancel
        | MethodId::Options
        | MethodId::Info
        | MethodId::Update
        | MethodId::Notify
        | MethodId::Message => (200, "OK"),
        _ => (501, "Not Implemented"),
    }
}

/// Returns whether a request is inside a dialog.
pub(super) fn has_tag(request: &Head<'_>) -> bool {
    request.first(HeaderName::To).and_then(NameAddr::parse).is_some_and(|to| to.tag().is_some())
}

/// Returns the destination of the response to a request that came from `source` by datagram.
//= rfc3261#18.2.2
//= rfc3581#4
// The source address; with rport the source port, else the port of the Via.
/// The flag says whether the response carries the Via unchanged.
pub(super) fn reply_address(request: &Head<'_>, source: SocketAddr) -> (SocketAddr, bool) {
    let via = request.first(HeaderName::Via).and_then(Via::parse_first);
    match via {
        Some((via, _)) if via.rport == Rport::Absent => {
            let address = SocketAddr::new(source.ip(), via.sent_by.port.unwrap_or(DEFAULT_PORT));
            (address, via.host().ip() == Some(source.ip()))
        }
        _ => (source, false),
    }
}

/// Writes the topmost Via line of a response to a request that came from `source`.
pub(super) fn push_top_via(value: &[u8], source: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Via: ");
    push_marked_via(value, source, out);
    out.extend_from_slice(b"\r\n");
}

fn push_marked_via(value: &[u8], source: SocketAddr, out: &mut Vec<u8>) {
    use std::io::Write as _;
    let Some((via, rest)) = Via::parse_first(value) else { return out.extend_from_slice(value) };
    let mut text = via.text;
    if let Rport::Requested(name) = via.rport {
        // The name is a slice of the text.
        let end = (name.as_ptr() as usize + name.len()).saturating_sub(text.as_ptr() as usize);
        let (before, after) = text.split_at_checked(end).unwrap_or((text, &[]));
        out.extend_from_slice(before);
        //= rfc3581#4
        // Writing to a Vec cannot fail.
        drop(write!(out, "={}", source.port()));
        text = after;
    }
    out.extend_from_slice(text);
    //= rfc3261#18.2.1
    //= rfc3581#4
    // Needed if the address differs, and always with rport.
    let is_asked = matches!(via.rport, Rport::Requested(_)) || via.host().ip() != Some(source.ip());
    if is_asked && via.received.is_none() {
        drop(write!(out, ";received={}", source.ip()));
    }
    out.extend_from_slice(rest);
}

/// What every message has.
pub(super) struct IncomingMessage<'a> {
    pub kind: Kind,
    /// CSeq.
    pub number: u32,
    pub method: MethodId,
    /// Destination of the response, if it is a request.
    pub from: (u32, SocketAddr),
    pub head: &'a Head<'a>,
    pub bytes: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(via: &str, source: &str) -> (String, String) {
        let source = source.parse().expect("an address");
        let mut out = Vec::new();
        push_top_via(via.as_bytes(), source, &mut out);
        let text = format!("OPTIONS sip:a SIP/2.0\r\nVia: {via}\r\n\r\n");
        let (to, is_plain) = reply_address(&Head::scan(text.as_bytes()).expect("a request"), source);
        assert!(!is_plain || out == format!("Via: {via}\r\n").into_bytes(), "{via} is changed");
        (String::from_utf8(out).expect("ASCII").trim_end().to_owned(), to.to_string())
    }

    #[test]
    fn the_top_via_gets_received_and_rport() {
        let at = "127.0.0.9:7000";
        let cases = [
            ("SIP/2.0/UDP 127.0.0.9:7000;branch=z9hG4bKa", "SIP/2.0/UDP 127.0.0.9:7000;branch=z9hG4bKa", at),
            ("SIP/2.0/UDP 127.0.0.9:7001;branch=x", "SIP/2.0/UDP 127.0.0.9:7001;branch=x", "127.0.0.9:7001"),
            ("SIP/2.0/UDP 127.0.0.9;branch=x", "SIP/2.0/UDP 127.0.0.9;branch=x", "127.0.0.9:5060"),
            ("SIP/2.0/UDP host:9;branch=x", "SIP/2.0/UDP host:9;branch=x;received=127.0.0.9", "127.0.0.9:9"),
            (
                "SIP/2.0/UDP 10.0.0.1:9;rport;branch=x, SIP/2.0/UDP b",
                "SIP/2.0/UDP 10.0.0.1:9;rport=7000;branch=x;received=127.0.0.9, SIP/2.0/UDP b",
                at,
            ),
            (
                "SIP/2.0/UDP 127.0.0.9:7000;branch=x;rport",
                "SIP/2.0/UDP 127.0.0.9:7000;branch=x;rport=7000;received=127.0.0.9",
                at,
            ),
            ("nonsense", "nonsense", at),
        ];
        for (via, wanted, to) in cases {
            assert_eq!(marked(via, at), (format!("Via: {wanted}"), to.to_owned()));
        }
        let (text, _) = marked("SIP/2.0/UDP [2001:db8::1]:5060;rport", "[::1]:99");
        assert_eq!(text, "Via: SIP/2.0/UDP [2001:db8::1]:5060;rport=99;received=::1");
    }
}
