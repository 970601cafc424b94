//! Requests to the engine and their replies.

use core::net::SocketAddr;

use strowger_registrar::MemberId;

use crate::entry::{Entry, Position};

/// A request to the engine. At most one of each kind is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read where the logs of all members end. Answered by [`Reply::Ends`].
    Ends,
    /// Read the whole state into the location table. Answered by [`Reply::AllRead`].
    ReadAll,
    /// Read the entries after these positions; waits for a while if there are none. Answered by [`Reply::Entries`].
    Follow(Vec<(MemberId, Position)>),
    /// Append an entry to the own log and apply its changes to the state. Succeeds if the entry is already there,
    /// fails if the log ends elsewhere than the entry says. Answered by [`Reply::Appended`].
    Append(Entry),
    /// Read the heartbeats of all members, then write this member's. Answered by [`Reply::Heartbeats`].
    Heartbeat,
}

/// The result of a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Ends of all logs that have an entry.
    Ends(Vec<(MemberId, Position)>),
    /// The table has all of the state that the engine had when the request was sent.
    AllRead,
    /// Entries of each log, in order.
    Entries(Vec<(MemberId, Vec<Entry>)>),
    /// The entry at this position is stored with the configured redundancy.
    Appended(Position),
    /// Heartbeats before this request, including this member's own.
    Heartbeats(Vec<LiveMember>),
    /// The request failed, or its outcome is unknown.
    Failed {
        /// Kind of the request.
        request: Kind,
        /// Reason, for the operator.
        why: String,
    },
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// [`Request::Ends`].
    Ends,
    /// [`Request::ReadAll`].
    ReadAll,
    /// [`Request::Follow`].
    Follow,
    /// [`Request::Append`].
    Append,
    /// [`Request::Heartbeat`].
    Heartbeat,
}

impl Request {
    /// Returns the kind of the request.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Ends => Kind::Ends,
            Self::ReadAll => Kind::ReadAll,
            Self::Follow(_) => Kind::Follow,
            Self::Append(_) => Kind::Append,
            Self::Heartbeat => Kind::Heartbeat,
        }
    }
}

impl Reply {
    /// Returns the kind of the request that this answers.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Ends(_) => Kind::Ends,
            Self::AllRead => Kind::ReadAll,
            Self::Entries(_) => Kind::Follow,
            Self::Appended(_) => Kind::Append,
            Self::Heartbeats(_) => Kind::Heartbeat,
            Self::Failed { request, .. } => *request,
        }
    }
}

/// Heartbeat of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveMember {
    /// Id of the member.
    pub member: MemberId,
    /// Incarnation of its process.
    pub incarnation: u64,
    /// Value that changes with each heartbeat.
    pub heartbeat: u64,
    /// Address where it takes SIP requests.
    pub address: SocketAddr,
    /// Identifier of its key.
    pub key: String,
}
