//! Small typed indices. Each is valid only in the process that issued it.

use core::fmt;
use core::num::NonZeroU64;

/// A shard: the unit of ownership of transactions, sessions and a stripe of the location table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A local socket address that the server listens on; an index into the snapshot's listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u16);

/// Id of a stream connection, 8 bytes: the owning worker, the slot and the slot's generation. The id of a closed
/// connection never refers to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(NonZeroU64);

/// Number of bits of a generation below the number of the process.
const PROCESS_SHIFT: u32 = 24;

/// Processes that succeed one another are numbered modulo this.
const PROCESSES: u32 = 32;

impl ConnId {
    /// Largest number of workers that an id can distinguish.
    pub const MAX_WORKERS: u32 = 1 << 12;
    /// Largest number of connections per worker that an id can distinguish.
    pub const MAX_SLOTS: u32 = 1 << 22;
    /// Number of generations; they wrap around.
    pub const GENERATIONS: u32 = (1 << 29) - 1;

    /// Creates the id of the connection of `worker` at `slot` in `generation`. Values out of range are truncated.
    #[must_use]
    pub const fn new(worker: u16, slot: u32, generation: u32) -> Self {
        let worker = (worker as u64 % Self::MAX_WORKERS as u64) << 51;
        let slot = (slot as u64 % Self::MAX_SLOTS as u64) << 29;
        let generation = generation as u64 % Self::GENERATIONS as u64;
        // The highest bit is always set, so no id is zero.
        Self(NonZeroU64::MIN.saturating_add((1 << 63 | worker | slot | generation) - 1))
    }

    /// Returns the first generation of the connections of a process. Processes that succeed one another are numbered, modulo
    /// 32, so that each knows whose a connection is; `seed` distinguishes earlier ones with the same number.
    #[must_use]
    pub const fn first_generation(process: u8, seed: u64) -> u32 {
        let (process, seed) = (process as u32 % PROCESSES, (seed % (1 << (PROCESS_SHIFT - 1))) as u32);
        process << PROCESS_SHIFT | seed
    }

    /// Returns the number of the process that the connection belongs to.
    #[must_use]
    pub const fn process(self) -> u8 {
        ((self.generation() >> PROCESS_SHIFT) % PROCESSES) as u8
    }

    /// Reads an id written by [`to_bits`](Self::to_bits); `None` for any other number.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).filter(|bits| bits.get() >> 63 == 1).map(Self)
    }

    /// Returns the id as a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The worker that owns the connection.
    #[must_use]
    pub const fn worker(self) -> usize {
        ((self.0.get() >> 51) % Self::MAX_WORKERS as u64) as usize
    }

    /// The connection's slot in the worker.
    #[must_use]
    pub const fn slot(self) -> usize {
        ((self.0.get() >> 29) % Self::MAX_SLOTS as u64) as usize
    }

    /// The generation of the slot.
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
    fn conn_ids_round_trip() {
        for (worker, slot, generation) in [(0, 0, 0), (4095, (1 << 22) - 1, (1 << 29) - 2), (3, 70_000, 12)] {
            let id = ConnId::new(worker, slot, generation);
            assert_eq!((id.worker(), id.slot(), id.generation()), (usize::from(worker), slot as usize, generation));
            assert_eq!(ConnId::from_bits(id.to_bits()), Some(id));
        }
        assert_eq!(ConnId::from_bits(5), None);
        assert_eq!(size_of::<Option<ConnId>>(), 8);
    }
}
