//! Small typed indices. Each is meaningful only inside the process that issued it.

use core::fmt;
use core::num::NonZeroU64;

/// One shard: the unit of ownership of transactions, sessions and a stripe of the location table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// One local socket address that the server listens on; an index into the snapshot's listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u16);

/// One connection of a stream transport: who owns it, where it is kept, and how often that place was used before, so that
/// the name of a connection that is closed never means another one. Eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(NonZeroU64);

impl ConnId {
    /// Workers that a name can tell apart.
    pub const MAX_WORKERS: u32 = 1 << 12;
    /// Connections of one worker that a name can tell apart.
    pub const MAX_SLOTS: u32 = 1 << 22;
    /// Generations; the next one after the last is the first again.
    pub const GENERATIONS: u32 = (1 << 29) - 1;

    /// The name of the connection that `worker` keeps at `slot`, the `generation`-th there. Values past their bounds are
    /// cut.
    #[must_use]
    pub const fn new(worker: u16, slot: u32, generation: u32) -> Self {
        let worker = (worker as u64 % Self::MAX_WORKERS as u64) << 51;
        let slot = (slot as u64 % Self::MAX_SLOTS as u64) << 29;
        let generation = generation as u64 % Self::GENERATIONS as u64;
        // The highest bit is always set, so that no name is zero.
        Self(NonZeroU64::MIN.saturating_add((1 << 63 | worker | slot | generation) - 1))
    }

    /// The name that [`to_bits`](Self::to_bits) wrote; `None` for a number that is none.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).filter(|bits| bits.get() >> 63 == 1).map(Self)
    }

    /// The name as a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The worker that owns the connection.
    #[must_use]
    pub const fn worker(self) -> usize {
        ((self.0.get() >> 51) % Self::MAX_WORKERS as u64) as usize
    }

    /// Where the worker keeps it.
    #[must_use]
    pub const fn slot(self) -> usize {
        ((self.0.get() >> 29) % Self::MAX_SLOTS as u64) as usize
    }

    /// Which use of the place it is.
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0.get() % (1 << 29)) as u32
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}.{}.{}", self.worker(), self.slot(), self.generation())
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_keeps_its_parts() {
        for (worker, slot, generation) in [(0, 0, 0), (4095, (1 << 22) - 1, (1 << 29) - 2), (3, 70_000, 12)] {
            let id = ConnId::new(worker, slot, generation);
            assert_eq!((id.worker(), id.slot(), id.generation()), (usize::from(worker), slot as usize, generation));
            assert_eq!(ConnId::from_bits(id.to_bits()), Some(id));
        }
        assert_eq!(ConnId::from_bits(5), None);
        assert_eq!(size_of::<Option<ConnId>>(), 8);
    }
}
