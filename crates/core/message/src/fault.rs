//! Faults in a peer's message and the status that reports each.

use core::fmt;

use crate::status::Status;

/// Why a message was rejected. Always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The first line is neither a request line nor a status line.
    StartLine,
    /// The version is not SIP/2.0 (RFC 3261 §21.5.6).
    Version,
    /// The head is not terminated, or is longer than [`MAX_HEAD`](crate::MAX_HEAD).
    HeadTooLong,
    /// More header fields than [`MAX_FIELDS`](crate::MAX_FIELDS).
    TooManyFields,
    /// A header line without a name or without a colon.
    HeaderLine,
    /// A required header field is missing; its name.
    Missing(&'static str),
    /// A header field that is allowed once occurs more often; its name.
    Repeated(&'static str),
    /// The Request-URI violates RFC 3261 §19.1.1.
    RequestUri,
    /// A header field has a syntax error; its name.
    Header(&'static str),
    /// The CSeq method differs from the request's method (RFC 3261 §8.1.1.5).
    CSeqMethod,
    /// Content-Length is not a number, is contradictory, or exceeds the bytes received (RFC 3261 §18.3).
    ContentLength,
    /// The message is longer than the stream framer accepts.
    TooLarge,
}

impl Fault {
    /// Returns the status to respond with; the reason phrase is the [`Fault`]'s text.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Version => Status::VERSION_NOT_SUPPORTED,
            Self::HeadTooLong | Self::TooManyFields | Self::TooLarge => Status::MESSAGE_TOO_LARGE,
            _ => Status::BAD_REQUEST,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartLine => f.write_str("Bad Start Line"),
            Self::Version => f.write_str("Version Not Supported"),
            Self::HeadTooLong => f.write_str("Message Head Too Large"),
            Self::TooManyFields => f.write_str("Too Many Header Fields"),
            Self::HeaderLine => f.write_str("Bad Header Line"),
            Self::Missing(name) => write!(f, "Missing {name} Header"),
            Self::Repeated(name) => write!(f, "Repeated {name} Header"),
            Self::RequestUri => f.write_str("Bad Request-URI"),
            Self::Header(name) => write!(f, "Bad {name} Header"),
            Self::CSeqMethod => f.write_str("CSeq Method Does Not Match"),
            Self::ContentLength => f.write_str("Bad Content-Length"),
            Self::TooLarge => f.write_str("Message Too Large"),
        }
    }
}

impl core::error::Error for Fault {}
