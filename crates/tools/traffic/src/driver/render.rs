//! Rendering of messages: the template's text with the session's values in between.

use std::io::Write as _;
use std::sync::Arc;

use strowger_auth::client;
use strowger_foundation::Timestamp;
use strowger_message::{AuthParams, Head, HeaderName, NameAddr, StartLine};

use crate::script::{Kind, LastField, MethodId, Script, Template, TemplatePart, UserField};
use crate::session::{Session, Value};

use super::answer::push_top_via;
use super::{Driver, LastMessage, Local, Setup, dialog, hex};

/// Buffer size that exceeds most credentials.
const CREDENTIALS_BYTES: usize = 512;

/// Returns the scripts with everything constant for this driver filled in.
pub(super) fn specialize_scripts(setup: &Setup, locals: &[Local]) -> Arc<[Script]> {
    let (first, remote) = (locals.first(), setup.remote);
    let only = first.filter(|_| locals.len() == 1);
    let ip = first.filter(|first| locals.iter().all(|local| local.ip == first.ip));
    let text = |piece: TemplatePart| {
        Some(match piece {
            TemplatePart::Local => only?.both.clone(),
            TemplatePart::LocalPort => only?.port.clone(),
            TemplatePart::LocalIp => ip?.ip.clone(),
            TemplatePart::RemoteIp => remote.ip().to_string(),
            TemplatePart::RemotePort => remote.port().to_string(),
            TemplatePart::Transport => setup.transport.as_str().to_owned(),
            TemplatePart::Service => setup.users.service.clone(),
            TemplatePart::Domain(_) => setup.users.only_domain()?.to_owned(),
            _ => return None,
        })
    };
    let fit = |template: &Template| template.with_fixed(|piece| text(piece).map(String::into_bytes));
    let fit_all = |script: &Script| Script { templates: script.templates.iter().map(fit).collect(), ..script.clone() };
    setup.scripts.iter().map(fit_all).collect()
}

impl Driver {
    /// Renders a message into `out`.
    pub(super) fn render(
        &self,
        session: &Session,
        template: &Template,
        last: Option<LastMessage<'_>>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<(), client::ChallengeError> {
        let start = out.len();
        let (mut length_at, mut credentials_at): (Option<usize>, Option<usize>) = (None, None);
        let mut body_at = out.len();
        for (index, piece) in template.pieces.iter().enumerate() {
            if index == template.body {
                body_at = out.len();
            }
            match *piece {
                TemplatePart::Text { start, end } => {
                    out.extend_from_slice(template.text.get(start as usize..end as usize).unwrap_or(&[]));
                }
                TemplatePart::BodyLength => length_at = Some(out.len()),
                TemplatePart::Answer => {
                    if let Some(last) = last {
                        self.push_answer(session, last, out);
                    }
                }
                TemplatePart::Last { field, line } => {
                    if let Some(last) = last {
                        push_last(template, last.head, field, line, out);
                    }
                }
                TemplatePart::Credentials => credentials_at = Some(out.len()),
                TemplatePart::Branch(back) => self.push_branch(session, template, back, out),
                TemplatePart::CSeq(more) => {
                    push_number(u64::from(cseq_of(session, template).saturating_add_signed(i32::from(more))), out);
                }
                other => self.push_value(session, other, now, out),
            }
        }
        if template.body >= template.pieces.len() {
            body_at = out.len();
        }
        if let Some(at) = length_at {
            let length = insert_number(out.len() - body_at, at, out);
            body_at += if body_at > at { length } else { 0 };
            credentials_at = credentials_at.map(|credentials| credentials + if credentials > at { length } else { 0 });
        }
        if let Some(at) = credentials_at {
            // Credentials come last, because they may cover the body.
            let line = self.credentials(session, template, out.get(start..).unwrap_or(&[]), body_at - start)?;
            out.splice(at..at, line);
        }
        Ok(())
    }

    fn push_value(&self, session: &Session, piece: TemplatePart, now: Timestamp, out: &mut Vec<u8>) {
        let local = self.locals.get(usize::from(session.local));
        match piece {
            TemplatePart::LocalIp => out.extend_from_slice(local.map_or("", |local| &local.ip).as_bytes()),
            TemplatePart::LocalPort => out.extend_from_slice(local.map_or("", |local| &local.port).as_bytes()),
            TemplatePart::Local => out.extend_from_slice(local.map_or("", |local| &local.both).as_bytes()),
            // Writing to a Vec cannot fail.
            TemplatePart::RemoteIp => drop(write!(out, "{}", self.setup.remote.ip())),
            TemplatePart::RemotePort => push_number(u64::from(self.setup.remote.port()), out),
            TemplatePart::Transport => out.extend_from_slice(self.setup.transport.as_str().as_bytes()),
            TemplatePart::CallId => {
                out.extend_from_slice(&hex(self.identity(session.serial)));
                out.push(b'@');
                out.extend_from_slice(local.map_or("", |local| &local.ip).as_bytes());
            }
            TemplatePart::CallNumber => push_number(session.serial & 0xFFFF_FFFF_FFFF, out),
            TemplatePart::LocalTag => {
                out.extend_from_slice(&hex(self.tag(session.call))[..10]);
                let class = self.script_of(session).map_or(0, |script| script.class);
                // The class selects one of several answering scripts; the answering end has a tag of its own.
                if class > 0 && session.flags.is_ours {
                    out.push(super::answer::CLASS_MARK);
                    push_number(u64::from(class), out);
                }
            }
            TemplatePart::User(UserField::Caller) => self.setup.users.push_name(session.caller, out),
            TemplatePart::User(UserField::Callee) => self.setup.users.push_name(session.callee, out),
            TemplatePart::User(UserField::Number) => push_number(u64::from(session.caller), out),
            TemplatePart::User(UserField::Column(column)) => {
                out.extend_from_slice(self.setup.users.cell(session.caller, column));
            }
            TemplatePart::Domain(UserField::Callee) => self.setup.users.push_domain(session.callee, out),
            TemplatePart::Domain(_) => self.setup.users.push_domain(session.caller, out),
            TemplatePart::Service => out.extend_from_slice(self.setup.users.service.as_bytes()),
            TemplatePart::Peer => out.extend_from_slice(dialog::parts(&session.dialog).peer),
            TemplatePart::PeerTag => {
                let tag = NameAddr::parse(dialog::parts(&session.dialog).peer).and_then(|peer| peer.tag());
                if let Some(tag) = tag {
                    out.extend_from_slice(b";tag=");
                    out.extend_from_slice(tag);
                }
            }
            TemplatePart::NextUrl => match dialog::parts(&session.dialog).next {
                [] => drop(write!(out, "sip:{}", self.setup.remote)),
                next => out.extend_from_slice(next),
            },
            TemplatePart::Routes => out.extend_from_slice(dialog::parts(&session.dialog).routes),
            TemplatePart::Variable(variable) => push_variable(Self::variable(session, variable), out),
            TemplatePart::Time => push_number(now.as_nanos(), out),
            _ => {}
        }
    }

    fn push_branch(&self, session: &Session, template: &Template, back: u8, out: &mut Vec<u8>) {
        let branch = match template.kind() {
            Kind::Request(MethodId::Cancel) => session.invite_branch,
            Kind::Request(MethodId::Ack) if session.invite_class != 2 => session.invite_branch,
            // It may be sent again after other requests.
            Kind::Request(MethodId::Ack) => session.ack_branch.saturating_sub(u32::from(back)),
            _ => session.branches.saturating_sub(u32::from(back)),
        };
        out.extend_from_slice(b"z9hG4bK");
        out.extend_from_slice(&hex(self.identity(session.serial)));
        out.push(b'.');
        push_number(u64::from(branch), out);
    }

    /// Writes the fields that a response copies from its request (RFC 3261 §8.2.6.2), and the route set of a dialog
    /// (§12.1.1).
    fn push_answer(&self, session: &Session, request: LastMessage<'_>, out: &mut Vec<u8>) {
        let LastMessage { head: request, plain_via, has_tag } = request;
        let source = session.reply_to().1;
        let mut is_top = plain_via != Some(source.ip());
        for field in request.fields() {
            let value = request.value(field);
            match field.name {
                HeaderName::Via if std::mem::take(&mut is_top) => push_top_via(value, source, out),
                HeaderName::Via => push_line(b"Via: ", value, &[], out),
                HeaderName::From => push_line(b"From: ", value, &[], out),
                HeaderName::To => {
                    if has_tag.unwrap_or_else(|| NameAddr::parse(value).and_then(|to| to.tag()).is_some()) {
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

    /// Returns the header lines that answer the session's challenges in `message`, whose body begins at `body_at`;
    /// empty without a challenge.
    //= rfc3261#22.3
    // Challenges of a proxy and of the callee are answered together.
    fn credentials(
        &self,
        session: &Session,
        template: &Template,
        message: &[u8],
        body_at: usize,
    ) -> Result<Vec<u8>, client::ChallengeError> {
        let mut lines = Vec::new();
        let (Some(extra), Kind::Request(_)) = (session.extra.as_ref(), template.kind()) else { return Ok(lines) };
        if extra.challenges.iter().all(|challenged| challenged.challenge.is_none()) {
            return Ok(lines);
        }
        let first = message.get(..memchr::memchr(b'\r', message).unwrap_or(0)).unwrap_or(&[]);
        let mut words = first.split(|byte| *byte == b' ');
        let (method, uri) = (words.next().unwrap_or(&[]), words.next().unwrap_or(&[]));
        let (mut username, mut password) = (Vec::new(), Vec::new());
        self.setup.users.push_name(session.caller, &mut username);
        self.setup.users.push_password(session.caller, &mut password);
        let cnonce = hex(super::mix(session.serial ^ u64::from(session.branches) ^ self.setup.run));
        for challenged in &extra.challenges {
            let Some(known) = &challenged.challenge else { continue };
            let challenge = AuthParams::parse(&known.value).ok_or(client::ChallengeError::Incomplete)?;
            lines.reserve(CREDENTIALS_BYTES);
            lines.extend_from_slice(if known.is_proxy { b"Proxy-Authorization: " } else { b"Authorization: " });
            let request = client::Request {
                username: &username,
                secret: client::Secret::Password(&password),
                method,
                uri,
                body: message.get(body_at..).unwrap_or(&[]),
                cnonce: &cnonce,
                nc: challenged.nonce_count.max(1),
                cover_body: false,
            };
            client::respond(&mut lines, &challenge, &request)?;
            lines.extend_from_slice(b"\r\n");
        }
        Ok(lines)
    }
}

/// Returns the CSeq of a message. An ACK and a CANCEL repeat that of their INVITE.
fn cseq_of(session: &Session, template: &Template) -> u32 {
    match template.kind() {
        Kind::Request(MethodId::Ack | MethodId::Cancel) => session.invite_cseq,
        _ => session.cseq,
    }
}

fn push_line(name: &[u8], value: &[u8], more: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(more);
    out.extend_from_slice(b"\r\n");
}

/// Writes fields of the last message in SIPp's form, with their name.
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

/// Inserts the length of the body, known only after the body is written, and returns its number of digits.
fn insert_number(number: usize, at: usize, out: &mut Vec<u8>) -> usize {
    let end = out.len();
    push_number(number as u64, out);
    let digits = out.len() - end;
    out.get_mut(at..).unwrap_or(&mut []).rotate_right(digits);
    digits
}

/// Writes a number in decimal.
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
