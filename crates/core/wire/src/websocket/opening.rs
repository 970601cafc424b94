//! The client's part of an upgrade: its request, and the check of the response.

use std::fmt;

use super::head::{has_element, split_start};
use super::key::{AcceptDigest, key_text};

/// Where a client asks for a WebSocket. The texts must not contain line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRequest<'a> {
    /// Host, with a port if it is not the default.
    pub host: &'a str,
    /// Path and query, such as `/`.
    pub target: &'a str,
    /// Origin, if the client acts for a web page.
    pub origin: Option<&'a str>,
}

impl ClientRequest<'_> {
    /// Appends the request to `out`. Returns the digest that the response has to contain. `key` must be random.
    pub(super) fn write(&self, key: [u8; 16], out: &mut Vec<u8>) -> AcceptDigest {
        let key = key_text(key);
        //= rfc6455#4.1:request
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
        put(&[b"GET ", self.target.as_bytes(), b" HTTP/1.1\r\nHost: ", self.host.as_bytes(), b"\r\n"]);
        put(&[b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"]);
        //= rfc7118#4.1:offers-sip
        put(&[b"Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Key: ", &key, b"\r\n"]);
        if let Some(origin) = self.origin {
            put(&[b"Origin: ", origin.as_bytes(), b"\r\n"]);
        }
        put(&[b"\r\n"]);
        AcceptDigest::of(&key)
    }
}

/// Checks the complete head of a response (RFC 6455 §4.1).
pub(super) fn check_response(head: &[u8], expected: AcceptDigest) -> Result<(), UpgradeError> {
    let (start, fields) = split_start(head).map_err(|_| UpgradeError::Malformed)?;
    let status = parse_status(start).ok_or(UpgradeError::Malformed)?;
    //= rfc6455#4.1:status
    if status != 101 {
        return Err(UpgradeError::Status(status));
    }
    let (mut upgrades, mut connection) = (false, false);
    let (mut accepts, mut protocols) = (Vec::new(), Vec::new());
    for field in fields {
        let (name, value) = field.map_err(|_| UpgradeError::Malformed)?;
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        upgrades |= is("Upgrade") && has_element(value, b"websocket");
        connection |= is("Connection") && has_element(value, b"upgrade");
        if is("Sec-WebSocket-Accept") {
            accepts.push(value);
        } else if is("Sec-WebSocket-Protocol") {
            protocols.push(value);
        //= rfc6455#4.1:extensions
        } else if is("Sec-WebSocket-Extensions") && !value.is_empty() {
            return Err(UpgradeError::Extension);
        }
    }
    if !(upgrades && connection) {
        Err(UpgradeError::NotUpgraded)
    //= rfc6455#4.1:accept
    } else if accepts != [&expected.to_text()] {
        Err(UpgradeError::Accept)
    //= rfc6455#4.1:subprotocol
    } else if protocols != [b"sip"] {
        Err(UpgradeError::Subprotocol)
    } else {
        Ok(())
    }
}

fn parse_status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ")?;
    let (digits, phrase) = rest.split_first_chunk::<3>()?;
    let is_status = digits.iter().all(u8::is_ascii_digit) && (phrase.is_empty() || phrase.starts_with(b" "));
    std::str::from_utf8(digits).ok().filter(|_| is_status)?.parse().ok()
}

/// Why a server did not open a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeError {
    /// The head of the response is longer than [`MAX_HTTP_HEAD`](super::MAX_HTTP_HEAD).
    HeadTooLong,
    /// The response is not HTTP/1.1.
    Malformed,
    /// The response has another status than 101.
    Status(u16),
    /// Upgrade or Connection is missing.
    NotUpgraded,
    /// Sec-WebSocket-Accept does not match the key.
    Accept,
    /// The server did not select the subprotocol `sip`.
    Subprotocol,
    /// The server uses an extension that was not offered.
    Extension,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeadTooLong => "the head of its response is longer than 8192 bytes",
            Self::Malformed => "its response is not HTTP/1.1; check the address and whether the port expects TLS",
            Self::Status(status) => return write!(f, "it responded with status {status} instead of 101"),
            Self::NotUpgraded => "its response has no Upgrade or Connection; a proxy in between may have removed them",
            Self::Accept => "its response belongs to another request (wrong Sec-WebSocket-Accept)",
            Self::Subprotocol => "it did not select the subprotocol sip; check whether it is a SIP server",
            Self::Extension => "it uses an extension that was not offered",
        })
    }
}

impl std::error::Error for UpgradeError {}
