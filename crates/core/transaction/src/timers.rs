//! When a transaction wants to be looked after: it has one timer in the wheel, whatever it waits for.

use strowger_foundation::{TimerId, TimerWheel, Timestamp};

use crate::layer::Timer;

/// Later than any timer.
const NEVER: Timestamp = Timestamp::MAX;

/// What a transaction waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// Timer A, E or G.
    retransmit: Timestamp,
    /// Any other.
    deadline: Timestamp,
    /// For the earlier of the two.
    armed: Option<TimerId>,
}

/// Which of its waits is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Retransmit,
    Deadline,
}

impl Timers {
    pub(crate) const NONE: Self = Self { retransmit: NEVER, deadline: NEVER, armed: None };

    /// Changes what is waited for, and arms the wheel's timer for what comes first now.
    pub(crate) fn change(&mut self, wheel: &mut TimerWheel<Timer>, timer: Timer, change: impl FnOnce(&mut Self)) {
        let before = self.next();
        change(self);
        let next = self.next();
        if self.armed.is_some() && next == before {
            return;
        }
        self.disarm(wheel);
        self.armed = (next < NEVER).then(|| wheel.insert(next, timer));
    }

    /// The wheel's timer has fired.
    pub(crate) const fn on_fired(&mut self) -> Over {
        self.armed = None;
        if self.retransmit.as_nanos() < self.deadline.as_nanos() {
            self.retransmit = NEVER;
            Over::Retransmit
        } else {
            self.deadline = NEVER;
            Over::Deadline
        }
    }

    /// Nothing is waited for any more.
    pub(crate) fn disarm(&mut self, wheel: &mut TimerWheel<Timer>) {
        if let Some(timer) = self.armed.take() {
            wheel.cancel(timer);
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

    /// How many timers of the wheel it has.
    pub(crate) fn armed(self) -> usize {
        debug_assert_eq!(self.armed.is_some(), self.next() < NEVER, "what is waited for is waited for");
        usize::from(self.armed.is_some())
    }

    fn next(self) -> Timestamp {
        self.retransmit.min(self.deadline)
    }
}
