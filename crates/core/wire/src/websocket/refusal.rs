//! Why a server refuses an upgrade, and how it says so.

use std::fmt;
use std::io::Write as _;

/// Why a request for a WebSocket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The connection does not start with a GET request.
    NotGet,
    /// The head is longer than [`MAX_HTTP_HEAD`](super::MAX_HTTP_HEAD).
    HeadTooLong,
    /// The head is malformed.
    Malformed,
    /// The version of HTTP is not 1.1.
    HttpVersion,
    /// A field is missing, repeated or malformed that must be there once.
    Field(&'static str),
    /// The request has a body.
    Body,
    /// The request does not ask for a WebSocket.
    NotUpgrade,
    /// The version of the WebSocket protocol is not 13.
    Version,
    /// The subprotocol `sip` is not offered.
    Subprotocol,
    /// The page's origin is not allowed.
    Origin,
}

impl Refusal {
    /// Returns the HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            //= rfc6455#4.2.1:malformed
            Self::Malformed | Self::Field(_) | Self::Body | Self::Subprotocol => 400,
            Self::Origin => 403,
            Self::NotGet => 405,
            Self::NotUpgrade | Self::Version => 426,
            Self::HeadTooLong => 431,
            Self::HttpVersion => 505,
        }
    }

    /// Appends the response to `out`. The reason is its body, so that a person who opens the address in a browser reads
    /// it.
    pub(super) fn write_response(self, out: &mut Vec<u8>) {
        let (phrase, fields) = match self.status() {
            403 => ("Forbidden", ""),
            405 => ("Method Not Allowed", "Allow: GET\r\n"),
            //= rfc6455#4.4:versions
            426 => ("Upgrade Required", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"),
            431 => ("Request Header Fields Too Large", ""),
            505 => ("HTTP Version Not Supported", ""),
            _ => ("Bad Request", ""),
        };
        let connection = if self.status() == 426 { "Upgrade, close" } else { "close" };
        let body = format!("This is a SIP server: {self}.\n");
        // Writing to a vector does not fail.
        let _ = write!(
            out,
            "HTTP/1.1 {} {phrase}\r\n{fields}Connection: {connection}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.status(),
            body.len(),
        );
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotGet => "only a GET request opens a WebSocket; SIP without WebSocket and TLS need other listeners",
            Self::HeadTooLong => "the head of the request is longer than 8192 bytes; the site's cookies may be the cause",
            Self::Malformed => "the request is malformed",
            Self::HttpVersion => "a WebSocket needs HTTP/1.1; a proxy in between may have changed the version",
            Self::Field(name) => return write!(f, "the field {name} is missing, repeated or malformed"),
            Self::Body => "a request for a WebSocket has no body",
            Self::NotUpgrade => {
                "it expects a WebSocket; if the client asked for one, a proxy in between has removed Upgrade and Connection"
            }
            Self::Version => "only version 13 of the WebSocket protocol is supported",
            Self::Subprotocol => "the client must offer the WebSocket subprotocol sip",
            Self::Origin => "pages of this origin are not allowed to connect",
        })
    }
}

impl std::error::Error for Refusal {}
