//! What the journal says, by address of record: for a start or a checkpoint, and then to be gone.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use strowger_registrar::{Record, record};

use crate::paged::{ByteArena, PagedVec};

/// Values of 20 and of 8 bytes a page.
type Entries = PagedVec<Entry, 6_552>;
type Slots = PagedVec<Slot, 16_384>;

/// Of so many slots at most three are taken.
const SLOTS_FOR_THREE: usize = 4;
/// The first slots, which double: a page of them.
const FEWEST_SLOTS: usize = 16_384;

/// Each address with the state that its records add up to, or with a refresh where its state is elsewhere. Its memory goes back
/// to the system when it is dropped: it may be as large as the table that outlives it.
#[derive(Debug, Default)]
pub(crate) struct LatestStates {
    texts: ByteArena,
    entries: Entries,
    /// Open addressing, linear; a power of two of them.
    slots: Slots,
    hasher: RandomState,
    scratch: Vec<u8>,
}

/// Where the address stands, with its state behind.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    block: u32,
    at: u32,
    aor: u32,
    state: u32,
    /// Bytes that the state may grow to.
    room: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: u32,
    /// One more than the number of the entry; 0 in an empty slot.
    entry: u32,
}

impl LatestStates {
    /// Adds what is newer than all before; `false` where it is no record.
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

    /// The number of an address, and its state.
    pub(crate) fn get(&self, aor: &[u8]) -> Option<(usize, &[u8])> {
        let number = self.find(self.hash(aor), aor)?;
        Some((number, self.entry(number).1))
    }

    /// Addresses and states, in the order in which the addresses came first, which is that of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len()).map(|number| self.entry(number))
    }

    /// Addresses and states by `place`, in one place by address.
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
        // Twice the room, so that one which grows by little each time does not leave much behind.
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

    /// Keyed, for the addresses are whatever phones have sent.
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

/// For each number whether it was marked, by any thread.
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
