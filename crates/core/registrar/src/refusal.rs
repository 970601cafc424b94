//! Reasons to refuse a REGISTER, and their status codes.

use core::fmt;

use strowger_message::Status;

/// The reason for refusing a REGISTER; the table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A malformed request; the reason phrase.
    BadRequest(&'static str),
    /// An expiry above zero and below the operator's minimum; becomes the response's Min-Expires in seconds (RFC 3261
    /// §10.2.8).
    IntervalTooBrief {
        /// The minimum expiry.
        min_s: u64,
    },
    /// A contact that must not be registered; the reason phrase.
    Forbidden(&'static str),
    /// A flow registered through a proxy that does not support flows (RFC 5626 §6).
    FirstHopLacksOutbound,
    /// More contacts than allowed for one address of record or for one REGISTER.
    TooManyContacts,
    /// The same Call-ID with a CSeq that is not higher (RFC 3261 §10.3 steps 6 and 7).
    OutOfOrder,
}

impl Refusal {
    //= rfc3261#10.3:no-6xx
    /// Returns the status of the response.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::BadRequest(_) => Status::BAD_REQUEST,
            Self::IntervalTooBrief { .. } => Status::INTERVAL_TOO_BRIEF,
            Self::TooManyContacts | Self::Forbidden(_) => Status::FORBIDDEN,
            Self::FirstHopLacksOutbound => Status::FIRST_HOP_LACKS_OUTBOUND,
            Self::OutOfOrder => Status::SERVER_ERROR,
        }
    }

    /// Returns the reason phrase of the response.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(reason) | Self::Forbidden(reason) => reason,
            Self::FirstHopLacksOutbound => Status::FIRST_HOP_LACKS_OUTBOUND.reason(),
            Self::IntervalTooBrief { .. } => Status::INTERVAL_TOO_BRIEF.reason(),
            Self::TooManyContacts => "Too Many Contacts",
            Self::OutOfOrder => "REGISTER Out Of Order",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for Refusal {}
