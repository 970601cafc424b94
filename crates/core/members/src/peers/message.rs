//! Messages between members: SIP messages (RFC 3261) with a header field that authenticates the sender.
//!
//! | content | message |
//! |---|---|
//! | changes of registrations | REGISTER; the body has them in full, To and Contact show them in a trace |
//! | a heartbeat | OPTIONS that is not retransmitted |
//! | end of a full synchronization | OPTIONS that is retransmitted until it is answered |
//! | used nonces | the same, in the body |
//!
//! `Strowger-Member: 1-1764104993000;to=2-1764104990000;number=17;address=192.0.2.1:5060;tag=…` names the sending
//! process and its member, the receiving process, the message's number between the two, and the address where the
//! sender takes SIP requests. The tag covers the method or status, the header field's value before the tag, and the
//! body.

use core::net::SocketAddr;
use std::io::Write as _;

use strowger_foundation::tag::TAG_TEXT_LEN;
use strowger_foundation::{Tag, TagKey};
use strowger_message::{Head, ResponseBuilder, Status, parse_decimal, trim};
use strowger_registrar::{MemberId, Record};

/// One process of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Id of the member.
    pub member: MemberId,
    /// Process start, in ms since 1970.
    pub started_ms: u64,
}

/// State of a full synchronization as told in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullSync {
    None,
    /// The sender requests a full synchronization.
    Requested,
    /// The receiver has been sent everything.
    Complete,
}

/// Contents of the header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) from: Process,
    /// Receiving process. `None` in a heartbeat, by which members discover each other.
    pub(super) to: Option<Process>,
    pub(super) number: u64,
    /// Address where the sender takes SIP requests.
    pub(super) address: SocketAddr,
    pub(super) full_sync: FullSync,
}

/// A request to write.
pub(super) struct Request<'a> {
    pub(super) envelope: Envelope,
    /// Address where the sender takes these messages.
    pub(super) listen: SocketAddr,
    /// Address where the receiver takes them.
    pub(super) peer: SocketAddr,
    /// [Records](Record) of changes, which form the body. Without any the request is an OPTIONS.
    pub(super) changes: &'a [&'a [u8]],
    pub(super) body: &'a [u8],
}

const NAME: &str = "Strowger-Member";
const TAG: &[u8] = b";tag=";
const TYPE: &str = "application/vnd.strowger.changes";
const NONCE_TYPE: &str = "application/vnd.strowger.nonces";

impl Request<'_> {
    //= rfc3261#10.2
    pub(super) fn write(&self, key: &TagKey) -> Vec<u8> {
        let Self { envelope, listen, peer, changes, body } = self;
        let method = if changes.is_empty() { "OPTIONS" } else { "REGISTER" };
        let Envelope { from: Process { member, started_ms: began }, number, .. } = *envelope;
        let member = member.get();
        let cseq = number & 0x7fff_ffff;
        let mut out = Vec::with_capacity(768 + body.len());
        let _ = write!(
            out,
            "{method} sip:{peer} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {listen};branch=z9hG4bK{began:x}.{number:x}\r\n\
             Max-Forwards: 0\r\n\
             From: <sip:member-{member}@{listen}>;tag={began:x}\r\n\
             To: <sip:"
        );
        match common_aor(changes) {
            Some(aor) => write_escaped(&mut out, aor),
            None => drop(write!(out, "{peer}")),
        }
        let _ = write!(out, ">\r\nCall-ID: {began:x}.{peer}@{listen}\r\nCSeq: {cseq} {method}\r\n");
        write_contacts(&mut out, changes);
        let signed = envelope.to_text();
        let tag = key.sign(&[method.as_bytes(), &signed, body]).to_text();
        let parts: [&[u8]; 6] = [NAME.as_bytes(), b": ", &signed, TAG, &tag, b"\r\n"];
        parts.iter().for_each(|part| out.extend_from_slice(part));
        if !body.is_empty() {
            let content = if changes.is_empty() { NONCE_TYPE } else { TYPE };
            let _ = write!(out, "Content-Type: {content}\r\n");
        }
        let _ = write!(out, "Content-Length: {}\r\n\r\n", body.len());
        out.extend_from_slice(body);
        out
    }
}

/// Returns the address of record if all changes share one.
fn common_aor<'a>(changes: &[&'a [u8]]) -> Option<&'a [u8]> {
    let mut aors = changes.iter().filter_map(|change| Record::parse(change).ok()).map(|record| record.aor());
    let first = aors.next()?;
    aors.all(|aor| aor == first).then_some(first)
}

/// Writes a Contact for each binding, with its registration period. Only the body says which contact was removed.
fn write_contacts(out: &mut Vec<u8>, changes: &[&[u8]]) {
    if common_aor(changes).is_none() {
        return;
    }
    let mut has_bound = false;
    for record in changes.iter().filter_map(|change| Record::parse(change).ok()) {
        record.for_each_change(|change| {
            let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"<>\"".contains(byte);
            if !change.uri.is_empty() && change.uri.iter().all(is_plain) {
                has_bound = true;
                let expires_s = change.expires_ms.saturating_sub(change.version.millis()).div_ceil(1_000);
                out.extend_from_slice(b"Contact: <");
                out.extend_from_slice(change.uri);
                let _ = write!(out, ">;expires={expires_s}\r\n");
            }
        });
    }
    if !has_bound {
        out.extend_from_slice(b"Expires: 0\r\n");
    }
}

/// Writes an address of record, escaped for a URI.
fn write_escaped(out: &mut Vec<u8>, aor: &[u8]) {
    for byte in aor {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/@:[]".contains(byte) {
            out.push(*byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Writes the response to a request. With an `envelope` it names its sender.
pub(super) fn write_response(
    key: &TagKey,
    request: &Head<'_>,
    status: Status,
    (to_tag, envelope): (u64, Option<&Envelope>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let to_tag = format!("{to_tag:x}");
    let reply = ResponseBuilder::begin(&mut out, request, status, status.reason(), to_tag.as_bytes(), None);
    let reply = match envelope {
        Some(envelope) => {
            let signed = envelope.to_text();
            let tag = key.sign(&[status.code().to_string().as_bytes(), &signed, b""]).to_text();
            reply.header(NAME, &[&signed, TAG, &tag])
        }
        None => reply,
    };
    reply.finish();
    out
}

impl Envelope {
    fn to_text(self) -> Vec<u8> {
        let Self { from, to, number, address, full_sync: whole } = self;
        let mut text = Vec::with_capacity(128);
        let _ = write!(text, "{}-{}", from.member.get(), from.started_ms);
        if let Some(to) = to {
            let _ = write!(text, ";to={}-{}", to.member.get(), to.started_ms);
        }
        let _ = write!(text, ";number={number};address={address}");
        text.extend_from_slice(match whole {
            FullSync::None => b"",
            FullSync::Requested => b";all=wanted",
            FullSync::Complete => b";all=sent",
        });
        text
    }

    /// Parses the header field. Returns `None` if it is missing or its tag is wrong. `what` is the method or the
    /// status.
    pub(super) fn read(key: &TagKey, head: &Head<'_>, what: &[u8]) -> Option<Self> {
        let value = field(head)?;
        let (signed, tag) = value.split_at_checked(value.len().checked_sub(TAG.len() + TAG_TEXT_LEN)?)?;
        let tag = Tag::from_text(tag.strip_prefix(TAG)?)?;
        if !key.sign(&[what, signed, head.rest()]).matches(&tag) {
            return None;
        }
        let mut params = signed.split(|byte| *byte == b';');
        let from = process(params.next()?)?;
        let (mut to, mut number, mut address, mut whole) = (None, None, None, FullSync::None);
        for param in params {
            let at = param.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (param.get(..at)?, param.get(at + 1..)?);
            match (name, value) {
                (b"to", value) => to = Some(process(value)?),
                (b"number", value) => number = Some(parse_decimal(value)?),
                (b"address", value) => address = Some(core::str::from_utf8(value).ok()?.parse().ok()?),
                (b"all", b"wanted") => whole = FullSync::Requested,
                (b"all", b"sent") => whole = FullSync::Complete,
                // Parameter of a later version.
                _ => {}
            }
        }
        Some(Self { from, to, number: number?, address: address?, full_sync: whole })
    }
}

/// Returns the value of the header field.
fn field<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    head.fields().iter().find_map(|field| {
        let (name, behind) = head.line(field).split_at_checked(NAME.len())?;
        let value = trim(behind).strip_prefix(b":")?;
        name.eq_ignore_ascii_case(NAME.as_bytes()).then(|| trim(value))
    })
}

fn process(text: &[u8]) -> Option<Process> {
    let at = text.iter().position(|byte| *byte == b'-')?;
    let member = parse_decimal(text.get(..at)?).and_then(|number| u16::try_from(number).ok())?;
    Some(Process { member: MemberId::new(member)?, started_ms: parse_decimal(text.get(at + 1..)?)? })
}
