//! A table that grows by chunks: what is in it stays where it is, so that growing copies nothing, holds nobody up, and what is
//! held never doubles.

/// Values of one chunk. A power of two, and so few that a small table is small.
const CHUNK: usize = 128;
/// No place.
const NONE: u32 = u32::MAX;

/// Values at places that it gives out. The place that became free last is given out first, for it is in the cache still.
#[derive(Debug)]
pub struct Slots<T> {
    chunks: Vec<Box<[Slot<T>; CHUNK]>>,
    /// The first free place; each names the next.
    free: u32,
    len: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Free { next: u32 },
    Taken(T),
}

impl<T> Slots<T> {
    /// An empty table, which has no memory yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0 }
    }

    /// How many values there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts `value` at a free place, and says which. Whoever inserts bounds their number, far below 2^32.
    pub fn insert(&mut self, value: T) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let Self { chunks, free, len } = self;
        let place = *free;
        if let Some(slot) = slot_mut(chunks, place) {
            if let Slot::Free { next } = *slot {
                *free = next;
            }
            *slot = Slot::Taken(value);
            *len = len.wrapping_add(1);
        }
        place
    }

    /// The value at `place`.
    #[inline]
    #[must_use]
    pub fn get(&self, place: u32) -> Option<&T> {
        let place = place as usize;
        match self.chunks.get(place / CHUNK)?.get(place % CHUNK)? {
            Slot::Taken(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        match slot_mut(&mut self.chunks, place)? {
            Slot::Taken(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Takes the value at `place`, which is free then.
    pub fn remove(&mut self, place: u32) -> Option<T> {
        let Self { chunks, free, len } = self;
        let slot = slot_mut(chunks, place).filter(|slot| matches!(slot, Slot::Taken(_)))?;
        let taken = core::mem::replace(slot, Slot::Free { next: *free });
        *free = place;
        *len = len.wrapping_sub(1);
        match taken {
            Slot::Taken(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// All values with their places, in the order of these.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        (0..NONE).zip(slots).filter_map(|(place, slot)| match slot {
            Slot::Taken(value) => Some((place, value)),
            Slot::Free { .. } => None,
        })
    }

    /// Adds a chunk of free places.
    #[cold]
    fn grow(&mut self) {
        let first = self.chunks.len().wrapping_mul(CHUNK);
        let place = |step: usize| u32::try_from(first.wrapping_add(step)).unwrap_or(NONE);
        let next = |step: usize| if step < CHUNK { place(step) } else { NONE };
        let chunk: Box<[Slot<T>]> = (1..=CHUNK).map(|step| Slot::Free { next: next(step) }).collect();
        if let Ok(chunk) = chunk.try_into() {
            self.chunks.push(chunk);
            self.free = place(0);
        }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn slot_mut<T>(chunks: &mut [Box<[Slot<T>; CHUNK]>], place: u32) -> Option<&mut Slot<T>> {
    let place = place as usize;
    chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_is_given_out_again_once_it_is_free() {
        let mut slots = Slots::new();
        let places: Vec<u32> = (0..300_u32).map(|number| slots.insert(number)).collect();
        assert!(places.iter().copied().eq(0..300), "one after the other");
        assert_eq!((slots.remove(7), slots.remove(7), slots.remove(250)), (Some(7), None, Some(250)));
        assert_eq!((slots.get(7), slots.get(250), slots.get(5_000), slots.len()), (None, None, None, 298));
        assert_eq!(slots.get_mut(250), None);
        assert_eq!((slots.insert(1), slots.insert(2), slots.insert(3)), (250, 7, 300));
    }

    #[test]
    fn what_is_there_does_not_move() {
        let mut slots = Slots::new();
        let first = slots.insert([1_u8; 64]);
        let address = slots.get(first).map(|value| value.as_ptr());
        for _ in 0..10_000 {
            slots.insert([0; 64]);
        }
        assert_eq!(slots.get(first).map(|value| value.as_ptr()), address);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(steps in proptest::collection::vec((any::<bool>(), 0..400_u32), 0..1_000)) {
            let (mut slots, mut map) = (Slots::new(), std::collections::BTreeMap::new());
            for (number, (inserts, place)) in steps.into_iter().enumerate() {
                if inserts {
                    prop_assert!(map.insert(slots.insert(number), number).is_none());
                } else {
                    prop_assert_eq!(slots.remove(place), map.remove(&place));
                }
                prop_assert_eq!((slots.len(), slots.get(place)), (map.len(), map.get(&place)));
            }
            prop_assert!(slots.iter().map(|(place, value)| (place, *value)).eq(map));
        }
    }
}
