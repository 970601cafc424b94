//! A table that grows and shrinks in chunks. Values never move, so growing copies nothing, causes no pause and never
//! doubles the memory. Empty chunks are freed, so memory follows load.

/// Number of values per chunk: a power of two, small so that a small table is small.
const CHUNK: usize = 128;
/// Marks the absence of a chunk.
const NONE: u32 = u32::MAX;
/// Marks the end of a chunk's free list.
const LAST: u8 = u8::MAX;

const _: () = assert!(CHUNK <= LAST as usize, "a place in a chunk has 8 bits");

/// Values at indices that the table assigns. Of the chunks with free slots one is filled at a time, so that the
/// others can drain. Within a chunk the most recently freed slot is used first, because it is still in the cache. One
/// empty chunk is retained, so that a table at a chunk boundary does not allocate and free repeatedly.
#[derive(Debug)]
pub struct Slots<T> {
    chunks: Vec<Chunk<T>>,
    /// The first chunk that has both values and free slots: the one being filled.
    open: u32,
    /// An empty chunk.
    spare: u32,
    /// The first freed chunk, whose number can be reused.
    vacant: u32,
    len: usize,
}

/// A chunk; its values are in a separate allocation.
#[derive(Debug)]
struct Chunk<T> {
    slots: Option<Box<[Slot<T>; CHUNK]>>,
    /// The first free slot; each names the next.
    free: u8,
    taken: u8,
    /// Neighbours in the list of chunks; a full chunk is in none.
    before: u32,
    after: u32,
}

#[derive(Debug)]
enum Slot<T> {
    Free { next: u8 },
    Taken(T),
}

impl<T> Slots<T> {
    /// Creates an empty table without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), open: NONE, spare: NONE, vacant: NONE, len: 0 }
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores `value` in a free slot and returns its index. The caller must keep the number of values far below 2^32.
    pub fn insert(&mut self, value: T) -> u32 {
        let index = self.open;
        let Some(chunk) = self.chunks.get_mut(index as usize) else { return self.insert_into_another(value) };
        let step = chunk.free;
        let Some(slot) = chunk.slots.as_mut().and_then(|slots| slots.get_mut(usize::from(step))) else { return NONE };
        let next = if let Slot::Free { next } = *slot { next } else { LAST };
        *slot = Slot::Taken(value);
        chunk.free = next;
        chunk.taken = chunk.taken.wrapping_add(1);
        self.len = self.len.wrapping_add(1);
        let place = index.wrapping_mul(CHUNK as u32) | u32::from(step);
        if next == LAST { self.close_first(place) } else { place }
    }

    /// Frees the empty chunk that is retained. Worth calling when the table is hardly used.
    pub fn free_spare(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
        let spare = core::mem::replace(&mut self.spare, NONE);
        self.free(spare);
    }

    /// Returns the value at `place`.
    #[inline]
    #[must_use]
    pub fn get(&self, place: u32) -> Option<&T> {
        let place = place as usize;
        match self.chunks.get(place / CHUNK)?.slots.as_ref()?.get(place % CHUNK)? {
            Slot::Taken(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Returns the value at `place` for modification.
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        let place = place as usize;
        match self.chunks.get_mut(place / CHUNK)?.slots.as_mut()?.get_mut(place % CHUNK)? {
            Slot::Taken(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Removes the value at `place` and frees the slot.
    pub fn remove(&mut self, place: u32) -> Option<T> {
        let (index, step) = (place / CHUNK as u32, (place % CHUNK as u32) as u8);
        let chunk = self.chunks.get_mut(index as usize)?;
        let slot = chunk.slots.as_mut()?.get_mut(usize::from(step))?;
        if matches!(slot, Slot::Free { .. }) {
            return None;
        }
        let next = core::mem::replace(&mut chunk.free, step);
        chunk.taken = chunk.taken.wrapping_sub(1);
        self.len = self.len.wrapping_sub(1);
        if next == LAST || chunk.taken == 0 {
            return self.remove_at_edge(place, next);
        }
        take(slot, next)
    }

    /// Returns all values with their indices, in order of index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let chunks = (0..NONE).step_by(CHUNK).zip(&self.chunks);
        let slots = chunks.flat_map(|(first, chunk)| (first..).zip(chunk.slots.iter().flat_map(|slots| slots.iter())));
        slots.filter_map(|(place, slot)| match slot {
            Slot::Taken(value) => Some((place, value)),
            Slot::Free { .. } => None,
        })
    }

    /// [`insert`](Self::insert) when no chunk has both values and free slots: uses the retained chunk or a new one.
    #[cold]
    fn insert_into_another(&mut self, value: T) -> u32 {
        let spare = core::mem::replace(&mut self.spare, NONE);
        let index = if spare == NONE { self.grow() } else { spare };
        self.link(index);
        let is_there = self.chunks.get(self.open as usize).is_some();
        debug_assert!(is_there, "a chunk was added");
        if is_there { self.insert(value) } else { NONE }
    }

    /// Unlinks the first open chunk, which the value at `place` has filled.
    #[inline(never)]
    fn close_first(&mut self, place: u32) -> u32 {
        self.unlink(self.open);
        place
    }

    /// Removes the value at `place` from a chunk that was full or becomes empty.
    #[inline(never)]
    fn remove_at_edge(&mut self, place: u32, next: u8) -> Option<T> {
        let (index, step) = (place / CHUNK as u32, place as usize % CHUNK);
        let chunk = self.chunks.get_mut(index as usize)?;
        let taken = take(chunk.slots.as_mut()?.get_mut(step)?, next);
        if next == LAST {
            self.link(index);
        } else {
            self.retire(index);
        }
        taken
    }

    /// Adds a chunk of free slots.
    fn grow(&mut self) -> u32 {
        let next = |step: usize| u8::try_from(step).ok().filter(|_| step < CHUNK).unwrap_or(LAST);
        let slots: Box<[Slot<T>]> = (1..=CHUNK).map(|step| Slot::Free { next: next(step) }).collect();
        let chunk = Chunk { slots: slots.try_into().ok(), free: 0, taken: 0, before: NONE, after: NONE };
        let index = self.vacant;
        if let Some(place) = self.chunks.get_mut(index as usize) {
            self.vacant = place.after;
            *place = chunk;
            return index;
        }
        let index = u32::try_from(self.chunks.len()).unwrap_or(NONE);
        self.chunks.push(chunk);
        index
    }

    /// Handles a chunk that has become empty. Of two empty chunks, frees the one that has been empty longer.
    fn retire(&mut self, index: u32) {
        self.unlink(index);
        let longer = core::mem::replace(&mut self.spare, index);
        self.free(longer);
    }

    /// Frees the memory of an empty chunk that is in no list.
    fn free(&mut self, index: u32) {
        if let Some(chunk) = self.chunks.get_mut(index as usize) {
            debug_assert_eq!(chunk.taken, 0, "what is freed is empty");
            chunk.slots = None;
            chunk.after = self.vacant;
            self.vacant = index;
        }
    }

    /// Adds a chunk to the open ones, after the one being filled.
    fn link(&mut self, index: u32) {
        let first = self.open;
        let after = match self.chunks.get_mut(first as usize) {
            Some(open) => core::mem::replace(&mut open.after, index),
            None => core::mem::replace(&mut self.open, index),
        };
        if let Some(next) = self.chunks.get_mut(after as usize) {
            next.before = index;
        }
        if let Some(chunk) = self.chunks.get_mut(index as usize) {
            (chunk.before, chunk.after) = (first, after);
        }
    }

    /// Removes a chunk from the open ones.
    fn unlink(&mut self, index: u32) {
        let Some(chunk) = self.chunks.get(index as usize) else { return };
        let (before, after) = (chunk.before, chunk.after);
        match self.chunks.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None => self.open = after,
        }
        if let Some(next) = self.chunks.get_mut(after as usize) {
            next.before = before;
        }
    }

    /// Number of slots allocated.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.chunks.iter().filter(|chunk| chunk.slots.is_some()).count() * CHUNK
    }
}

/// Takes the value of a slot and links the slot to the next free one.
#[inline]
fn take<T>(slot: &mut Slot<T>, next: u8) -> Option<T> {
    match core::mem::replace(slot, Slot::Free { next }) {
        Slot::Taken(value) => Some(value),
        Slot::Free { .. } => None,
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_freed_slot_is_reused() {
        let mut slots = Slots::new();
        let places: Vec<u32> = (0..300_u32).map(|number| slots.insert(number)).collect();
        assert!(places.iter().copied().eq(0..300), "one after the other");
        assert_eq!((slots.remove(7), slots.remove(7), slots.remove(250)), (Some(7), None, Some(250)));
        assert_eq!((slots.get(7), slots.get(250), slots.get(5_000), slots.len()), (None, None, None, 298));
        assert_eq!(slots.get_mut(250), None);
        assert_eq!((slots.remove(299), slots.insert(0)), (Some(299), 299));
        (300..3 * CHUNK as u32).for_each(|number| assert_eq!(slots.insert(number), number));
        assert_eq!([slots.insert(1), slots.insert(2)], [250, 7], "once the chunk is full that is being filled");
        assert_eq!(slots.insert(3), 3 * CHUNK as u32);
    }

    #[test]
    fn values_do_not_move() {
        let mut slots = Slots::new();
        let first = slots.insert([1_u8; 64]);
        let address = slots.get(first).map(|value| value.as_ptr());
        for _ in 0..10_000 {
            slots.insert([0; 64]);
        }
        assert_eq!(slots.get(first).map(|value| value.as_ptr()), address);
    }

    /// Values with equal lifetimes in number of insertions, like transactions with equal timers.
    struct Queue {
        slots: Slots<u64>,
        there: std::collections::VecDeque<u32>,
    }

    impl Queue {
        /// Inserts one value and removes old ones until at most `most` remain.
        fn pass(&mut self, most: usize) {
            self.there.push_back(self.slots.insert(0));
            while self.there.len() > most {
                let place = self.there.pop_front().expect("there are more");
                assert!(self.slots.remove(place).is_some());
            }
        }
    }

    #[test]
    fn peak_memory_is_freed_while_values_still_come() {
        let mut queue = Queue { slots: Slots::new(), there: std::collections::VecDeque::new() };
        for _ in 0..100_000 {
            queue.pass(50_000);
        }
        let most = queue.slots.capacity();
        assert!((50_000..50_000 + 2 * CHUNK).contains(&most), "{most}");
        // Ten leave for each that enters, until a few are left.
        for most in (1_000..50_000).rev().step_by(10) {
            queue.pass(most);
        }
        for _ in 0..2_000 {
            queue.pass(1_000);
        }
        let left = queue.slots.capacity();
        assert!(left <= 1_000 + 4 * CHUNK, "{left} places for 1,000");
        for place in core::mem::take(&mut queue.there) {
            queue.slots.remove(place);
        }
        assert_eq!((queue.slots.capacity(), queue.slots.len()), (CHUNK, 0), "one is kept");
        // New values reuse free slots.
        (0..10_000).for_each(|_| queue.pass(10_000));
        assert_eq!((queue.slots.iter().count(), queue.slots.len()), (10_000, 10_000));
    }

    /// Insertions and removals at a chunk boundary do not allocate each time.
    #[test]
    fn a_chunk_boundary_does_not_thrash_memory() {
        for there in [0, CHUNK, 5 * CHUNK] {
            let mut slots = Slots::new();
            let places: Vec<u32> = (0..there).map(|number| slots.insert(number)).collect();
            let mut changes = 0;
            let mut before = slots.capacity();
            for _ in 0..1_000 {
                for count in [1, 2] {
                    let more: Vec<u32> = (0..count).map(|number| slots.insert(number)).collect();
                    changes += usize::from(core::mem::replace(&mut before, slots.capacity()) != slots.capacity());
                    more.into_iter().for_each(|place| assert!(slots.remove(place).is_some()));
                    changes += usize::from(core::mem::replace(&mut before, slots.capacity()) != slots.capacity());
                }
            }
            assert!(changes <= 1, "{changes} changes beside {there}");
            assert!(places.iter().all(|place| slots.get(*place).is_some()));
        }
    }

    #[test]
    fn a_table_without_values_has_no_memory_once_its_spare_chunk_is_freed() {
        let mut slots = Slots::new();
        let places: Vec<u32> = (0..300).map(|number| slots.insert(number)).collect();
        let (first, others) = places.split_at(CHUNK);
        first.iter().for_each(|place| assert!(slots.remove(*place).is_some()));
        assert_eq!(slots.capacity(), 3 * CHUNK);
        slots.free_spare();
        assert_eq!(slots.capacity(), 2 * CHUNK);
        others.iter().for_each(|place| assert!(slots.remove(*place).is_some()));
        slots.free_spare();
        assert_eq!((slots.capacity(), slots.chunks.capacity()), (0, 0));
        let place = slots.insert(7);
        assert_eq!(slots.get(place), Some(&7));
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in proptest::collection::vec((0..200_u8, 0..400_u32), 0..2_000)) {
            let (mut slots, mut map) = (Slots::new(), std::collections::BTreeMap::new());
            for (number, (what, place)) in steps.into_iter().enumerate() {
                match what {
                    0..120 => prop_assert!(map.insert(slots.insert(number), number).is_none()),
                    120..198 => prop_assert_eq!(slots.remove(place), map.remove(&place)),
                    198 => slots.free_spare(),
                    // Removes all values of a chunk.
                    _ => for place in place / 128 * 128..place / 128 * 128 + 128 {
                        prop_assert_eq!(slots.remove(place), map.remove(&place));
                    },
                }
                prop_assert_eq!((slots.len(), slots.get(place)), (map.len(), map.get(&place)));
                prop_assert!(slots.capacity() <= map.len() * CHUNK + CHUNK);
            }
            prop_assert!(slots.iter().map(|(place, value)| (place, *value)).eq(map));
        }
    }
}
