//! A hierarchical timer wheel: insert, cancel and "what is next" in constant time, whatever the number of timers.
//!
//! A timer never fires early and at most one [`TICK`] late. Timers of one tick fire in the order of their insertion, but for
//! those that are armed while a [crowd](SPREAD_BATCH) is spread.

use core::time::Duration;

use slab::Slab;

use crate::time::Timestamp;

/// The wheel's resolution: deadlines are rounded up to a whole tick. T1 and every timer of RFC 3261 are multiples of it.
pub const TICK: Duration = Duration::from_millis(1);

const TICK_NANOS: u64 = 1_000_000;
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 7;
/// The furthest deadline: 2^42 ticks, 139 years.
const MAX_SPAN: u64 = (1 << (BITS * LEVELS as u32)) - 1;
const NIL: u32 = u32::MAX;

/// Timers that one call moves at most when their time comes nearer: thousands that were armed for the same minute are spread
/// in as many calls as that takes, and no call takes long.
pub const SPREAD_BATCH: usize = 256;

/// Names a pending timer. One that has fired or was cancelled stays invalid for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    tick: u64,
    generation: u32,
    list: (u8, u8),
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Debug)]
struct Level {
    /// Bit s is set while `slots[s]` is not empty.
    occupied: u64,
    slots: [List; SLOTS],
}

/// Pending timers, each with a key that it hands back when it fires.
#[derive(Debug)]
pub struct TimerWheel<K> {
    entries: Slab<Entry<K>>,
    levels: [Level; LEVELS],
    /// Bit l is set while `levels[l]` is not empty.
    occupied: u8,
    /// The slot whose timers have been moved in part; all others wait for it.
    spreading: Option<(u8, u8)>,
    elapsed: u64,
    generation: u32,
}

impl<K: Copy> Default for TimerWheel<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy> TimerWheel<K> {
    /// An empty wheel at the clock's origin.
    #[must_use]
    pub fn new() -> Self {
        let empty = List { head: NIL, tail: NIL };
        Self {
            entries: Slab::new(),
            levels: core::array::from_fn(|_| Level { occupied: 0, slots: [empty; SLOTS] }),
            occupied: 0,
            spreading: None,
            elapsed: 0,
            generation: 0,
        }
    }

    /// Arms a timer that fires at `at`, or at once where `at` is past.
    pub fn insert(&mut self, at: Timestamp, key: K) -> TimerId {
        let tick = at.as_nanos().div_ceil(TICK_NANOS).clamp(self.elapsed, self.elapsed.saturating_add(MAX_SPAN));
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let index = self.entries.insert(Entry { key, tick, generation, list: (0, 0), prev: NIL, next: NIL });
        let index = u32::try_from(index).unwrap_or(NIL);
        debug_assert!(index != NIL, "a shard's tables are bounded far below 2^32 timers");
        self.link(index);
        TimerId { index, generation }
    }

    /// Disarms a timer; `None` where it has fired or was cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<K> {
        let entry = self.entries.get(id.index as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        self.unlink(id.index);
        Some(self.entries.remove(id.index as usize).key)
    }

    /// The earliest moment at which [`poll_expired`](Self::poll_expired) has something to do. Never scans entries.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let (_, _, tick) = self.next_slot()?;
        Some(Timestamp::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// Takes one timer that is due at `now`; call until `None`. Where [`next_deadline`](Self::next_deadline) is not later than
    /// `now` after that, a crowd was spread in part: there is more to do after whatever else is waiting.
    pub fn poll_expired(&mut self, now: Timestamp) -> Option<K> {
        let target = now.as_nanos() / TICK_NANOS;
        let mut moves = SPREAD_BATCH;
        while moves > 0 {
            let Some((level, slot, tick)) = self.next_slot().filter(|(_, _, tick)| *tick <= target) else {
                self.elapsed = self.elapsed.max(target);
                return None;
            };
            self.elapsed = self.elapsed.max(tick);
            if level == 0 {
                let index = self.list(0, slot).head;
                self.unlink(index);
                return Some(self.entries.remove(index as usize).key);
            }
            moves = self.cascade((level, slot), moves);
        }
        None
    }

    /// How many timers are armed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no timer is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Moves up to `moves` of a slot's timers to the levels below, now that their time is near; how many more may be moved.
    fn cascade(&mut self, list: (u8, u8), moves: usize) -> usize {
        self.spreading = Some(list);
        for left in (0..moves).rev() {
            let index = self.list(list.0, list.1).head;
            if index == NIL {
                self.spreading = None;
                return left;
            }
            self.unlink(index);
            self.link(index);
        }
        self.spreading = self.spreading.filter(|_| self.list(list.0, list.1).head != NIL);
        0
    }

    /// The first occupied slot in time: a lower level always comes before a higher one, because a timer's level is the
    /// highest digit in which it differs from the elapsed time.
    fn next_slot(&self) -> Option<(u8, u8, u64)> {
        if let Some((level, slot)) = self.spreading {
            return Some((level, slot, self.elapsed));
        }
        let mut levels = self.occupied;
        while levels != 0 {
            let number = levels.trailing_zeros();
            levels &= levels - 1;
            let shift = BITS * number;
            let digit = (self.elapsed >> shift) & (SLOTS as u64 - 1);
            let level = self.levels.get(number as usize)?;
            let ahead = level.occupied & (u64::MAX << digit);
            if ahead == 0 {
                continue;
            }
            let slot = ahead.trailing_zeros();
            let above = (self.elapsed >> shift >> BITS) << BITS;
            let tick = ((above | u64::from(slot)) << shift).max(self.elapsed);
            return Some((u8::try_from(number).unwrap_or(0), u8::try_from(slot).unwrap_or(0), tick));
        }
        None
    }

    fn link(&mut self, index: u32) {
        let elapsed = self.elapsed;
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        let differing = 63 - ((entry.tick ^ elapsed) | 1).leading_zeros();
        let level = (differing / BITS).min(LEVELS as u32 - 1);
        let slot = (entry.tick >> (BITS * level)) & (SLOTS as u64 - 1);
        let list = (u8::try_from(level).unwrap_or(0), u8::try_from(slot).unwrap_or(0));
        entry.list = list;
        let tail = self.list(list.0, list.1).tail;
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.prev = tail;
            entry.next = NIL;
        }
        match self.entries.get_mut(tail as usize) {
            Some(last) => last.next = index,
            None => self.list_mut(list).head = index,
        }
        self.list_mut(list).tail = index;
        if let Some(level) = self.levels.get_mut(usize::from(list.0)) {
            level.occupied |= 1 << list.1;
            self.occupied |= 1 << list.0;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Some(&Entry { list, prev, next, .. }) = self.entries.get(index as usize) else { return };
        match self.entries.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => self.list_mut(list).head = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => self.list_mut(list).tail = prev,
        }
        if self.list(list.0, list.1).head == NIL
            && let Some(level) = self.levels.get_mut(usize::from(list.0))
        {
            level.occupied &= !(1 << list.1);
            if level.occupied == 0 {
                self.occupied &= !(1 << list.0);
            }
            self.spreading = self.spreading.filter(|spreading| *spreading != list);
        }
    }

    fn list(&self, level: u8, slot: u8) -> List {
        let level = self.levels.get(usize::from(level));
        level.and_then(|level| level.slots.get(usize::from(slot))).copied().unwrap_or(List { head: NIL, tail: NIL })
    }

    #[expect(clippy::indexing_slicing, reason = "both indices were masked to the arrays' sizes when they were made")]
    fn list_mut(&mut self, (level, slot): (u8, u8)) -> &mut List {
        &mut self.levels[usize::from(level)].slots[usize::from(slot)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(wheel: &mut TimerWheel<u64>, now: Timestamp) -> Vec<u64> {
        core::iter::from_fn(|| wheel.poll_expired(now)).collect()
    }

    #[test]
    fn a_crowd_is_spread_in_small_steps_and_all_of_it_fires_in_time() {
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
            // Others are armed meanwhile, and fire too.
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

    /// Against a sorted list, over random histories.
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
