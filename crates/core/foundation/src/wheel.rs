//! A hierarchical timer wheel with constant-time insertion, cancellation and lookup of the next deadline.
//!
//! A timer never fires early and at most one [`TICK`] late. Timers of a tick fire in order of insertion, except those
//! that are armed while a [large slot](SPREAD_BATCH) is being spread.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::time::Timestamp;

/// Resolution of the wheel. Deadlines are rounded up to a whole tick; T1 and all timers of RFC 3261 are multiples of
/// it.
pub const TICK: Duration = Duration::from_millis(1);

const TICK_NANOS: u64 = 1_000_000;
const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 5;
/// Number of slots in all levels.
const LISTS: usize = SLOTS * LEVELS;
/// The last tick, 34 years after the clock's origin; later deadlines count as this one. A slot would stand for two times
/// if there were further ones.
const LAST_TICK: u64 = (1 << (BITS * LEVELS as u32)) - 1;
const NIL: u32 = u32::MAX;

/// Number of timers whose memory [`TimerWheel::trim`] does not free: they cost a few thousand bytes, and a server in use
/// would allocate them again and again.
const SMALL: usize = 64;

/// Largest number of timers that one call moves to lower levels. Thousands of timers armed for the same minute are
/// spread over several calls, so that no call takes long.
pub const SPREAD_BATCH: usize = 256;

/// Id of a pending timer. The id of a fired or cancelled timer is never valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId {
    /// Index into the links.
    index: u32,
    /// Never zero, so that `Option<TimerId>` has the same size.
    generation: NonZeroU32,
}

impl TimerId {
    /// Matches no timer of any wheel.
    pub const NEVER: Self = Self { index: NIL, generation: NonZeroU32::MIN };
}

/// The data of a timer; its position is in its [`Links`].
#[derive(Debug)]
struct Entry<K> {
    key: K,
    tick: u64,
    /// Number of uses of the entry; distinguishes successive timers.
    generation: NonZeroU32,
}

/// The neighbours in a ring. Each slot is a ring with a link of its own at both ends, so that the ends are no special
/// case.
#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

/// The occupied slots of a level.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    slots: [u64; SLOTS / 64],
    /// A bit for each non-zero word of `slots`.
    occupied: u8,
}

/// Pending timers, each with a key that is returned when it fires.
#[derive(Debug)]
pub struct TimerWheel<K> {
    /// The links of the slots, level by level, followed by one per entry. Empty until the first timer is armed,
    /// because they take some ten thousand bytes.
    links: Vec<Links>,
    entries: Vec<Entry<K>>,
    /// First unused link of an entry; the others follow by `next`.
    free: u32,
    armed: usize,
    /// Generation of new entries: later than that of any entry that was freed.
    first_generation: NonZeroU32,
    levels: [Level; LEVELS],
    /// A bit for each level that has a timer.
    occupied: u8,
    /// The slot whose timers have been moved in part; all others wait for it.
    spreading: Option<u32>,
    elapsed: u64,
}

impl<K: Copy> Default for TimerWheel<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy> TimerWheel<K> {
    /// Creates an empty wheel at the clock's origin.
    #[must_use]
    pub fn new() -> Self {
        Self {
            links: Vec::new(),
            entries: Vec::new(),
            free: NIL,
            armed: 0,
            first_generation: NonZeroU32::MIN,
            levels: [Level::default(); LEVELS],
            occupied: 0,
            spreading: None,
            elapsed: 0,
        }
    }

    /// Arms a timer that fires at `at`, or immediately if `at` is past.
    pub fn insert(&mut self, at: Timestamp, key: K) -> TimerId {
        let tick = at.as_nanos().saturating_add(TICK_NANOS - 1) / TICK_NANOS;
        let tick = tick.min(LAST_TICK).max(self.elapsed);
        self.armed = self.armed.wrapping_add(1);
        let id = match self.entries.get_mut(entry_of(self.free)) {
            Some(entry) => {
                (entry.key, entry.tick) = (key, tick);
                let id = TimerId { index: self.free, generation: entry.generation };
                self.free = self.links(id.index).next;
                id
            }
            None => {
                if self.links.is_empty() {
                    self.links.extend((0..LISTS as u32).map(|list| Links { prev: list, next: list }));
                }
                let index = u32::try_from(self.links.len()).unwrap_or(NIL);
                debug_assert!(index != NIL, "a shard's tables are bounded far below 2^32 timers");
                let generation = self.first_generation;
                push(&mut self.entries, Entry { key, tick, generation });
                push(&mut self.links, Links { prev: index, next: index });
                TimerId { index, generation }
            }
        };
        self.link(id.index, tick);
        id
    }

    /// Cancels a timer. Returns `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<K> {
        self.entries.get(entry_of(id.index)).filter(|entry| entry.generation == id.generation)?;
        self.take(id.index)
    }

    /// Returns the earliest moment at which [`poll_expired`](Self::poll_expired) has something to do. Never scans
    /// entries.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let (_, tick) = self.next_list()?;
        Some(Timestamp::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// Removes and returns one timer that is due at `now`; call until `None`. If
    /// [`next_deadline`](Self::next_deadline) is then still not later than `now`, a large slot was spread in part:
    /// call again after other pending work.
    pub fn poll_expired(&mut self, now: Timestamp) -> Option<K> {
        let target = now.as_nanos() / TICK_NANOS;
        let mut moves = SPREAD_BATCH;
        while moves > 0 {
            let Some((list, tick)) = self.next_list().filter(|(_, tick)| *tick <= target) else {
                self.elapsed = self.elapsed.max(target);
                return None;
            };
            self.elapsed = self.elapsed.max(tick);
            if (list as usize) < SLOTS {
                let first = self.links(list).next;
                return self.take(first);
            }
            moves = self.cascade(list, moves);
        }
        None
    }

    /// Frees the memory of the timers that were armed at once before, if none is armed. Returns whether there is memory
    /// that a later call may free.
    pub fn trim(&mut self) -> bool {
        if self.entries.len() <= SMALL {
            return false;
        }
        self.free_if_empty();
        self.entries.len() / 4 > self.armed
    }

    /// Frees all memory if no timer is armed. Worth calling when the wheel is hardly used.
    pub fn free_if_empty(&mut self) {
        if self.is_empty() {
            let latest = self.entries.iter().map(|entry| entry.generation).max().unwrap_or(NonZeroU32::MIN);
            self.first_generation = latest.max(self.first_generation);
            (self.links, self.entries, self.free) = (Vec::new(), Vec::new(), NIL);
        }
    }

    /// Number of armed timers.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.armed
    }

    /// Whether no timer is armed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Moves up to `moves` timers of a slot to lower levels as their time comes near. Returns how many more moves are
    /// allowed.
    fn cascade(&mut self, list: u32, moves: usize) -> usize {
        for left in (0..moves).rev() {
            let index = self.links(list).next;
            let tick = self.entries.get(entry_of(index)).map_or(0, |entry| entry.tick);
            self.unlink(index);
            self.link(index, tick);
            if self.links(list).next == list {
                self.spreading = None;
                return left;
            }
        }
        self.spreading = Some(list);
        0
    }

    /// Returns the earliest occupied slot. A lower level always comes before a higher one, because a timer's level is
    /// the highest digit in which it differs from the elapsed time.
    fn next_list(&self) -> Option<(u32, u64)> {
        if let Some(list) = self.spreading {
            return Some((list, self.elapsed));
        }
        let mut levels = self.occupied;
        while levels != 0 {
            let level = levels.trailing_zeros();
            levels &= levels - 1;
            let shift = BITS * level;
            let digit = (self.elapsed >> shift) & (SLOTS as u64 - 1);
            if let Some(slot) = self.levels.get(level as usize)?.first_from(digit) {
                let above = (self.elapsed >> shift >> BITS) << BITS;
                let tick = ((above | u64::from(slot)) << shift).max(self.elapsed);
                return Some((level << BITS | slot, tick));
            }
        }
        None
    }

    /// Appends an entry to the slot of its time.
    fn link(&mut self, index: u32, tick: u64) {
        let differing = 63 - ((tick ^ self.elapsed) | 1).leading_zeros();
        let level = (differing / BITS).min(LEVELS as u32 - 1);
        #[expect(clippy::cast_possible_truncation, reason = "masked to a slot")]
        let slot = (tick >> (BITS * level)) as u32 & (SLOTS as u32 - 1);
        let list = level << BITS | slot;
        let last = self.links(list).prev;
        *self.links_mut(index) = Links { prev: last, next: list };
        self.links_mut(last).next = index;
        self.links_mut(list).prev = index;
        if let Some(known) = self.levels.get_mut(level as usize) {
            known.set(slot);
            self.occupied |= 1 << level;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Links { prev, next } = self.links(index);
        self.links_mut(prev).next = next;
        self.links_mut(next).prev = prev;
        // If both neighbours are the same link, it is the slot's own and the slot is empty.
        if prev == next
            && let Some(level) = self.levels.get_mut((next >> BITS) as usize)
        {
            level.clear(next & (SLOTS as u32 - 1));
            if level.occupied == 0 {
                self.occupied &= !(1 << (next >> BITS));
            }
            self.spreading = self.spreading.filter(|spreading| *spreading != next);
        }
    }

    /// Removes an armed entry from its slot and returns its key.
    fn take(&mut self, index: u32) -> Option<K> {
        self.unlink(index);
        self.links_mut(index).next = core::mem::replace(&mut self.free, index);
        self.armed = self.armed.wrapping_sub(1);
        let entry = self.entries.get_mut(entry_of(index))?;
        entry.generation = entry.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        Some(entry.key)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "an index is a slot's, or was given out for an entry; neither list shrinks while a timer is armed"
    )]
    fn links(&self, index: u32) -> Links {
        self.links[index as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "as above")]
    fn links_mut(&mut self, index: u32) -> &mut Links {
        &mut self.links[index as usize]
    }
}

/// Appends to a vector that grows by an eighth: doubling would leave up to half of it unused.
fn push<T>(list: &mut Vec<T>, value: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 64);
    }
    list.push(value);
}

/// Returns the entry of a link; invalid for a slot's own link.
const fn entry_of(index: u32) -> usize {
    (index as usize).wrapping_sub(LISTS)
}

impl Level {
    fn set(&mut self, slot: u32) {
        if let Some(word) = self.slots.get_mut((slot / 64) as usize) {
            *word |= 1 << (slot % 64);
            self.occupied |= 1 << (slot / 64);
        }
    }

    fn clear(&mut self, slot: u32) {
        if let Some(word) = self.slots.get_mut((slot / 64) as usize) {
            *word &= !(1 << (slot % 64));
            if *word == 0 {
                self.occupied &= !(1 << (slot / 64));
            }
        }
    }

    /// Returns the first occupied slot at or after `digit`.
    fn first_from(&self, digit: u64) -> Option<u32> {
        let first = digit / 64;
        let ahead = self.slots.get(first as usize)? & (u64::MAX << (digit % 64));
        if ahead != 0 {
            return Some(first as u32 * 64 + ahead.trailing_zeros());
        }
        let later = self.occupied & (u8::MAX << 1 << first);
        let next = self.slots.get(later.trailing_zeros() as usize)?;
        Some(later.trailing_zeros() * 64 + next.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(wheel: &mut TimerWheel<u64>, now: Timestamp) -> Vec<u64> {
        core::iter::from_fn(|| wheel.poll_expired(now)).collect()
    }

    #[test]
    fn a_deadline_beyond_the_last_tick_waits_and_holds_up_nothing() {
        let mut wheel = TimerWheel::new();
        let now = Timestamp::from_millis(3000);
        assert_eq!(wheel.poll_expired(now), None);
        for far in [Timestamp::MAX, now + Duration::from_secs(u64::from(u32::MAX))] {
            wheel.insert(far, 1);
        }
        wheel.insert(Timestamp::from_millis(5000), 2);
        assert_eq!(drain(&mut wheel, Timestamp::from_millis(4000)), []);
        assert_eq!(drain(&mut wheel, Timestamp::from_millis(5000)), [2]);
        assert!(wheel.next_deadline().is_some_and(|at| at > now + Duration::from_secs(86_400)), "nothing is due");
        assert_eq!(drain(&mut wheel, Timestamp::MAX), [1, 1]);
    }

    #[test]
    fn memory_of_a_peak_is_freed_once_no_timer_is_armed_and_old_ids_stay_invalid() {
        let mut wheel = TimerWheel::new();
        assert!(!wheel.trim());
        let ids: Vec<_> = (0..1000).map(|number| wheel.insert(Timestamp::from_millis(number), number)).collect();
        assert!(!wheel.trim(), "all of it is in use");
        let expired = (0..999).flat_map(|ms| drain(&mut wheel, Timestamp::from_millis(ms)));
        assert_eq!(expired.count(), 999);
        assert!(wheel.trim(), "one is left");
        assert_eq!(ids.last().and_then(|last| wheel.cancel(*last)), Some(999));
        assert!(!wheel.trim());
        assert_eq!((wheel.entries.capacity(), wheel.links.capacity(), wheel.next_deadline()), (0, 0, None));
        let new = wheel.insert(Timestamp::from_millis(2000), 7);
        assert!(ids.iter().all(|id| wheel.cancel(*id).is_none()));
        assert!(wheel.next_deadline().is_some_and(|at| at <= Timestamp::from_millis(2000)));
        assert_eq!(wheel.cancel(new), Some(7));
    }

    #[test]
    fn many_timers_cascade_in_small_steps_and_fire_on_time() {
        const CROWD: u64 = 20_000;
        let mut wheel = TimerWheel::new();
        // An hour ahead, within one minute.
        let due = |number: u64| 3_600_000 + number % 60_000;
        let ids: Vec<_> = (0..CROWD).map(|number| wheel.insert(Timestamp::from_millis(due(number)), number)).collect();
        for id in ids.into_iter().step_by(7) {
            assert!(wheel.cancel(id).is_some());
        }
        let mut left = wheel.len();
        let mut calls = 0;
        while let Some(at) = wheel.next_deadline() {
            let fired = drain(&mut wheel, at);
            assert!(fired.iter().all(|number| due(*number) == at.as_millis()), "on time");
            left -= fired.len();
            assert_eq!(wheel.len(), left);
            calls += 1;
            // Others are armed meanwhile and fire too.
            if calls == 10 {
                wheel.insert(Timestamp::from_millis(3_600_500), 500);
                left += 1;
            }
        }
        assert_eq!(left, 0);
        assert!(calls > CROWD / (SPREAD_BATCH as u64), "{calls} calls");
    }

    #[test]
    fn timers_fire_at_their_tick_and_never_before() {
        let mut wheel = TimerWheel::new();
        for millis in [500, 1_500, 3_500, 32_000, 180_000, 7_200_000] {
            wheel.insert(Timestamp::from_millis(millis), millis);
            assert!(drain(&mut wheel, Timestamp::from_millis(0)).is_empty());
        }
        for millis in [500, 1_500, 3_500, 32_000, 180_000, 7_200_000] {
            assert!(drain(&mut wheel, Timestamp::from_millis(millis - 1)).is_empty(), "{millis} too early");
            assert_eq!(drain(&mut wheel, Timestamp::from_millis(millis)), [millis]);
        }
        assert!(wheel.is_empty());
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn a_cancelled_timer_does_not_fire_and_its_id_is_dead() {
        let mut wheel = TimerWheel::new();
        let first = wheel.insert(Timestamp::from_millis(5), 1);
        assert_eq!(wheel.cancel(first), Some(1));
        let second = wheel.insert(Timestamp::from_millis(5), 2);
        assert_eq!(wheel.cancel(first), None, "the slot was used again by another timer");
        assert_eq!(drain(&mut wheel, Timestamp::from_millis(5)), [2]);
        assert_eq!(wheel.cancel(second), None);
    }

    #[test]
    fn a_fraction_of_a_tick_rounds_up() {
        let mut wheel = TimerWheel::new();
        wheel.insert(Timestamp::from_nanos(1_000_001), 1);
        assert!(drain(&mut wheel, Timestamp::from_nanos(1_999_999)).is_empty());
        assert_eq!(drain(&mut wheel, Timestamp::from_nanos(2_000_000)), [1]);
    }

    /// Compares with a sorted list over random histories.
    #[test]
    fn agrees_with_a_sorted_list() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let mut wheel = TimerWheel::new();
        let mut model: Vec<(u64, u64, TimerId)> = Vec::new();
        let mut now = 0;
        for serial in 0..20_000 {
            match next(4) {
                0 | 1 => {
                    let shift = next(24);
                    let at = now + next(1 << shift);
                    let id = wheel.insert(Timestamp::from_millis(at), serial);
                    model.push((at, serial, id));
                }
                2 if !model.is_empty() => {
                    let victim = usize::try_from(next(model.len() as u64)).expect("small");
                    let (_, serial, id) = model.remove(victim);
                    assert_eq!(wheel.cancel(id), Some(serial));
                }
                _ => {
                    let shift = next(16);
                    now += next(1 << shift);
                    let mut fired = drain(&mut wheel, Timestamp::from_millis(now));
                    let mut due: Vec<_> =
                        model.extract_if(.., |(at, ..)| *at <= now).map(|(_, serial, _)| serial).collect();
                    fired.sort_unstable();
                    due.sort_unstable();
                    assert_eq!(fired, due);
                    let earliest = model.iter().map(|(at, ..)| *at).min();
                    let woken = wheel.next_deadline().map(Timestamp::as_millis);
                    assert!(woken <= earliest || earliest.is_none(), "woken at {woken:?}, due at {earliest:?}");
                    assert_eq!(woken.is_none(), earliest.is_none());
                }
            }
            assert_eq!(wheel.len(), model.len());
        }
    }
}
