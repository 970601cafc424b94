//! What is told of a call.

use core::net::SocketAddr;

use strowger_foundation::{Timestamp, Transport};

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The INVITE is on its way.
    Trying,
    /// Somebody was alerted: a provisional response other than 100 came back.
    Ringing,
    /// The caller was asked for more and is expected to try again: a challenge, or a session interval that is too small.
    Challenged,
    /// There was a 2xx.
    Answered,
}

impl State {
    /// A word for tables and JSON.
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

/// Why a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The caller sent BYE.
    CallerHungUp,
    /// The callee sent BYE.
    CalleeHungUp,
    /// The caller gave up before there was an answer.
    Cancelled,
    /// A final response other than a 2xx.
    Rejected,
    /// The session timer ran out (RFC 4028 §10).
    SessionExpired,
    /// Nothing was heard of it for [`Limits::age`](crate::Limits::age).
    Lost,
}

impl Reason {
    /// A word for JSON.
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

/// A call that has ended. Texts are what peers wrote: cut to their limits, and not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When its INVITE came.
    pub began: Timestamp,
    /// When its first 2xx came.
    pub answered: Option<Timestamp>,
    /// When it ended; for [`Reason::SessionExpired`] and [`Reason::Lost`], when its time was over.
    pub ended: Timestamp,
    /// Why it ended.
    pub reason: Reason,
    /// The final response to the INVITE that its caller got, where there was one: 200, or why it was not answered.
    pub status: Option<u16>,
    /// How the INVITE came.
    pub transport: Transport,
    /// Where the INVITE came from.
    pub source: SocketAddr,
    /// Where the INVITE went: to who answered, or whose answer the caller got.
    pub target: Option<SocketAddr>,
    pub(crate) text: CallText,
}

impl CallRecord {
    /// The URI in From, without display name; at most [`MAX_PARTY`](crate::MAX_PARTY) bytes.
    #[must_use]
    pub fn caller(&self) -> &[u8] {
        self.text.caller()
    }

    /// The Request-URI as the caller wrote it; at most [`MAX_PARTY`](crate::MAX_PARTY) bytes.
    #[must_use]
    pub fn callee(&self) -> &[u8] {
        self.text.callee()
    }

    /// Call-ID; at most [`MAX_CALL_ID`](crate::MAX_CALL_ID) bytes.
    #[must_use]
    pub fn call_id(&self) -> &[u8] {
        self.text.call_id()
    }
}

/// A call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallView<'a> {
    /// How far it has come.
    pub state: State,
    /// When its INVITE came.
    pub began: Timestamp,
    /// When its first 2xx came.
    pub answered: Option<Timestamp>,
    /// How the INVITE came.
    pub transport: Transport,
    /// Where the INVITE came from.
    pub source: SocketAddr,
    /// Where it was answered.
    pub target: Option<SocketAddr>,
    /// See [`Record::caller`].
    pub caller: &'a [u8],
    /// See [`Record::callee`].
    pub callee: &'a [u8],
    /// See [`Record::call_id`].
    pub call_id: &'a [u8],
}

/// Caller, callee and Call-ID in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallText {
    bytes: Box<[u8]>,
    caller: u8,
    callee: u8,
}

impl CallText {
    /// The parties must not be longer than 255 bytes.
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
