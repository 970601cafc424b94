//! Sources that have proven that they are where their packets say: they have given a password, answered what we sent, or shown a
//! Route that only they were given. A spoofed address proves nothing.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use strowger_foundation::Timestamp;

/// Bits of one generation; with 20,000 sources an unproven one passes for proven with a probability of 1 in 700.
const BITS: u64 = 1 << 20;
const WORDS: usize = (BITS / 64) as usize;

/// How long a source that proves nothing more is remembered at least; at most twice as long.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(2 * 3_600);

/// The sources that have proven themselves, shared by all workers: two Bloom filters, of which the older one is emptied now and
/// then. 256 KiB, whatever comes.
#[derive(Debug)]
pub struct ProvenSources {
    seed: u64,
    generations: [Box<[AtomicU64]>; 2],
    /// When the younger generation began, in nanoseconds; its index is the lowest bit of the number of changes.
    began: AtomicU64,
    changes: AtomicU64,
}

impl ProvenSources {
    /// None yet. The seed keeps peers from choosing addresses that pass for others.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let empty = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { seed, generations: [empty(), empty()], began: AtomicU64::new(0), changes: AtomicU64::new(0) }
    }

    /// Remembers a source. Cheap where it is known: then nothing is written.
    pub fn insert(&self, now: Timestamp, ip: IpAddr) {
        self.turn(now);
        let Some(generation) = self.generations.get(self.young()) else { return };
        for (word, bit) in self.places(ip) {
            if let Some(word) = generation.get(word)
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
        let has = |generation: &[AtomicU64]| {
            let is_set = |(word, bit): (usize, u64)| {
                generation.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
            };
            places.into_iter().all(is_set)
        };
        self.generations.iter().any(|generation| has(generation))
    }

    fn young(&self) -> usize {
        usize::from(!self.changes.load(Ordering::Relaxed).is_multiple_of(2))
    }

    /// Begins another generation where it is time.
    fn turn(&self, now: Timestamp) {
        let began = self.began.load(Ordering::Relaxed);
        let age = now.saturating_since(Timestamp::from_nanos(began));
        if age < REMEMBERED {
            return;
        }
        // One of several workers that come at once.
        if self.began.compare_exchange(began, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        if let Some(old) = self.generations.get(1 - self.young()) {
            old.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Where the bits of a source are: two of them.
    fn places(&self, ip: IpAddr) -> [(usize, u64); 2] {
        let hash = source_hash(self.seed, ip);
        [hash, hash.rotate_left(32)].map(|hash| {
            let bit = hash % BITS;
            (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
        })
    }
}

/// A hash of a source: an IPv4 address, or the first 64 bits of an IPv6 address, which one subscriber has for itself.
pub(crate) fn source_hash(seed: u64, ip: IpAddr) -> u64 {
    let value = match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(u32::from(ip)) | 1 << 40,
        IpAddr::V6(ip) => u64::try_from(u128::from(ip) >> 64).unwrap_or(0),
    };
    // The finaliser of splitmix64, before and after the seed.
    mix(mix(value ^ seed).wrapping_add(seed))
}

pub(crate) const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0A00_0000 + number).into()
    }

    #[test]
    fn who_has_proven_itself_is_known_and_few_others_pass_for_it() {
        let proven = ProvenSources::new(5);
        (0..20_000).for_each(|number| proven.insert(Timestamp::ZERO, source(number)));
        assert!((0..20_000).all(|number| proven.contains(source(number))));
        let others = (20_000..120_000).filter(|number| proven.contains(source(*number))).count();
        assert!(others < 400, "{others}");
    }

    #[test]
    fn who_proves_nothing_more_is_forgotten_in_time() {
        let proven = ProvenSources::new(5);
        proven.insert(Timestamp::ZERO, source(1));
        let later = |times: u32| Timestamp::ZERO + REMEMBERED * times;
        proven.insert(later(1), source(2));
        assert!(proven.contains(source(1)) && proven.contains(source(2)));
        proven.insert(later(2), source(3));
        assert!(!proven.contains(source(1)) && proven.contains(source(2)) && proven.contains(source(3)));
    }

    #[test]
    fn a_subscriber_with_a_prefix_is_one_source() {
        let hash = |ip: &str| source_hash(1, ip.parse().expect("an address"));
        assert_eq!(hash("2001:db8:1:2::1"), hash("2001:db8:1:2:3:4:5:6"));
        assert_ne!(hash("2001:db8:1:2::1"), hash("2001:db8:1:3::1"));
        assert_eq!(hash("192.0.2.1"), hash("::ffff:192.0.2.1"));
    }
}
