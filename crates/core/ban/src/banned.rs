//! The set of banned sources, which one thread writes and all workers read.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use strowger_foundation::source_bits;

/// Maximum number of banned sources.
pub const MAX_BANNED: usize = 65_536;
/// Number of slots, a power of two: at most half of them are in use.
const SLOTS: usize = 2 * MAX_BANNED;
/// Number of removed entries after which the table is written anew.
const MAX_REMOVED: usize = SLOTS / 4;

/// Content of a slot that was never used. As entries are inverted, this stands for a multicast prefix, as does the
/// next.
const EMPTY: u64 = 0;
/// Content of a slot whose entry was removed.
const REMOVED: u64 = 1;

/// The banned sources. Look-ups take no lock; while nobody is banned, they read one number.
///
/// There may be several readers but only one writer at a time. A reader may miss a source during a change, never find
/// one that is not banned.
#[derive(Debug)]
pub struct BannedSources {
    seed: u64,
    count: AtomicUsize,
    removed: AtomicUsize,
    /// Inverted source bits, with linear probing. Allocated with the first ban: 1 MiB.
    slots: OnceLock<Box<[AtomicU64]>>,
}

impl BannedSources {
    /// Creates an empty set. The seed keeps peers from choosing addresses that collide.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, count: AtomicUsize::new(0), removed: AtomicUsize::new(0), slots: OnceLock::new() }
    }

    /// Whether no source is banned.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of banned sources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the source of `ip` is banned.
    #[inline]
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        !self.is_empty() && self.has(!source_bits(ip))
    }

    fn has(&self, entry: u64) -> bool {
        let Some(slots) = self.slots.get() else { return false };
        for slot in self.places(slots, entry) {
            match slot.load(Ordering::Relaxed) {
                EMPTY => return false,
                found if found == entry => return true,
                _ => {}
            }
        }
        false
    }

    /// Adds a source; `false` if it was there or there is no room.
    pub(crate) fn insert(&self, bits: u64) -> bool {
        let entry = !bits;
        if self.len() >= MAX_BANNED || matches!(entry, EMPTY | REMOVED) || self.has(entry) {
            return false;
        }
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(EMPTY)).collect());
        for slot in self.places(slots, entry) {
            let found = slot.load(Ordering::Relaxed);
            if matches!(found, EMPTY | REMOVED) {
                if found == REMOVED {
                    self.removed.fetch_sub(1, Ordering::Relaxed);
                }
                slot.store(entry, Ordering::Relaxed);
                self.count.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Removes a source; `false` if it was not there.
    pub(crate) fn remove(&self, bits: u64) -> bool {
        let (entry, Some(slots)) = (!bits, self.slots.get()) else { return false };
        for slot in self.places(slots, entry) {
            match slot.load(Ordering::Relaxed) {
                EMPTY => return false,
                found if found == entry => {
                    slot.store(REMOVED, Ordering::Relaxed);
                    self.count.fetch_sub(1, Ordering::Relaxed);
                    if self.removed.fetch_add(1, Ordering::Relaxed) >= MAX_REMOVED {
                        self.write_anew(slots);
                    }
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Writes all entries anew, without those that were removed: otherwise every look-up would pass them.
    fn write_anew(&self, slots: &[AtomicU64]) {
        let entries: Vec<u64> = slots.iter().map(|slot| slot.swap(EMPTY, Ordering::Relaxed)).collect();
        self.removed.store(0, Ordering::Relaxed);
        for entry in entries.into_iter().filter(|entry| !matches!(*entry, EMPTY | REMOVED)) {
            if let Some(slot) = self.places(slots, entry).find(|slot| slot.load(Ordering::Relaxed) == EMPTY) {
                slot.store(entry, Ordering::Relaxed);
            }
        }
    }

    /// Returns the slots in which an entry may be, in order.
    fn places<'s>(&self, slots: &'s [AtomicU64], entry: u64) -> impl Iterator<Item = &'s AtomicU64> {
        let first = usize::try_from(mix(entry ^ self.seed) % SLOTS as u64).unwrap_or(0);
        let (before, from) = slots.split_at_checked(first).unwrap_or((&[], slots));
        from.iter().chain(before)
    }
}

/// The finalizer of splitmix64.
const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nothing_is_allocated_or_found_while_nobody_is_banned() {
        let banned = BannedSources::new(1);
        assert!(banned.is_empty() && !banned.contains([192, 0, 2, 1].into()));
        assert!(!banned.remove(5) && banned.slots.get().is_none());
    }

    #[test]
    fn the_set_is_bounded_and_survives_many_changes() {
        let banned = BannedSources::new(7);
        assert!((0..MAX_BANNED as u64).all(|bits| banned.insert(bits)));
        assert!(!banned.insert(u64::MAX >> 1), "full");
        assert!(!banned.insert(3), "there already");
        // More removals than the table has slots.
        for round in 1..5u64 {
            let first = (round - 1) * MAX_BANNED as u64;
            for bits in first..first + MAX_BANNED as u64 {
                assert!(banned.remove(bits) && banned.insert(bits + MAX_BANNED as u64), "{bits}");
            }
        }
        let last = 4 * MAX_BANNED as u64;
        assert!((last..last + MAX_BANNED as u64).all(|bits| banned.has(!bits)));
        assert!((0..last).all(|bits| !banned.has(!bits)));
        assert_eq!(banned.len(), MAX_BANNED);
    }

    #[test]
    fn it_holds_what_a_set_holds() {
        let (banned, mut expected) = (BannedSources::new(3), BTreeSet::new());
        let mut number = 1u64;
        for _ in 0..20_000 {
            number = mix(number.wrapping_add(0x9E37_79B9_7F4A_7C15));
            let bits = number % 64;
            if number & 1 << 40 == 0 {
                assert_eq!(banned.insert(bits), expected.insert(bits));
            } else {
                assert_eq!(banned.remove(bits), expected.remove(&bits));
            }
            assert!((0..64).all(|bits| banned.has(!bits) == expected.contains(&bits)));
        }
    }

    #[test]
    fn what_no_source_has_is_never_banned() {
        let banned = BannedSources::new(3);
        assert!(!banned.insert(u64::MAX) && !banned.insert(u64::MAX - 1));
        assert!(banned.insert(u64::MAX - 2) && !banned.has(EMPTY));
    }
}
