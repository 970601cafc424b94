//! Timers of transactions. A timer wheel holds those that may be changed or cancelled. Queues hold the last wait of
//! each transaction, in which it only absorbs retransmissions. Most transactions are in their last wait, and all
//! waits of a kind have the same duration, so they end in the order in which they began: a queue costs a fraction of
//! the wheel.

use std::collections::VecDeque;

use strowger_foundation::wheel::TICK;
use strowger_foundation::{TimerId, TimerWheel, Timestamp};

use crate::id::{ClientId, ServerId};
use crate::limits::{MAX_CLIENT, MAX_SERVER};

/// Number of entries in a chunk of a queue.
const CHUNK: usize = 256;
/// [`TICK`] in nanoseconds.
const TICK_NANOS: u64 = 1_000_000;
const _: () = assert!(TICK.as_nanos() == TICK_NANOS as u128);

/// The slot of a timer's transaction. It suffices as an id, because a transaction that ends cancels its timer in the
/// wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer(u32);

/// The table of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Server(u32),
    Client(u32),
}

/// A waiting transaction. A transaction that ends leaves its entry in the queue, so the entry has the full id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerOwner {
    timer: Timer,
    pub(crate) generation: u32,
}

/// Duration of a last wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitDuration {
    /// 64·T1: Timers D, J, L and M.
    Timeout,
    /// T4: Timers I and K.
    T4,
}

/// The end of a last wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitEnd {
    pub(crate) at: Timestamp,
    pub(crate) owner: TimerOwner,
}

/// All timers of a layer.
#[derive(Debug)]
pub(crate) struct TimerQueues {
    wheel: TimerWheel<Timer>,
    timeouts: Queue,
    t4s: Queue,
}

/// Returns the end of the tick that contains `at`.
pub(crate) const fn tick_of(at: Timestamp) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().div_ceil(TICK_NANOS).saturating_mul(TICK_NANOS))
}

impl Timer {
    /// Bit set for client transactions.
    const CLIENT: u32 = 1 << 31;

    pub(crate) const fn side(self) -> Side {
        if self.0 & Self::CLIENT == 0 { Side::Server(self.0) } else { Side::Client(self.0 & !Self::CLIENT) }
    }
}

const _: () = assert!(MAX_SERVER <= Timer::CLIENT as usize);
const _: () = assert!(MAX_CLIENT <= Timer::CLIENT as usize);

impl TimerOwner {
    pub(crate) const fn server(id: ServerId) -> Self {
        Self { timer: Timer(id.index), generation: id.generation }
    }

    pub(crate) const fn client(id: ClientId) -> Self {
        Self { timer: Timer(id.index | Timer::CLIENT), generation: id.generation }
    }

    pub(crate) const fn side(self) -> Side {
        self.timer.side()
    }
}

impl TimerQueues {
    pub(crate) fn new() -> Self {
        Self { wheel: TimerWheel::new(), timeouts: Queue::default(), t4s: Queue::default() }
    }

    /// Arms a timer in the wheel.
    pub(crate) fn arm(&mut self, at: Timestamp, owner: TimerOwner) -> TimerId {
        self.wheel.insert(at, owner.timer)
    }

    pub(crate) fn disarm(&mut self, timer: TimerId) {
        self.wheel.cancel(timer);
    }

    /// Starts a last wait that ends with the tick of `at`, like a timer in the wheel. Returns `false` if an earlier
    /// wait of this duration ends later, as after a change of the base values; the wait then belongs in the wheel.
    pub(crate) fn enqueue(&mut self, length: WaitDuration, at: Timestamp, owner: TimerOwner) -> bool {
        let queue = match length {
            WaitDuration::Timeout => &mut self.timeouts,
            WaitDuration::T4 => &mut self.t4s,
        };
        queue.push(WaitEnd { at: tick_of(at), owner })
    }

    /// Returns the next expired timer of the wheel.
    pub(crate) fn poll_timer(&mut self, now: Timestamp) -> Option<Timer> {
        self.wheel.poll_expired(now)
    }

    /// Returns the next ended wait; its transaction may have ended already.
    pub(crate) fn poll_end(&mut self, now: Timestamp) -> Option<WaitEnd> {
        self.timeouts.poll(now).or_else(|| self.t4s.poll(now))
    }

    /// Returns the next ended waits, possibly not all of them.
    pub(crate) fn due(&self, now: Timestamp) -> impl Iterator<Item = &WaitEnd> {
        self.timeouts.due(now).chain(self.t4s.due(now))
    }

    /// Returns the next deadline of the wheel.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.wheel.next_deadline()
    }

    /// Returns when the next last wait ends.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        [self.timeouts.front(), self.t4s.front()].into_iter().flatten().map(|end| end.at).min()
    }

    /// Frees memory that a peak has left, if no timer is armed. Returns whether a later call may free some.
    pub(crate) fn trim(&mut self) -> bool {
        self.wheel.trim()
    }

    /// Frees what is kept for reuse.
    pub(crate) fn free_spare(&mut self) {
        self.wheel.free_if_empty();
        self.timeouts.free_spare();
        self.t4s.free_spare();
    }

    /// Number of timers in the wheel.
    pub(crate) fn armed(&self) -> usize {
        self.wheel.len()
    }

    /// Number of entries in the queues.
    pub(crate) fn waiting(&self) -> usize {
        self.timeouts.len().saturating_add(self.t4s.len())
    }
}

/// Ends of waits in order, stored in chunks: growing does not copy, and memory is released. There is one entry per
/// waiting transaction, plus a few stale ones: that of a CANCEL that ended with its INVITE stays for at most T4.
#[derive(Debug, Default)]
struct Queue {
    /// The chunks; all but the last are full.
    chunks: VecDeque<Vec<WaitEnd>>,
    /// Number of entries removed from the first chunk.
    taken: usize,
    /// An empty chunk for reuse.
    spare: Vec<WaitEnd>,
    latest: Timestamp,
}

impl Queue {
    fn push(&mut self, end: WaitEnd) -> bool {
        if end.at < self.latest {
            return false;
        }
        self.latest = end.at;
        if self.chunks.back().is_none_or(|chunk| chunk.len() == CHUNK) {
            let mut chunk = core::mem::take(&mut self.spare);
            chunk.reserve_exact(CHUNK);
            self.chunks.push_back(chunk);
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.push(end);
        }
        true
    }

    fn front(&self) -> Option<&WaitEnd> {
        self.chunks.front()?.get(self.taken)
    }

    /// Returns the ended waits of the first chunk.
    fn due(&self, now: Timestamp) -> impl Iterator<Item = &WaitEnd> {
        let rest = self.chunks.front().and_then(|chunk| chunk.get(self.taken..)).unwrap_or_default();
        rest.iter().take_while(move |end| end.at <= now)
    }

    fn poll(&mut self, now: Timestamp) -> Option<WaitEnd> {
        let end = *self.front().filter(|end| end.at <= now)?;
        self.taken = self.taken.saturating_add(1);
        if self.taken == CHUNK {
            self.taken = 0;
            self.spare = self.chunks.pop_front().unwrap_or_default();
            self.spare.clear();
        }
        Some(end)
    }

    fn free_spare(&mut self) {
        self.spare = Vec::new();
        if self.len() == 0 {
            (self.chunks, self.taken) = (VecDeque::new(), 0);
        }
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum::<usize>().saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(index: u32) -> TimerOwner {
        TimerOwner::client(ClientId { index, generation: 7 })
    }

    #[test]
    fn timers_expire_in_order() {
        let mut clocks = TimerQueues::new();
        let at = |number: u32| Timestamp::from_millis(32_000 + u64::from(number / 3));
        for number in 0..1_000 {
            assert!(clocks.enqueue(WaitDuration::Timeout, at(number), owner(number)));
        }
        assert!(clocks.enqueue(WaitDuration::T4, Timestamp::from_millis(5_000), owner(5_000)));
        assert_eq!((clocks.next_end(), clocks.waiting()), (Some(Timestamp::from_millis(5_000)), 1_001));
        assert_eq!(clocks.poll_end(Timestamp::from_millis(31_999)).map(|end| end.owner), Some(owner(5_000)));
        assert_eq!(clocks.poll_end(Timestamp::from_millis(31_999)), None);
        for number in 0..1_000 {
            assert_eq!(clocks.next_end(), Some(at(number)));
            assert_eq!(clocks.poll_end(at(number)), Some(WaitEnd { at: at(number), owner: owner(number) }));
        }
        assert_eq!((clocks.next_end(), clocks.waiting()), (None, 0));
        assert!(clocks.timeouts.chunks.len() <= 1, "its memory is given back");
    }

    #[test]
    fn an_out_of_order_wait_is_refused() {
        let mut clocks = TimerQueues::new();
        assert!(clocks.enqueue(WaitDuration::Timeout, Timestamp::from_millis(32_000), owner(1)));
        assert!(!clocks.enqueue(WaitDuration::Timeout, Timestamp::from_millis(31_999), owner(2)));
        assert!(clocks.enqueue(WaitDuration::Timeout, Timestamp::from_millis(32_000), owner(3)));
    }
}
