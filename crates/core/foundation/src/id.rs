//! Small typed indices. Each is meaningful only inside the process that issued it.

use core::fmt;

/// One shard: the unit of ownership of transactions, sessions and a stripe of the location table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// One local socket address that the server listens on; an index into the snapshot's listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}
