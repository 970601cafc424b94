//! How a member is, for the operator.

use core::net::SocketAddr;

use strowger_foundation::Timestamp;
use strowger_registrar::MemberId;

use crate::entry::Position;

/// How it goes, for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether all that the others had was read.
    pub is_warm: bool,
    /// Why the engine does not answer, where it does not.
    pub trouble: Option<String>,
    /// Since when.
    pub trouble_since: Option<Timestamp>,
    /// What another member's configuration contradicts, and what to do about it.
    pub conflict: Option<String>,
    /// Own changes that the engine has not confirmed.
    pub waiting: usize,
    /// Batches that there was no room for.
    pub refused: u64,
    /// How often the whole state was read.
    pub read_whole: u64,
    /// How often everything was announced again, for the engine had forgotten something.
    pub announced: u64,
    /// The other members.
    pub others: Vec<Seen>,
}

/// Another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which.
    pub member: MemberId,
    /// Where it takes SIP requests, once it has said so.
    pub address: Option<SocketAddr>,
    /// Whether it has said lately that it is alive.
    pub is_alive: bool,
    /// How far its log was read.
    pub read: Position,
}
