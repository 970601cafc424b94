//! The accepting end of a connection.

use super::decoder::FrameDecoder;
use super::event::{Event, Failure, Input};
use super::head::{HeadSearch, elements, find_end, has_element, split_start};
use super::key::{AcceptDigest, is_key};
use super::open::{discard, handle_frame};
use super::origin::AllowedOrigins;
use super::refusal::Refusal;

/// The server's end of a WebSocket connection.
#[derive(Clone, Debug)]
pub struct WebSocketServer {
    phase: Phase,
    /// Longest message, in bytes.
    limit: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Request {
        /// Number of bytes without the end of the head.
        searched: u16,
    },
    Open(FrameDecoder),
    Over,
}

impl WebSocketServer {
    /// Creates the end of an accepted connection. Messages longer than `limit` bytes are refused.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { phase: Phase::Request { searched: 0 }, limit }
    }

    /// Returns whether messages may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Handles the first thing in `buffer`, which has all bytes not consumed so far. Call it again after each event
    /// except [`Event::Incomplete`]. Replies are appended to `out`.
    pub fn handle_input(&mut self, buffer: &mut [u8], origins: &AllowedOrigins, out: &mut Vec<u8>) -> Input {
        let input = match &mut self.phase {
            Phase::Request { searched } => handle_request(searched, buffer, origins, out),
            Phase::Open(decoder) => handle_frame(decoder, buffer, None, out),
            Phase::Over => discard(buffer),
        };
        match input.event {
            Event::Opened => self.phase = Phase::Open(FrameDecoder::new(true, self.limit)),
            Event::Closed { .. } | Event::Failed(_) => self.phase = Phase::Over,
            _ => {}
        }
        input
    }
}

fn handle_request(searched: &mut u16, buffer: &[u8], origins: &AllowedOrigins, out: &mut Vec<u8>) -> Input {
    let request = match find_request(searched, buffer) {
        Ok(Some(head)) => UpgradeRequest::parse(head).and_then(|request| match origins.allows(request.origin) {
            true => Ok((head.len(), request)),
            //= rfc6455#4.2.2:origin
            false => Err(Refusal::Origin),
        }),
        Ok(None) => return Input { consumed: 0, event: Event::Incomplete { needed: buffer.len().saturating_add(1) } },
        Err(refusal) => Err(refusal),
    };
    match request {
        Ok((consumed, request)) => {
            request.write_response(out);
            Input { consumed, event: Event::Opened }
        }
        Err(refusal) => {
            refusal.write_response(out);
            Input { consumed: buffer.len(), event: Event::Failed(Failure::Refused(refusal)) }
        }
    }
}

/// Returns the head if it is complete. A connection that is not HTTP is refused without waiting for a head.
fn find_request<'a>(searched: &mut u16, buffer: &'a [u8]) -> Result<Option<&'a [u8]>, Refusal> {
    if buffer.iter().zip(b"GET ").any(|(byte, expected)| byte != expected) {
        return Err(Refusal::NotGet);
    }
    match find_end(buffer, searched) {
        HeadSearch::Found(length) => Ok(buffer.get(..length)),
        HeadSearch::Incomplete => Ok(None),
        HeadSearch::TooLong => Err(Refusal::HeadTooLong),
    }
}

/// A valid request for a WebSocket with the subprotocol `sip` (RFC 6455 §4.2.1, RFC 7118 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpgradeRequest<'a> {
    /// Origin of the web page; `None` outside a browser.
    pub(super) origin: Option<&'a [u8]>,
    key: &'a [u8],
}

impl<'a> UpgradeRequest<'a> {
    /// Parses a complete HTTP head, or returns why the request is refused.
    pub(super) fn parse(head: &'a [u8]) -> Result<Self, Refusal> {
        let (start, fields) = split_start(head).map_err(|_| Refusal::Malformed)?;
        check_request_line(start)?;
        let mut seen = SeenFields::default();
        for field in fields {
            let (name, value) = field.map_err(|_| Refusal::Malformed)?;
            seen.add(name, value)?;
        }
        if seen.host.is_none() {
            return Err(Refusal::Field("Host"));
        }
        if !(seen.upgrades && seen.connection) {
            return Err(Refusal::NotUpgrade);
        }
        if seen.version != Some(b"13") {
            return Err(Refusal::Version);
        }
        let key = seen.key.filter(|key| is_key(key)).ok_or(Refusal::Field("Sec-WebSocket-Key"))?;
        if !seen.offers_sip {
            return Err(Refusal::Subprotocol);
        }
        Ok(Self { origin: seen.origin, key })
    }

    fn write_response(&self, out: &mut Vec<u8>) {
        //= rfc6455#4.2.2:accept
        //= rfc7118#4.1:selects-sip
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Accept: ",
        );
        out.extend_from_slice(&AcceptDigest::of(self.key).to_text());
        out.extend_from_slice(b"\r\n\r\n");
    }
}

fn check_request_line(line: &[u8]) -> Result<(), Refusal> {
    let rest = line.strip_prefix(b"GET ").ok_or(Refusal::NotGet)?;
    let space = memchr::memchr(b' ', rest).ok_or(Refusal::Malformed)?;
    let (target, version) = rest.split_at_checked(space).ok_or(Refusal::Malformed)?;
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::Malformed);
    }
    match version {
        b" HTTP/1.1" => Ok(()),
        _ if version.starts_with(b" HTTP/") => Err(Refusal::HttpVersion),
        _ => Err(Refusal::Malformed),
    }
}

/// The fields of a request that concern an upgrade.
#[derive(Clone, Copy, Debug, Default)]
struct SeenFields<'a> {
    host: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
    key: Option<&'a [u8]>,
    version: Option<&'a [u8]>,
    upgrades: bool,
    connection: bool,
    offers_sip: bool,
}

impl<'a> SeenFields<'a> {
    fn add(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Refusal> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        if is("Host") {
            once(&mut self.host, value, "Host")
        } else if is("Origin") {
            once(&mut self.origin, value, "Origin")
        } else if is("Sec-WebSocket-Key") {
            once(&mut self.key, value, "Sec-WebSocket-Key")
        } else if is("Sec-WebSocket-Version") {
            once(&mut self.version, value, "Sec-WebSocket-Version")
        } else if is("Transfer-Encoding") || is("Content-Length") && value != b"0" {
            Err(Refusal::Body)
        } else {
            self.upgrades |= is("Upgrade") && has_element(value, b"websocket");
            self.connection |= is("Connection") && has_element(value, b"upgrade");
            // Names of subprotocols depend on case.
            self.offers_sip |= is("Sec-WebSocket-Protocol") && elements(value).any(|element| element == b"sip");
            Ok(())
        }
    }
}

fn once<'a>(field: &mut Option<&'a [u8]>, value: &'a [u8], name: &'static str) -> Result<(), Refusal> {
    if field.replace(value).is_some() { Err(Refusal::Field(name)) } else { Ok(()) }
}
