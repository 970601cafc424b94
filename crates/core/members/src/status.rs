//! Status of a member, for the operator.

use core::net::SocketAddr;

use strowger_foundation::Timestamp;
use strowger_registrar::MemberId;

use crate::entry::Position;

/// Status of this member, for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether everything the others had has been read.
    pub is_synced: bool,
    /// Why nothing is shared, if so: neither the engine nor any peer answers.
    pub failure: Option<String>,
    /// Start of the failure.
    pub failure_since: Option<Timestamp>,
    /// Conflict with another member's configuration, and what to do about it.
    pub conflict: Option<String>,
    /// Own changes that the engine, or a live peer, has not confirmed.
    pub waiting: usize,
    /// Batches refused for lack of room; with peers, changes.
    pub refused: u64,
    /// Number of full reads of the state.
    pub full_reads: u64,
    /// Number of times everything was announced again because the engine had lost entries or a peer needed it.
    pub full_announcements: u64,
    /// The other members.
    pub others: Vec<MemberStatus>,
    /// Configured peers, if there is no engine.
    pub peers: Vec<PeerStatus>,
}

/// Status of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Address where it takes changes.
    pub address: SocketAddr,
    /// Its member id, once it has answered.
    pub member: Option<MemberId>,
    /// Whether it has answered recently.
    pub is_alive: bool,
    /// Changes that it has not confirmed.
    pub waiting: usize,
    /// Changes dropped for lack of room. The peer gets everything when it answers again.
    pub dropped: u64,
    /// Why it rejects changes, if it says so.
    pub failure: Option<&'static str>,
}

/// Status of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Id of the member.
    pub member: MemberId,
    /// Address where it takes SIP requests, once known.
    pub address: Option<SocketAddr>,
    /// Whether it has sent a heartbeat recently.
    pub is_alive: bool,
    /// Position up to which its log has been read. Of a peer: its process and the number of changes received from it.
    pub read: Position,
}
