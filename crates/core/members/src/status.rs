//! How a member is, for the operator.

use core::net::SocketAddr;

use strowger_foundation::Timestamp;
use strowger_registrar::MemberId;

use crate::entry::Position;

/// How it goes, for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether all that the others had was read.
    pub is_synced: bool,
    /// Why nothing is shared, where nothing is: the engine does not answer, or none of the peers.
    pub failure: Option<String>,
    /// Since when.
    pub failure_since: Option<Timestamp>,
    /// What another member's configuration contradicts, and what to do about it.
    pub conflict: Option<String>,
    /// Own changes that the engine has not confirmed, or one of the peers that are alive.
    pub waiting: usize,
    /// Batches that there was no room for; of peers, changes.
    pub refused: u64,
    /// How often the whole state was read.
    pub full_reads: u64,
    /// How often everything was announced again: the engine had forgotten something, or a peer needed it.
    pub full_announcements: u64,
    /// The other members.
    pub others: Vec<MemberStatus>,
    /// The peers that are configured, where there is no engine.
    pub peers: Vec<PeerStatus>,
}

/// A peer, by where it takes changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Where.
    pub address: SocketAddr,
    /// Which member it is, once it has answered.
    pub member: Option<MemberId>,
    /// Whether it has answered lately.
    pub is_alive: bool,
    /// Changes that it has not confirmed.
    pub waiting: usize,
    /// Changes that there was no room for: it is told everything when it answers again.
    pub dropped: u64,
    /// Why it takes nothing, where it says so.
    pub failure: Option<&'static str>,
}

/// Another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Which.
    pub member: MemberId,
    /// Where it takes SIP requests, once it has said so.
    pub address: Option<SocketAddr>,
    /// Whether it has said lately that it is alive.
    pub is_alive: bool,
    /// How far its log was read. Of a peer: its process, and how many changes came from it.
    pub read: Position,
}
