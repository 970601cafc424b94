//! State of shared registrations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of shared registrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Name of the cluster.
    pub name: String,
    /// This member's number.
    pub member: u16,
    /// Address where this member takes requests for phones that only it can reach.
    pub address: String,
    /// Whether the member has read everything that the others had when it started.
    pub warm: bool,
    /// Why sharing is interrupted: the engine, or every peer, does not answer.
    pub trouble: Option<String>,
    /// Duration of the trouble, in seconds.
    pub trouble_s: Option<f64>,
    /// Setting that contradicts another member's configuration.
    #[serde(default)]
    pub conflict: Option<String>,
    /// Changes not yet confirmed by the engine, or by a peer that answers.
    pub waiting: u64,
    /// Batches of changes refused for lack of room; with peers, changes.
    pub refused: u64,
    /// How often the whole state was read; with peers, from how many.
    pub read_whole: u64,
    /// How often the whole state was sent again, because the engine had lost data or a peer needed it.
    pub announced: u64,
    /// The other members.
    pub members: Vec<Member>,
    /// The configured peers; empty with an engine.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// Another member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Member number.
    pub member: u16,
    /// Address where the member takes SIP requests.
    pub address: String,
    /// Whether the member sent a heartbeat within the last two seconds.
    pub alive: bool,
    /// Last entry read from its log; with peers, the number of changes it has sent.
    pub read: u64,
}

/// A peer, identified by the address where it takes forwarded changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Peer {
    /// Address where the peer takes forwarded changes.
    pub listen: String,
    /// The peer's member number; none until its first answer.
    pub member: Option<u16>,
    /// Whether the peer answered within the last two seconds.
    pub alive: bool,
    /// Changes that the peer has not confirmed.
    pub waiting: u64,
    /// Changes dropped for lack of room. The peer receives the whole state when it answers again.
    pub dropped: u64,
}
