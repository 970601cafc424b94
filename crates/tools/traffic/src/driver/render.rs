//! Writing a message: the template's text and, between it, what the session says.

use std::io::Write as _;

use strowger_auth::client;
use strowger_foundation::Timestamp;
use strowger_message::{AuthParams, Head, HeaderName, NameAddr, StartLine};

use crate::script::{Kind, LastField, Piece, StepIndex, Template, UserField, Verb};
use crate::session::{Session, Value};

use super::{Driver, dialog, hex};

/// The room for the body's length, which is written last.
const LENGTH_DIGITS: usize = 6;

impl Driver {
    /// Writes a message into `out`.
    pub(super) fn render(
        &self,
        session: &Session,
        _step: StepIndex,
        template: &Template,
        last: Option<&Head<'_>>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<(), client::Unanswerable> {
        let mut length_at = None;
        let mut body_at = out.len();
        for (index, piece) in template.pieces.iter().enumerate() {
            if index == template.body {
                body_at = out.len();
            }
            match *piece {
                Piece::Text { start, end } => {
                    out.extend_from_slice(template.text.get(start as usize..end as usize).unwrap_or(&[]));
                }
                Piece::BodyLength => {
                    length_at = Some(out.len());
                    out.extend_from_slice(&[b' '; LENGTH_DIGITS]);
                }
                Piece::Answer => {
                    if let Some(last) = last {
                        self.push_answer(session, last, out);
                    }
                }
                Piece::Last { field, line } => {
                    if let Some(last) = last {
                        push_last(template, last, field, line, out);
                    }
                }
                Piece::Credentials => self.push_credentials(session, template, out)?,
                Piece::Branch(back) => self.push_branch(session, template, back, out),
                Piece::CSeq(more) => {
                    push_number(u64::from(cseq_of(session, template).saturating_add_signed(i32::from(more))), out);
                }
                other => self.push_value(session, other, now, out),
            }
        }
        if template.body >= template.pieces.len() {
            body_at = out.len();
        }
        if let Some(at) = length_at {
            let mut rest = out.len() - body_at;
            for place in out.get_mut(at..at + LENGTH_DIGITS).unwrap_or(&mut []).iter_mut().rev() {
                *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn push_value(&self, session: &Session, piece: Piece, now: Timestamp, out: &mut Vec<u8>) {
        let local = self.locals.get(usize::from(session.local));
        match piece {
            Piece::LocalIp => out.extend_from_slice(local.map_or("", |local| &local.ip).as_bytes()),
            Piece::LocalPort => out.extend_from_slice(local.map_or("", |local| &local.port).as_bytes()),
            Piece::Local => out.extend_from_slice(local.map_or("", |local| &local.both).as_bytes()),
            // Writing to a Vec cannot fail.
            Piece::RemoteIp => drop(write!(out, "{}", self.setup.remote.ip())),
            Piece::RemotePort => push_number(u64::from(self.setup.remote.port()), out),
            Piece::Transport => out.extend_from_slice(self.setup.transport.as_str().as_bytes()),
            Piece::CallId => {
                out.extend_from_slice(&hex(self.identity(session.serial)));
                out.push(b'@');
                out.extend_from_slice(local.map_or("", |local| &local.ip).as_bytes());
            }
            Piece::CallNumber => push_number(session.serial & 0xFFFF_FFFF_FFFF, out),
            Piece::LocalTag => out.extend_from_slice(&hex(self.tag(session.call))[..10]),
            Piece::User(UserField::Caller) => self.setup.users.push_name(session.caller, out),
            Piece::User(UserField::Callee) => self.setup.users.push_name(session.callee, out),
            Piece::User(UserField::Number) => push_number(u64::from(session.caller), out),
            Piece::User(UserField::Column(column)) => {
                out.extend_from_slice(self.setup.users.cell(session.caller, column));
            }
            Piece::Domain => out.extend_from_slice(self.setup.users.domain.as_bytes()),
            Piece::Service => out.extend_from_slice(self.setup.users.service.as_bytes()),
            Piece::Peer => out.extend_from_slice(dialog::parts(&session.dialog).peer),
            Piece::PeerTag => {
                let tag = NameAddr::parse(dialog::parts(&session.dialog).peer).and_then(|peer| peer.tag());
                if let Some(tag) = tag {
                    out.extend_from_slice(b";tag=");
                    out.extend_from_slice(tag);
                }
            }
            Piece::NextUrl => match dialog::parts(&session.dialog).next {
                [] => drop(write!(out, "sip:{}", self.setup.remote)),
                next => out.extend_from_slice(next),
            },
            Piece::Routes => out.extend_from_slice(dialog::parts(&session.dialog).routes),
            Piece::Variable(variable) => push_variable(Self::variable(session, variable), out),
            Piece::Time => push_number(now.as_nanos(), out),
            _ => {}
        }
    }

    fn push_branch(&self, session: &Session, template: &Template, back: u8, out: &mut Vec<u8>) {
        let is_invites = match template.kind() {
            Kind::Request(Verb::Cancel) => true,
            Kind::Request(Verb::Ack) => session.invite_class != 2,
            _ => false,
        };
        let branch = if is_invites { session.invite_branch } else { session.branches.saturating_sub(u16::from(back)) };
        out.extend_from_slice(b"z9hG4bK");
        out.extend_from_slice(&hex(self.identity(session.serial)));
        out.push(b'.');
        push_number(u64::from(branch), out);
    }

    /// What a response copies of its request (RFC 3261 §8.2.6.2), and the route set of a dialog (§12.1.1).
    fn push_answer(&self, session: &Session, request: &Head<'_>, out: &mut Vec<u8>) {
        for field in request.fields() {
            let value = request.value(field);
            match field.name {
                HeaderName::Via => push_line(b"Via: ", value, &[], out),
                HeaderName::From => push_line(b"From: ", value, &[], out),
                HeaderName::To => {
                    if memchr::memmem::find(value, b";tag=").is_some() {
                        push_line(b"To: ", value, &[], out);
                    } else {
                        out.extend_from_slice(b"To: ");
                        out.extend_from_slice(value);
                        push_line(b";tag=", &hex(self.tag(session.call))[..10], &[], out);
                    }
                }
                HeaderName::CallId => push_line(b"Call-ID: ", value, &[], out),
                HeaderName::CSeq => push_line(b"CSeq: ", value, &[], out),
                HeaderName::RecordRoute => push_line(b"Record-Route: ", value, &[], out),
                _ => {}
            }
        }
    }

    /// The line that answers the session's challenge.
    fn push_credentials(
        &self,
        session: &Session,
        template: &Template,
        out: &mut Vec<u8>,
    ) -> Result<(), client::Unanswerable> {
        let Some(extra) = session.extra.as_ref().filter(|extra| !extra.challenge.is_empty()) else { return Ok(()) };
        let challenge = AuthParams::parse(&extra.challenge).ok_or(client::Unanswerable::Incomplete)?;
        let Kind::Request(_) = template.kind() else { return Ok(()) };
        // The request line stands in the buffer already.
        let line_end = memchr::memchr(b'\r', out).unwrap_or(0);
        let line = out.get(..line_end).unwrap_or(&[]).to_vec();
        let mut words = line.split(|byte| *byte == b' ');
        let (method, uri) = (words.next().unwrap_or(&[]), words.next().unwrap_or(&[]));
        let (mut username, mut password) = (Vec::new(), Vec::new());
        self.setup.users.push_name(session.caller, &mut username);
        self.setup.users.push_password(session.caller, &mut password);
        let cnonce = hex(super::mix(session.serial ^ u64::from(session.branches) ^ self.setup.run));
        out.extend_from_slice(if extra.is_proxy { b"Proxy-Authorization: " } else { b"Authorization: " });
        let request = client::Request {
            username: &username,
            secret: client::Secret::Password(&password),
            method,
            uri,
            body: &[],
            cnonce: &cnonce,
            nc: extra.nonce_count.max(1),
            cover_body: false,
        };
        client::respond(out, &challenge, &request)?;
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// An ACK and a CANCEL repeat their INVITE's number.
fn cseq_of(session: &Session, template: &Template) -> u32 {
    match template.kind() {
        Kind::Request(Verb::Ack | Verb::Cancel) => session.invite_cseq,
        _ => session.cseq,
    }
}

fn push_line(name: &[u8], value: &[u8], more: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(more);
    out.extend_from_slice(b"\r\n");
}

/// Fields of the last message, as SIPp writes them: with their name.
fn push_last(template: &Template, last: &Head<'_>, field: LastField, line: bool, out: &mut Vec<u8>) {
    let start = out.len();
    let mut push = |name: &[u8], value: &[u8]| {
        if out.len() > start {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
    };
    match field {
        LastField::Known(name) => last.all(name).for_each(|value| push(name.as_str().as_bytes(), value)),
        LastField::Named { start, end } => {
            let name = template.text.get(start as usize..end as usize).unwrap_or(&[]);
            for field in last.fields().iter().filter(|field| field.name == HeaderName::Other) {
                let text = last.line(field);
                if text.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name)) {
                    push(name, last.value(field));
                }
            }
        }
        LastField::RequestUri => {
            if let StartLine::Request { uri, .. } = last.start() {
                out.extend_from_slice(uri);
            }
        }
        LastField::Message => out.extend_from_slice(last.bytes()),
    }
    if line && out.len() > start {
        out.extend_from_slice(b"\r\n");
    }
}

fn push_variable(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Nothing => {}
        Value::Number(number) => drop(write!(out, "{number}")),
        Value::Text(text) => out.extend_from_slice(text),
    }
}

/// A number in decimal.
pub(super) fn push_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let (mut rest, mut at) = (number, digits.len());
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
