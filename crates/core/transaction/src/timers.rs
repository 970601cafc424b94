//! The timers of a transaction. Each transaction has at most one armed timer, for the earlier of its two deadlines.

use strowger_foundation::wheel::TICK;
use strowger_foundation::{TimerId, Timestamp};

use crate::timer_queues::{TimerOwner, TimerQueues, WaitDuration};

/// Later than any timer.
const NEVER: Timestamp = Timestamp::MAX;
/// Marks that the deadline is in a timer queue instead of the wheel.
const QUEUED: TimerId = TimerId::NEVER;

/// The deadlines of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// Timer A, E or G.
    retransmit: Timestamp,
    /// Any other timer.
    deadline: Timestamp,
    /// The timer for the earlier of the two.
    armed: Option<TimerId>,
}

/// The timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerKind {
    Retransmit,
    Deadline,
}

impl Timers {
    pub(crate) const NONE: Self = Self { retransmit: NEVER, deadline: NEVER, armed: None };

    /// Changes the deadlines and rearms the timer of `owner` for the earlier one. `last` marks the last wait, which
    /// will not change any more.
    pub(crate) fn rearm(
        &mut self,
        clocks: &mut TimerQueues,
        owner: TimerOwner,
        last: Option<WaitDuration>,
        change: impl FnOnce(&mut Self),
    ) {
        let before = self.next();
        change(self);
        let next = self.next();
        if self.armed.is_some() && next == before {
            return;
        }
        self.disarm(clocks);
        if next == NEVER {
            return;
        }
        let last = last.filter(|_| !self.retransmits());
        let is_queued = last.is_some_and(|length| clocks.enqueue(length, next, owner));
        self.armed = Some(if is_queued { QUEUED } else { clocks.arm(next, owner) });
    }

    /// Returns the timer that has fired.
    pub(crate) const fn on_fired(&mut self) -> TimerKind {
        self.armed = None;
        if self.retransmit.as_nanos() < self.deadline.as_nanos() {
            self.retransmit = NEVER;
            TimerKind::Retransmit
        } else {
            self.deadline = NEVER;
            TimerKind::Deadline
        }
    }

    /// Cancels all timers.
    pub(crate) fn disarm(&mut self, clocks: &mut TimerQueues) {
        // An entry in a queue stays there and is ignored when it expires.
        if let Some(timer) = self.armed.take().filter(|timer| *timer != QUEUED) {
            clocks.disarm(timer);
        }
    }

    pub(crate) const fn retransmit_at(&mut self, at: Timestamp) {
        self.retransmit = at;
    }

    pub(crate) const fn end_at(&mut self, at: Timestamp) {
        self.deadline = at;
    }

    pub(crate) const fn stop_retransmit(&mut self) {
        self.retransmit = NEVER;
    }

    pub(crate) const fn stop_deadline(&mut self) {
        self.deadline = NEVER;
    }

    pub(crate) fn retransmits(self) -> bool {
        self.retransmit < NEVER
    }

    pub(crate) fn has_deadline(self) -> bool {
        self.deadline < NEVER
    }

    /// Whether the transaction is in its last wait, which ends with the tick that ends at `at`.
    pub(crate) fn is_last_until(self, at: Timestamp) -> bool {
        self.is_queued() && self.deadline <= at && at.saturating_since(self.deadline) < TICK
    }

    pub(crate) fn is_queued(self) -> bool {
        self.armed == Some(QUEUED)
    }

    /// Number of its timers in the wheel.
    pub(crate) fn armed(self) -> usize {
        debug_assert_eq!(self.armed.is_some(), self.next() < NEVER, "what is waited for is waited for");
        usize::from(self.armed.is_some() && !self.is_queued())
    }

    fn next(self) -> Timestamp {
        self.retransmit.min(self.deadline)
    }
}
