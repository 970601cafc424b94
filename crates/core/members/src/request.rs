//! What a member asks of the engine, and what comes of it.

use core::net::SocketAddr;

use strowger_registrar::MemberId;

use crate::entry::{Entry, Position};

/// What is to be asked of the engine. Of each kind one is on its way at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Where the logs of all members end: [`Reply::Ends`].
    Ends,
    /// The whole state, which is shown to the location table: [`Reply::AllRead`].
    ReadAll,
    /// What the logs have behind these positions. Waits for a while where that is nothing: [`Reply::Entries`].
    Follow(Vec<(MemberId, Position)>),
    /// To append an entry to the own log, if that ends where the entry says, and to bring its changes into the state:
    /// [`Reply::Appended`]. What is there already is appended. A log that ends elsewhere is a failure.
    Append(Entry),
    /// To see who is alive, and then to say that this member is: [`Reply::Beat`].
    Heartbeat,
}

/// What came of a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Where the logs end that have an entry.
    Ends(Vec<(MemberId, Position)>),
    /// All of the state is in the table that was in the engine when it was asked for.
    AllRead,
    /// Entries of each log in their order.
    Entries(Vec<(MemberId, Vec<Entry>)>),
    /// The entry at this position is in the engine, as often as it was promised.
    Appended(Position),
    /// Who had said that it is alive, this member among them.
    Heartbeats(Vec<LiveMember>),
    /// It could not be done, or nobody knows whether it was.
    Failed {
        /// What.
        request: Kind,
        /// Why, for the operator.
        why: String,
    },
}

/// Which request.
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
    /// [`Request::Beat`].
    Heartbeat,
}

impl Request {
    /// Which it is.
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
    /// To which request it is one.
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

/// A member that has said that it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveMember {
    /// Which.
    pub member: MemberId,
    /// Its process.
    pub incarnation: u64,
    /// What changes each time that it says so.
    pub heartbeat: u64,
    /// Where it takes SIP requests.
    pub address: SocketAddr,
    /// What tells its key from others.
    pub key: String,
}
