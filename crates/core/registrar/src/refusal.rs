//! Why a REGISTER changes nothing, and the status that says so.

use core::fmt;

use strowger_message::Status;

/// The table was left as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer's mistake; the reason phrase.
    BadRequest(&'static str),
    /// An expiry above zero and below the operator's minimum; the answer's Min-Expires in seconds (RFC 3261 §10.2.8).
    IntervalTooBrief {
        /// The least expiry that is taken.
        min_s: u64,
    },
    /// A contact that must not be registered; the reason phrase.
    Forbidden(&'static str),
    /// A flow is registered through a proxy that keeps none (RFC 5626 §6).
    FirstHopLacksOutbound,
    /// More contacts than the operator allows one address of record, or than one REGISTER may carry.
    TooManyContacts,
    /// The same Call-ID with a CSeq that is not higher (RFC 3261 §10.3 steps 6 and 7).
    OutOfOrder,
}

impl Refusal {
    /// The status of the answer.
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

    /// The reason phrase of the answer.
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
