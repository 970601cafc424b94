//! Reported data of a call.

use core::net::SocketAddr;

use strowger_foundation::{Timestamp, Transport};

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The INVITE has been forwarded.
    Trying,
    /// The callee is alerted: a provisional response other than 100 was received.
    Ringing,
    /// The caller is expected to retry after a challenge or a session interval that is too small.
    Challenged,
    /// A 2xx was received.
    Answered,
}

impl State {
    /// Returns the name for tables and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trying => "trying",
            Self::Ringing => "ringing",
            Self::Challenged => "challenged",
            Self::Answered => "answered",
        }
    }
}

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The caller sent BYE.
    CallerHungUp,
    /// The callee sent BYE.
    CalleeHungUp,
    /// The caller cancelled before the answer.
    Cancelled,
    /// A final response other than a 2xx.
    Rejected,
    /// The session timer expired (RFC 4028 §10).
    SessionExpired,
    /// No message for [`Limits::age`](crate::Limits::age).
    Lost,
}

impl Reason {
    /// Returns the name for JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallerHungUp => "caller hung up",
            Self::CalleeHungUp => "callee hung up",
            Self::Cancelled => "cancelled",
            Self::Rejected => "rejected",
            Self::SessionExpired => "session expired",
            Self::Lost => "lost",
        }
    }
}

/// A call that has ended. Texts are as sent by peers, truncated to their limits and not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Time of the INVITE.
    pub began: Timestamp,
    /// Time of the first 2xx.
    pub answered: Option<Timestamp>,
    /// Time of the end; for [`Reason::SessionExpired`] and [`Reason::Lost`] the time of expiry.
    pub ended: Timestamp,
    /// Why the call ended.
    pub reason: Reason,
    /// The final response sent to the caller, if any: 200, or why the call was not answered.
    pub status: Option<u16>,
    /// Transport of the received INVITE.
    pub transport: Transport,
    /// Source of the INVITE.
    pub source: SocketAddr,
    /// Destination of the INVITE: the peer that answered, or whose response the caller got.
    pub target: Option<SocketAddr>,
    pub(crate) text: CallText,
}

impl CallRecord {
    /// The URI in From, without display name; at most [`MAX_PARTY`](crate::MAX_PARTY) bytes.
    #[must_use]
    pub fn caller(&self) -> &[u8] {
        self.text.caller()
    }

    /// The Request-URI as sent by the caller; at most [`MAX_PARTY`](crate::MAX_PARTY) bytes.
    #[must_use]
    pub fn callee(&self) -> &[u8] {
        self.text.callee()
    }

    /// The Call-ID; at most [`MAX_CALL_ID`](crate::MAX_CALL_ID) bytes.
    #[must_use]
    pub fn call_id(&self) -> &[u8] {
        self.text.call_id()
    }
}

/// A call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallView<'a> {
    /// State of the call.
    pub state: State,
    /// Time of the INVITE.
    pub began: Timestamp,
    /// Time of the first 2xx.
    pub answered: Option<Timestamp>,
    /// Transport of the received INVITE.
    pub transport: Transport,
    /// Source of the INVITE.
    pub source: SocketAddr,
    /// The peer that answered.
    pub target: Option<SocketAddr>,
    /// See [`CallRecord::caller`].
    pub caller: &'a [u8],
    /// See [`CallRecord::callee`].
    pub callee: &'a [u8],
    /// See [`CallRecord::call_id`].
    pub call_id: &'a [u8],
}

/// Caller, callee and Call-ID in one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallText {
    bytes: Box<[u8]>,
    caller: u8,
    callee: u8,
}

impl CallText {
    /// Creates the text; the parties must not be longer than 255 bytes.
    pub(crate) fn new(caller: &[u8], callee: &[u8], call_id: &[u8]) -> Self {
        debug_assert!(caller.len() < 256 && callee.len() < 256, "the lengths are bytes");
        let length = |text: &[u8]| u8::try_from(text.len()).unwrap_or(u8::MAX);
        Self { caller: length(caller), callee: length(callee), bytes: [caller, callee, call_id].concat().into() }
    }

    pub(crate) fn caller(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.caller)).unwrap_or_default()
    }

    pub(crate) fn callee(&self) -> &[u8] {
        let start = usize::from(self.caller);
        self.bytes.get(start..start.saturating_add(usize::from(self.callee))).unwrap_or_default()
    }

    pub(crate) fn call_id(&self) -> &[u8] {
        let start = usize::from(self.caller).saturating_add(usize::from(self.callee));
        self.bytes.get(start..).unwrap_or_default()
    }
}
