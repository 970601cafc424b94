//! What transactions wait for: a timer wheel for what may be changed or taken back, and queues for the last wait of each, when
//! nothing is left to do but to take what comes late. Most wait so, and each such wait is as long as all others of its kind: what
//! began first ends first, and for a fraction of what the wheel would do.

use std::collections::VecDeque;

use strowger_foundation::wheel::TICK;
use strowger_foundation::{TimerId, TimerWheel, Timestamp};

use crate::id::{ClientId, ServerId};
use crate::layer::{MAX_CLIENT, MAX_SERVER};

/// Ends in one piece of a queue.
const CHUNK: usize = 256;
/// [`TICK`] in nanoseconds.
const TICK_NANOS: u64 = 1_000_000;
const _: () = assert!(TICK.as_nanos() == TICK_NANOS as u128);

/// The slot of the transaction that a timer is for, which does for its name: who ends takes its timer of the wheel with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer(u32);

/// Where that slot is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Server(u32),
    Client(u32),
}

/// A transaction that waits. Who ends leaves its end in the queue, so there it needs its whole name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerOwner {
    timer: Timer,
    pub(crate) generation: u32,
}

/// How long a last wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitDuration {
    /// 64·T1: Timers D, J, L and M.
    Timeout,
    /// T4: Timers I and K.
    T4,
}

/// When a last wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitEnd {
    pub(crate) at: Timestamp,
    pub(crate) owner: TimerOwner,
}

/// All waits of a layer.
#[derive(Debug)]
pub(crate) struct TimerQueues {
    wheel: TimerWheel<Timer>,
    timeouts: Queue,
    t4s: Queue,
}

/// When the tick of a moment is over.
pub(crate) const fn tick_of(at: Timestamp) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().div_ceil(TICK_NANOS).saturating_mul(TICK_NANOS))
}

impl Timer {
    /// Set in those of client transactions.
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

    /// Arms a timer of the wheel.
    pub(crate) fn arm(&mut self, at: Timestamp, owner: TimerOwner) -> TimerId {
        self.wheel.insert(at, owner.timer)
    }

    pub(crate) fn disarm(&mut self, timer: TimerId) {
        self.wheel.cancel(timer);
    }

    /// Begins a last wait, which is over with the tick of `at`, as a timer of the wheel would be; `false` where others that are
    /// as long end later, as after a change of the base values: then it is the wheel's.
    pub(crate) fn enqueue(&mut self, length: WaitDuration, at: Timestamp, owner: TimerOwner) -> bool {
        let queue = match length {
            WaitDuration::Timeout => &mut self.timeouts,
            WaitDuration::T4 => &mut self.t4s,
        };
        queue.push(WaitEnd { at: tick_of(at), owner })
    }

    /// The next timer of the wheel that is due.
    pub(crate) fn poll_timer(&mut self, now: Timestamp) -> Option<Timer> {
        self.wheel.poll_expired(now)
    }

    /// The next last wait that is over, perhaps of a transaction that has ended before.
    pub(crate) fn poll_end(&mut self, now: Timestamp) -> Option<WaitEnd> {
        self.timeouts.poll(now).or_else(|| self.t4s.poll(now))
    }

    /// The next last waits that are over, perhaps not all of them.
    pub(crate) fn due(&self, now: Timestamp) -> impl Iterator<Item = &WaitEnd> {
        self.timeouts.due(now).chain(self.t4s.due(now))
    }

    /// When there is next something due.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let ends = [self.timeouts.front(), self.t4s.front()].into_iter().flatten().map(|end| end.at);
        ends.chain(self.wheel.next_deadline()).min()
    }

    /// Timers of the wheel.
    pub(crate) fn armed(&self) -> usize {
        self.wheel.len()
    }

    /// Ends in the queues.
    pub(crate) fn waiting(&self) -> usize {
        self.timeouts.len().saturating_add(self.t4s.len())
    }
}

/// Ends in their order, in pieces: it grows without copying, and gives its memory back. There are as many as transactions that
/// wait, and a few that nobody waits for any more: those of a CANCEL that has gone with its INVITE stay for T4 at most.
#[derive(Debug, Default)]
struct Queue {
    /// All but the last are full.
    chunks: VecDeque<Vec<WaitEnd>>,
    /// Those of the first piece that are taken.
    taken: usize,
    /// An empty piece, to be the next one.
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

    /// Of the first piece.
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
    fn what_began_first_ends_first() {
        let mut clocks = TimerQueues::new();
        let at = |number: u32| Timestamp::from_millis(32_000 + u64::from(number / 3));
        for number in 0..1_000 {
            assert!(clocks.enqueue(WaitDuration::Timeout, at(number), owner(number)));
        }
        assert!(clocks.enqueue(WaitDuration::T4, Timestamp::from_millis(5_000), owner(5_000)));
        assert_eq!((clocks.next_deadline(), clocks.waiting()), (Some(Timestamp::from_millis(5_000)), 1_001));
        assert_eq!(clocks.poll_end(Timestamp::from_millis(31_999)).map(|end| end.owner), Some(owner(5_000)));
        assert_eq!(clocks.poll_end(Timestamp::from_millis(31_999)), None);
        for number in 0..1_000 {
            assert_eq!(clocks.next_deadline(), Some(at(number)));
            assert_eq!(clocks.poll_end(at(number)), Some(WaitEnd { at: at(number), owner: owner(number) }));
        }
        assert_eq!((clocks.next_deadline(), clocks.waiting()), (None, 0));
        assert!(clocks.timeouts.chunks.len() <= 1, "its memory is given back");
    }

    #[test]
    fn a_wait_that_would_end_before_others_is_not_taken() {
        let mut clocks = TimerQueues::new();
        assert!(clocks.enqueue(WaitDuration::Timeout, Timestamp::from_millis(32_000), owner(1)));
        assert!(!clocks.enqueue(WaitDuration::Timeout, Timestamp::from_millis(31_999), owner(2)));
        assert!(clocks.enqueue(WaitDuration::Timeout, Timestamp::from_millis(32_000), owner(3)));
    }
}
