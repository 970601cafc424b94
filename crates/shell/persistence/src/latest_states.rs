//! Temporary table of the journal's contents by address of record, for a start or a checkpoint.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use strowger_registrar::{Record, record};

use crate::paged::{ByteArena, PagedVec};

/// Pages of values of 20 and of 8 bytes.
type Entries = PagedVec<Entry, 6_552>;
type Slots = PagedVec<Slot, 16_384>;

/// At most three of this many slots are used.
const SLOTS_FOR_THREE: usize = 4;
/// Initial number of slots, which doubles: one page.
const FEWEST_SLOTS: usize = 16_384;

/// The merged state of each address, or a refresh if the state itself is elsewhere.
///
/// Its memory returns to the system when it is dropped, since it may be as large as the permanent table.
#[derive(Debug, Default)]
pub(crate) struct LatestStates {
    texts: ByteArena,
    entries: Entries,
    /// Open addressing with linear probing; the number of slots is a power of two.
    slots: Slots,
    hasher: RandomState,
    scratch: Vec<u8>,
}

/// Position of the address, followed by its state.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    block: u32,
    at: u32,
    aor: u32,
    state: u32,
    /// Capacity of the state in bytes.
    room: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: u32,
    /// Number of the entry plus one; 0 in an empty slot.
    entry: u32,
}

impl LatestStates {
    /// Adds a record newer than all before; returns `false` if it is not a valid record.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        let Ok(record) = Record::parse(bytes) else { return false };
        let hash = self.hash(record.aor());
        match self.find(hash, record.aor()) {
            Some(number) => {
                let mut merged = std::mem::take(&mut self.scratch);
                record::merge(Some(self.entry(number).1), bytes, &mut merged);
                self.replace(number, &merged);
                self.scratch = merged;
            }
            None => self.insert(hash, record.aor(), bytes),
        }
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn contains(&self, aor: &[u8]) -> bool {
        self.find(self.hash(aor), aor).is_some()
    }

    /// Returns the number of an address and its state.
    pub(crate) fn get(&self, aor: &[u8]) -> Option<(usize, &[u8])> {
        let number = self.find(self.hash(aor), aor)?;
        Some((number, self.entry(number).1))
    }

    /// Returns addresses and states in order of their numbers, which is that of first occurrence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len()).map(|number| self.entry(number))
    }

    /// Returns addresses and states sorted by `place`, then by address.
    pub(crate) fn sorted_by(&self, place: impl Fn(&[u8]) -> u8) -> impl Iterator<Item = (&[u8], &[u8])> {
        let places = (0u32..).zip(self.iter()).map(|(number, (aor, _))| (place(aor), number));
        let mut order: Vec<(u8, u32)> = places.collect();
        let aor = |number: u32| self.entry(number as usize).0;
        order.sort_unstable_by(|(a, first), (b, second)| a.cmp(b).then_with(|| aor(*first).cmp(aor(*second))));
        order.into_iter().map(|(_, number)| self.entry(number as usize))
    }

    fn entry(&self, number: usize) -> (&[u8], &[u8]) {
        let Entry { block, at, aor, state, .. } = *self.entries.get(number);
        self.texts.get(block, at, aor + state).split_at(aor as usize)
    }

    fn replace(&mut self, number: usize, state: &[u8]) {
        let entry = *self.entries.get(number);
        let len = length(state);
        if len <= entry.room {
            self.texts.get_mut(entry.block, entry.at + entry.aor, len).copy_from_slice(state);
            self.entries.get_mut(number).state = len;
            return;
        }
        // Double the capacity, so that a state that grows in small steps wastes little.
        let room = len.max(entry.room.saturating_mul(2));
        let (block, at) = self.texts.reserve(entry.aor + room);
        let aor = self.texts.get(entry.block, entry.at, entry.aor).to_vec();
        self.texts.get_mut(block, at, entry.aor).copy_from_slice(&aor);
        self.texts.get_mut(block, at + entry.aor, len).copy_from_slice(state);
        *self.entries.get_mut(number) = Entry { block, at, aor: entry.aor, state: len, room };
    }

    fn insert(&mut self, hash: u32, aor: &[u8], state: &[u8]) {
        if self.slots.len() / SLOTS_FOR_THREE * 3 <= self.len() {
            self.grow();
        }
        let (aor_len, state_len) = (length(aor), length(state));
        let (block, at) = self.texts.reserve(aor_len + state_len);
        self.texts.get_mut(block, at, aor_len).copy_from_slice(aor);
        self.texts.get_mut(block, at + aor_len, state_len).copy_from_slice(state);
        self.entries.push(Entry { block, at, aor: aor_len, state: state_len, room: state_len });
        let entry = u32::try_from(self.len()).expect("a journal has less than four thousand million records");
        put(&mut self.slots, Slot { hash, entry });
    }

    fn grow(&mut self) {
        let mut slots = Slots::with_len((self.slots.len() * 2).max(FEWEST_SLOTS));
        for number in 0..self.slots.len() {
            let slot = *self.slots.get(number);
            if slot.entry > 0 {
                put(&mut slots, slot);
            }
        }
        self.slots = slots;
    }

    fn find(&self, hash: u32, aor: &[u8]) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut place = hash as usize & mask;
        loop {
            let slot = self.slots.get(place);
            let number = (slot.entry as usize).checked_sub(1)?;
            if slot.hash == hash && self.entry(number).0 == aor {
                return Some(number);
            }
            place = (place + 1) & mask;
        }
    }

    /// Keyed, because phones choose the addresses.
    fn hash(&self, aor: &[u8]) -> u32 {
        self.hasher.hash_one(aor) as u32
    }
}

fn put(slots: &mut Slots, slot: Slot) {
    let mask = slots.len() - 1;
    let mut place = slot.hash as usize & mask;
    while slots.get(place).entry > 0 {
        place = (place + 1) & mask;
    }
    *slots.get_mut(place) = slot;
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a record has a mebibyte at most")
}

/// A bit per number, set by any thread.
#[derive(Debug)]
pub(crate) struct AtomicBitSet(Vec<AtomicU64>);

impl AtomicBitSet {
    pub(crate) fn new(len: usize) -> Self {
        Self((0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn set(&self, number: usize) {
        self.0[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        self.0[number / 64].load(Ordering::Relaxed) >> (number % 64) & 1 == 1
    }
}
