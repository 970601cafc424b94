//! The bindings of an address: a hash table that grows and shrinks a little with each change.
//!
//! It consists of many small tables (linear hashing). When their average load is high, one of them is split in two;
//! when it is low, the last one is merged into the one that it was split from. So one change moves at most one small
//! table, whatever the size, and memory is proportional to the entries.

use hashbrown::HashTable;
use smallvec::SmallVec;

/// Average entries per part above which a part is added: as many as fit into 128 buckets.
const FULL: usize = 112;

/// Average entries per part below which a part is removed.
const SPARSE: usize = FULL / 4;

/// An entry: its hash and the index of its binding, so that a lookup need not touch the binding.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    index: u32,
}

/// Indices by hash; several may have the same hash.
#[derive(Debug)]
pub(crate) struct Index {
    /// The first part, which always exists. A hash belongs to the part whose number is its low bits, or, if that part
    /// does not exist yet, to the one that it will be split from.
    first: HashTable<Slot>,
    others: Vec<HashTable<Slot>>,
    len: usize,
}

impl Index {
    pub(crate) const fn new() -> Self {
        Self { first: HashTable::new(), others: Vec::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns all indices, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.parts().flatten().map(|slot| slot.index)
    }

    /// Returns the indices with this hash.
    #[inline]
    pub(crate) fn of(&self, hash: u32) -> impl Iterator<Item = u32> {
        let part = self.others.get(self.number_of(hash).wrapping_sub(1)).unwrap_or(&self.first);
        part.iter_hash(spread(hash)).filter(move |slot| slot.hash == hash).map(|slot| slot.index)
    }

    pub(crate) fn insert(&mut self, hash: u32, index: u32) {
        self.put(Slot { hash, index });
        self.len += 1;
        if self.len > self.count() * FULL {
            self.split();
        }
    }

    /// Removes an existing entry.
    pub(crate) fn remove(&mut self, hash: u32, index: u32) {
        let part = self.part_mut(self.number_of(hash));
        let Ok(entry) = part.find_entry(spread(hash), |slot| slot.index == index) else { return };
        entry.remove();
        if part.len() < part.capacity() / 4 {
            part.shrink_to(part.len() * 2, |slot| spread(slot.hash));
        }
        self.len -= 1;
        if self.len < self.others.len() * SPARSE {
            self.join();
        }
    }

    /// Updates an entry that moved from `from` to `to`.
    pub(crate) fn relocate(&mut self, hash: u32, from: u32, to: u32) {
        let part = self.part_mut(self.number_of(hash));
        if let Some(slot) = part.find_mut(spread(hash), |slot| slot.index == from) {
            slot.index = to;
        }
    }

    fn put(&mut self, slot: Slot) {
        let part = self.part_mut(self.number_of(slot.hash));
        part.insert_unique(spread(slot.hash), slot, |slot| spread(slot.hash));
    }

    /// Adds a part by splitting the next one in order.
    fn split(&mut self) {
        let from = origin(self.count());
        self.others.push(HashTable::with_capacity(FULL));
        for slot in core::mem::replace(self.part_mut(from), HashTable::with_capacity(FULL)) {
            self.put(slot);
        }
    }

    /// Undoes the last split.
    fn join(&mut self) {
        for slot in self.others.pop().into_iter().flatten() {
            self.put(slot);
        }
        if self.others.len() < self.others.capacity() / 4 {
            self.others.shrink_to(self.others.len() * 2);
        }
    }

    const fn count(&self) -> usize {
        self.others.len() + 1
    }

    fn parts(&self) -> impl Iterator<Item = &HashTable<Slot>> {
        core::iter::once(&self.first).chain(&self.others)
    }

    fn part_mut(&mut self, number: usize) -> &mut HashTable<Slot> {
        self.others.get_mut(number.wrapping_sub(1)).unwrap_or(&mut self.first)
    }

    /// Returns the part that a hash belongs to.
    #[inline]
    fn number_of(&self, hash: u32) -> usize {
        let count = self.count();
        // Bits that the part itself does not use: it uses the lowest and the highest.
        let number = (spread(hash) >> 32) as usize & (count.next_power_of_two() - 1);
        if number < count { number } else { origin(number) }
    }
}

/// Returns the part that `number` is split from: the same number without its highest bit.
const fn origin(number: usize) -> usize {
    match number.checked_ilog2() {
        Some(highest) => number ^ (1 << highest),
        None => 0,
    }
}

/// Spreads 32 bits over 64, because a table uses both ends of a hash.
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the part of a hash that distinguishes addresses of one stripe.
pub(crate) fn low_half(hash: u64) -> u32 {
    u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0)
}

pub(crate) type Indices = SmallVec<[u32; 8]>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a hash of a number.
    fn hash(number: u32) -> u32 {
        (u64::from(number).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32) as u32
    }

    /// Returns entries and buckets of each part.
    fn shape(index: &Index) -> Vec<(usize, usize)> {
        index.parts().map(|part| (part.len(), part.capacity())).collect()
    }

    /// Returns the maximum number of entries that one change can have moved: all entries of each rebuilt part, before
    /// and after.
    fn moves(before: &[(usize, usize)], after: &[(usize, usize)]) -> usize {
        let part = |shape: &[(usize, usize)], at: usize| shape.get(at).copied().unwrap_or_default();
        let parts = (0..before.len().max(after.len())).map(|at| (part(before, at), part(after, at)));
        let anew = parts.filter(|((len, room), (new_len, new_room))| room != new_room || len.abs_diff(*new_len) > 1);
        anew.map(|((len, _), (new_len, _))| len.max(new_len)).sum()
    }

    #[test]
    fn a_change_moves_few_entries_and_memory_shrinks() {
        const MANY: u32 = 60_000;
        /// Three parts with twice the usual entries, and a margin for chance.
        const MOST: usize = 3 * 2 * FULL + FULL;
        let mut index = Index::new();
        let (mut worst, mut all) = (0, 0);
        let mut change = |index: &mut Index, change: &dyn Fn(&mut Index)| {
            let before = shape(index);
            change(index);
            let moved = moves(&before, &shape(index));
            worst = worst.max(moved);
            all += moved;
        };
        for number in 0..MANY {
            change(&mut index, &|index| index.insert(hash(number), number));
        }
        let places: usize = index.parts().map(HashTable::capacity).sum();
        assert!(places < 2 * index.len(), "{places} places for {}", index.len());
        assert!((0..MANY).all(|number| index.of(hash(number)).any(|found| found == number)));
        for number in 0..MANY {
            change(&mut index, &|index| index.remove(hash(number), number));
            if number % 1000 == 0 {
                let places: usize = index.parts().map(HashTable::capacity).sum();
                assert!(places <= 6 * (index.len() + FULL), "{places} places for {}", index.len());
            }
        }
        assert!(worst <= MOST, "{worst} moved at once");
        assert!(all < 10 * MANY as usize, "{all} moved in all");
        assert_eq!((index.len(), index.count(), index.iter().count()), (0, 1, 0));
    }

    #[test]
    fn a_hash_finds_exactly_its_entries() {
        let mut index = Index::new();
        for number in 0..5_000 {
            index.insert(hash(number / 2), number);
        }
        index.relocate(hash(7), 14, 9_999);
        index.remove(hash(7), 15);
        let mut found: Vec<u32> = index.of(hash(7)).collect();
        found.sort_unstable();
        assert_eq!(found, [9_999]);
        assert_eq!(index.of(hash(8)).count(), 2);
        assert_eq!(index.of(hash(1_000_000)).count(), 0);
    }
}
