//! Expiry of bindings: a timer wheel whose rings link the bindings themselves, so that it needs no further memory.
//!
//! A refresh does not move a binding. When its old expiry is reached, the binding moves to the ring of its current
//! expiry. So a refresh costs the wheel nothing.

use strowger_foundation::Timestamp;

use crate::binding::{Binding, Links};
use crate::chunked_vec::ChunkedVec;

/// Resolution of the wheel, in ns.
const TICK_NANOS: u64 = 1_000_000;
const BITS: u32 = 6;
const SLOTS: u32 = 1 << BITS;
const LEVELS: u32 = 7;
/// Number of rings on all levels.
const RINGS: u32 = SLOTS * LEVELS;
/// Longest distinguishable span, in ticks: 139 years.
const MAX_SPAN: u64 = (1 << (BITS * LEVELS)) - 1;

/// The expiries of one stripe's bindings. The caller passes in the bindings; each is registered from
/// [`insert`](Self::insert) to [`remove`](Self::remove).
#[derive(Debug)]
pub(crate) struct Expiries {
    /// The sentinel link of each ring, which avoids special cases at its ends.
    rings: Box<[Links]>,
    /// One number per level, with one bit per slot, set while its ring has a binding.
    occupied: [u64; LEVELS as usize],
    elapsed: u64,
    is_changed: bool,
}

impl Expiries {
    pub(crate) fn new() -> Self {
        let rings = (0..RINGS).map(|ring| Links { prev: ring, next: ring }).collect();
        Self { rings, occupied: [0; LEVELS as usize], elapsed: 0, is_changed: false }
    }

    /// Adds the binding at `index`.
    pub(crate) fn insert(&mut self, bindings: &mut ChunkedVec<Binding>, index: u32) {
        let Some(binding) = bindings.get_mut(index) else { return };
        let ring = self.ring_at(binding.expires);
        let first = self.rings.get(ring as usize).map_or(ring, |links| links.next);
        binding.links = Links { prev: ring, next: first };
        self.set_next(bindings, ring, RINGS + index);
        self.set_prev(bindings, first, RINGS + index);
        if let Some(slots) = self.occupied.get_mut((ring / SLOTS) as usize) {
            *slots |= 1 << (ring % SLOTS);
        }
        self.is_changed = true;
    }

    /// Removes the binding at `index`.
    pub(crate) fn remove(&mut self, bindings: &mut ChunkedVec<Binding>, index: u32) {
        let Some(Links { prev, next }) = bindings.get(index).map(|binding| binding.links) else { return };
        self.set_next(bindings, prev, next);
        self.set_prev(bindings, next, prev);
        // If both neighbours are the same, they are the ring's sentinel, and the ring is empty.
        if prev == next
            && let Some(slots) = self.occupied.get_mut((next / SLOTS) as usize)
        {
            *slots &= !(1 << (next % SLOTS));
        }
        self.is_changed = true;
    }

    /// Updates the links of a binding that moved to `to`.
    pub(crate) fn relocate(&mut self, bindings: &mut ChunkedVec<Binding>, to: u32) {
        let Some(Links { prev, next }) = bindings.get(to).map(|binding| binding.links) else { return };
        self.set_next(bindings, prev, RINGS + to);
        self.set_prev(bindings, next, RINGS + to);
    }

    /// Removes one binding that has expired at `now` and returns its index. Returns `None` if there is none, or if
    /// `moves` is used up; each binding visited that has not expired takes one.
    pub(crate) fn poll(
        &mut self,
        bindings: &mut ChunkedVec<Binding>,
        now: Timestamp,
        moves: &mut usize,
    ) -> Option<u32> {
        let target = now.as_nanos() / TICK_NANOS;
        while *moves > 0 {
            let Some((ring, tick)) = self.next_ring().filter(|(_, tick)| *tick <= target) else {
                self.elapsed = self.elapsed.max(target);
                return None;
            };
            self.elapsed = self.elapsed.max(tick);
            let index = self.rings.get(ring as usize)?.next.wrapping_sub(RINGS);
            let expires = bindings.get(index)?.expires;
            self.remove(bindings, index);
            if expires <= now {
                return Some(index);
            }
            self.insert(bindings, index);
            *moves -= 1;
        }
        None
    }

    /// Returns when [`poll`](Self::poll) next has work. Visits no binding.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let (_, tick) = self.next_ring()?;
        Some(Timestamp::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// Returns whether a binding was added or removed since the last call.
    pub(crate) const fn take_changed(&mut self) -> bool {
        core::mem::replace(&mut self.is_changed, false)
    }

    /// Counts the bindings by walking all rings; for tests.
    pub(crate) fn count(&self, bindings: &ChunkedVec<Binding>) -> usize {
        let next = |id: u32| match bindings.get(id.wrapping_sub(RINGS)) {
            Some(binding) => binding.links.next,
            None => self.rings.get(id as usize).map_or(id, |links| links.next),
        };
        let ring = |ring: u32| {
            core::iter::successors(Some(next(ring)), move |id| Some(next(*id))).take_while(move |id| *id != ring)
        };
        (0..RINGS).map(|number| ring(number).count()).sum()
    }

    /// Returns the ring for an expiry at `at`: on the level of the highest digit in which its tick differs from the
    /// current one.
    fn ring_at(&self, at: Timestamp) -> u32 {
        let tick = at.as_nanos().div_ceil(TICK_NANOS).clamp(self.elapsed, self.elapsed.saturating_add(MAX_SPAN));
        let differing = 63 - ((tick ^ self.elapsed) | 1).leading_zeros();
        let level = (differing / BITS).min(LEVELS - 1);
        level * SLOTS + digit(tick, level)
    }

    /// Returns the first ring with a binding and the tick at which to visit it; at once, if the ring was partly
    /// processed.
    fn next_ring(&self) -> Option<(u32, u64)> {
        let first = |(level, slots): (u32, &u64)| {
            let ahead = slots & (u64::MAX << digit(self.elapsed, level));
            let slot = (ahead != 0).then(|| ahead.trailing_zeros())?;
            let shift = BITS * level;
            let above = self.elapsed >> shift >> BITS << BITS;
            let tick = ((above | u64::from(slot)) << shift).max(self.elapsed);
            Some((level * SLOTS + slot, tick))
        };
        (0..).zip(&self.occupied).filter_map(first).min_by_key(|(_, tick)| *tick)
    }

    fn set_next(&mut self, bindings: &mut ChunkedVec<Binding>, id: u32, next: u32) {
        match bindings.get_mut(id.wrapping_sub(RINGS)) {
            Some(binding) => binding.links.next = next,
            None => self.rings.get_mut(id as usize).into_iter().for_each(|links| links.next = next),
        }
    }

    fn set_prev(&mut self, bindings: &mut ChunkedVec<Binding>, id: u32, prev: u32) {
        match bindings.get_mut(id.wrapping_sub(RINGS)) {
            Some(binding) => binding.links.prev = prev,
            None => self.rings.get_mut(id as usize).into_iter().for_each(|links| links.prev = prev),
        }
    }
}

/// Returns the digit of `tick` that selects the slot of a level.
fn digit(tick: u64, level: u32) -> u32 {
    u32::try_from((tick >> (BITS * level)) % u64::from(SLOTS)).unwrap_or(0)
}
