//! Sources that have proven that they receive packets at their address: they have given a password, answered a
//! message, or sent a Route that only they were given. A spoofed address proves nothing.

use core::fmt::Debug;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::{Timestamp, source_bits};

/// Bits of one generation. With 20,000 sources, the false-positive probability is 1 in 700.
pub const PROVEN_BITS: u32 = 1 << 20;
/// Words of one generation. The two generations are adjacent.
pub const PROVEN_WORDS: usize = (PROVEN_BITS / 64) as usize;

/// Factors of the hash, which is the finalizer of splitmix64.
pub const MIX_FACTORS: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];
/// Right shifts of the hash.
pub const MIX_SHIFTS: [u32; 3] = [30, 27, 31];

/// Minimum time a source is remembered after its last proof; the maximum is twice as long.
pub(crate) const GENERATION: Duration = Duration::from_secs(2 * 3_600);

/// Memory of [`ProvenSources`] that others may read while it changes: twice [`PROVEN_WORDS`], initially zero.
pub trait SourceMemory: Debug + Send + Sync {
    /// Returns all words.
    fn words(&self) -> &[AtomicU64];
}

/// Where the bits are stored.
#[derive(Debug)]
enum Memory {
    Own(Box<[AtomicU64]>),
    Shared(Arc<dyn SourceMemory>),
}

impl Memory {
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Own(words) => words,
            Self::Shared(memory) => memory.words(),
        }
    }
}

/// The proven sources, shared by all workers: two Bloom filters, the older of which is cleared periodically. Always
/// 256 KiB.
#[derive(Debug)]
pub struct ProvenSources {
    seed: u64,
    memory: Memory,
    /// Start of the younger generation, in nanoseconds. Its index is the lowest bit of the number of rotations.
    began: AtomicU64,
    changes: AtomicU64,
}

impl ProvenSources {
    /// Creates an empty set. The seed keeps peers from choosing addresses that collide with others.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(seed, Memory::Own((0..2 * PROVEN_WORDS).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Creates an empty set in this memory. A reader of the memory with the same seed finds sources as
    /// [`contains`](Self::contains) does.
    #[must_use]
    pub fn in_memory(seed: u64, memory: Arc<dyn SourceMemory>) -> Self {
        Self::with(seed, Memory::Shared(memory))
    }

    const fn with(seed: u64, memory: Memory) -> Self {
        Self { seed, memory, began: AtomicU64::new(0), changes: AtomicU64::new(0) }
    }

    /// Adds a source. Cheap if it is known: nothing is written then.
    pub fn insert(&self, now: Timestamp, ip: IpAddr) {
        self.rotate(now);
        let (words, begin) = (self.memory.words(), self.young() * PROVEN_WORDS);
        for (word, bit) in self.places(ip) {
            if let Some(word) = words.get(begin + word)
                && word.load(Ordering::Relaxed) & bit == 0
            {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Whether a source has proven itself.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let places = self.places(ip);
        let words = self.memory.words();
        let has = |begin: usize| {
            let is_set = |(word, bit): (usize, u64)| {
                words.get(begin + word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
            };
            places.into_iter().all(is_set)
        };
        has(0) || has(PROVEN_WORDS)
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the start of the younger generation, and the number of those before it.
    pub(crate) fn generation(&self) -> (Timestamp, u64) {
        (Timestamp::from_nanos(self.began.load(Ordering::Relaxed)), self.changes.load(Ordering::Relaxed))
    }

    pub(crate) fn set_generation(&self, began: Timestamp, changes: u64) {
        self.began.store(began.as_nanos(), Ordering::Relaxed);
        self.changes.store(changes, Ordering::Relaxed);
    }

    fn young(&self) -> usize {
        usize::from(!self.changes.load(Ordering::Relaxed).is_multiple_of(2))
    }

    /// Starts another generation if one is due.
    fn rotate(&self, now: Timestamp) {
        let began = self.began.load(Ordering::Relaxed);
        let age = now.saturating_since(Timestamp::from_nanos(began));
        if age < GENERATION {
            return;
        }
        // Only one of several concurrent workers does this.
        if self.began.compare_exchange(began, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        if let Some(old) = self.memory.words().chunks_exact(PROVEN_WORDS).nth(1 - self.young()) {
            old.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the two bit positions of a source.
    fn places(&self, ip: IpAddr) -> [(usize, u64); 2] {
        let hash = source_hash(self.seed, ip);
        [hash, hash.rotate_left(32)].map(|hash| {
            let bit = hash % u64::from(PROVEN_BITS);
            (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
        })
    }
}

/// Hashes a [source](source_bits).
pub(crate) fn source_hash(seed: u64, ip: IpAddr) -> u64 {
    let value = source_bits(ip);
    // Mixed before and after adding the seed.
    mix(mix(value ^ seed).wrapping_add(seed))
}

pub(crate) const fn mix(mut value: u64) -> u64 {
    let [first, second] = MIX_FACTORS;
    let [before, between, behind] = MIX_SHIFTS;
    value = (value ^ (value >> before)).wrapping_mul(first);
    value = (value ^ (value >> between)).wrapping_mul(second);
    value ^ (value >> behind)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0A00_0000 + number).into()
    }

    #[test]
    fn proven_sources_are_known_with_few_false_positives() {
        let proven = ProvenSources::new(5);
        (0..20_000).for_each(|number| proven.insert(Timestamp::ZERO, source(number)));
        assert!((0..20_000).all(|number| proven.contains(source(number))));
        let others = (20_000..120_000).filter(|number| proven.contains(source(*number))).count();
        assert!(others < 400, "{others}");
    }

    #[test]
    fn unrenewed_sources_are_forgotten_in_time() {
        let proven = ProvenSources::new(5);
        proven.insert(Timestamp::ZERO, source(1));
        let later = |times: u32| Timestamp::ZERO + GENERATION * times;
        proven.insert(later(1), source(2));
        assert!(proven.contains(source(1)) && proven.contains(source(2)));
        proven.insert(later(2), source(3));
        assert!(!proven.contains(source(1)) && proven.contains(source(2)) && proven.contains(source(3)));
    }

    #[test]
    fn an_ipv6_prefix_is_one_source() {
        let hash = |ip: &str| source_hash(1, ip.parse().expect("an address"));
        assert_eq!(hash("2001:db8:1:2::1"), hash("2001:db8:1:2:3:4:5:6"));
        assert_ne!(hash("2001:db8:1:2::1"), hash("2001:db8:1:3::1"));
        assert_eq!(hash("192.0.2.1"), hash("::ffff:192.0.2.1"));
    }
}
