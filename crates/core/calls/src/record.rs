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
    /// The operator ended it.
    EndedByOperator,
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
            Self::EndedByOperator => "ended by operator",
            Self::Cancelled => "cancelled",
            Self::Rejected => "rejected",
            Self::SessionExpired => "session expired",
            Self::Lost => "lost",
        }
    }
}

/// The trunks of a call, and its called number as sent. Texts are as sent by peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trunks {
    /// Name of the trunk that the INVITE came from.
    pub source: Option<Box<str>>,
    /// Name of the trunk that answered, or whose response the caller got.
    pub target: Option<Box<str>>,
    /// The Request-URI sent there, without parameters, if it is not the callee as sent by the caller; at most
    /// [`MAX_PARTY`](crate::MAX_PARTY) bytes.
    pub target_uri: Option<Box<[u8]>>,
}

/// A call that has ended. Texts are as sent by peers, truncated to their limits and not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// The call's [key](crate::CallKey::to_bits).
    pub key: u64,
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
    /// The trunks, and the called number as sent; `None` for a call without.
    pub trunks: Option<Box<Trunks>>,
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
    /// Transport of its 2xx.
    pub target_transport: Option<Transport>,
    /// See [`CallRecord::caller`].
    pub caller: &'a [u8],
    /// See [`CallRecord::callee`].
    pub callee: &'a [u8],
    /// See [`CallRecord::call_id`].
    pub call_id: &'a [u8],
}

/// Caller, callee, Call-ID, and what ending the call takes: one allocation, replaced by a longer one at the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallText {
    bytes: Box<[u8]>,
    caller: u8,
    callee: u8,
    call_id: u16,
}

impl CallText {
    /// Creates the text; the parties must not be longer than 255 bytes. `rest` is the caller's Contact.
    pub(crate) fn new(caller: &[u8], callee: &[u8], call_id: &[u8], rest: &[u8]) -> Self {
        debug_assert!(caller.len() < 256 && callee.len() < 256, "the lengths are bytes");
        let length = |text: &[u8]| u8::try_from(text.len()).unwrap_or(u8::MAX);
        Self {
            caller: length(caller),
            callee: length(callee),
            call_id: u16::try_from(call_id.len()).unwrap_or(u16::MAX),
            bytes: [caller, callee, call_id, rest].concat().into(),
        }
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
        self.bytes.get(start..self.end_of_call_id()).unwrap_or_default()
    }

    /// The caller's Contact; once the call is answered, the dialog.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.end_of_call_id()..).unwrap_or_default()
    }

    /// Returns a copy without the rest, with room for another one of `length` bytes.
    pub(crate) fn begin_again(&self, length: usize) -> Vec<u8> {
        let end = self.end_of_call_id();
        let mut bytes = Vec::with_capacity(end.saturating_add(length));
        bytes.extend_from_slice(self.bytes.get(..end).unwrap_or_default());
        bytes
    }

    /// Replaces the text by [another one](Self::begin_again) whose parties and Call-ID are the same.
    pub(crate) fn replace(&mut self, bytes: Vec<u8>) {
        debug_assert!(bytes.len() >= self.end_of_call_id(), "the rest follows them");
        self.bytes = bytes.into();
    }

    pub(crate) fn clear_rest(&mut self) {
        self.replace(self.begin_again(0));
    }

    fn end_of_call_id(&self) -> usize {
        let parties = usize::from(self.caller).saturating_add(usize::from(self.callee));
        parties.saturating_add(usize::from(self.call_id))
    }
}
