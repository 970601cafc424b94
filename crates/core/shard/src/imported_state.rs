//! What becomes of the state of another process, and why it may be refused.

use core::fmt;

use strowger_foundation::ShardId;

/// The version that is written, and the last one that is read. A later version also reads the earlier ones.
pub(crate) const VERSION: u8 = 1;

/// Why the state of another process cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// It was written by a later version of the program.
    UnknownVersion(u8),
    /// It is that of another shard.
    OtherShard(ShardId),
    /// The other process has another key, or computes hashes of it in another way.
    OtherKey,
    /// It is incomplete or no state at all.
    Malformed,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion(version) => write!(
                f,
                "the calls of the other process are in form {version}, and this program reads forms up to {VERSION}"
            ),
            Self::OtherShard(shard) => write!(f, "the calls are those of shard {}", shard.0),
            Self::OtherKey => f.write_str("the calls of the other process are named by another key"),
            Self::Malformed => f.write_str("the calls of the other process cannot be read"),
        }
    }
}

impl core::error::Error for StateError {}

/// What has become of a state that was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedState {
    /// Calls that are tracked from here on, or have ended in the meantime.
    pub calls: usize,
    /// Calls that were known already.
    pub known: usize,
    /// Calls that are not tracked: the table is full, or calls are not tracked here.
    pub refused: usize,
    /// Registrations at carriers.
    pub registrations: usize,
}

impl ImportedState {
    /// Adds the counts of another shard.
    pub const fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.known = self.known.saturating_add(other.known);
        self.refused = self.refused.saturating_add(other.refused);
        self.registrations = self.registrations.saturating_add(other.registrations);
    }
}
