//! What a selection goes by.

use strowger_foundation::Timestamp;

/// The properties of a request that a selection uses.
#[derive(Clone, Copy)]
pub struct SelectionInput<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The Call-ID. It determines the two candidates and breaks ties of load policies.
    pub call_id: &'a [u8],
    /// The key of hash policies: the bytes of what [`SetConfig::key`](crate::SetConfig::key) names.
    pub key: &'a [u8],
    /// A pseudo-random number for draws.
    pub random: u64,
    /// Whether it may begin a call, which uses a target's capacity.
    pub begins_call: bool,
    /// Maximum number of members wanted; at most [`MAX_TRIES`](crate::MAX_TRIES) are returned.
    pub limit: usize,
    /// The advice of passive failure detection on a member.
    pub advice: &'a dyn Fn(usize) -> Advice,
}

/// The advice of passive failure detection on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No objection.
    Neutral,
    /// It failed recently: try others first.
    Avoid,
    /// It has asked for a pause: it gets nothing, even if no other member is left.
    Exclude,
}

impl core::fmt::Debug for SelectionInput<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { now, random: draw, begins_call, limit, .. } = self;
        f.debug_struct("Pick")
            .field("now", now)
            .field("draw", draw)
            .field("begins_call", begins_call)
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}

/// The criterion by which members are compared for one request.
pub(crate) enum Criterion {
    /// By consistent hash of this value.
    Rendezvous(u64),
    /// The same, but of the first two the less loaded one.
    Candidates(u64),
    /// In order from the position that is this value modulo the number of positions; by its hash for members without
    /// a position.
    Modulo(u64),
    /// In order from the member with the `start`-th range; by the hash for members without a range.
    Range { start: u64, hash: u64 },
    /// By the earliest due turn, at this virtual time.
    VirtualTime(u64),
    /// By load, with ties broken by the consistent hash of this value.
    Load(u64),
    /// In configuration order.
    ConfigOrder,
}
