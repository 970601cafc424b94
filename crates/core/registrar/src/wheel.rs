//! A timer wheel that shrinks.

use strowger_foundation::wheel::TimerId;
use strowger_foundation::{TimerWheel, Timestamp};

/// Minimum size worth shrinking.
const SHRINK_FROM: usize = 64;

/// Maximum number of entries of a shrinking table: each is moved, and no step must take long.
const SHRINK_AT: usize = 4096;

/// Returns whether a table with a capacity of `peak` entries that has `len` must shrink.
const fn is_sparse(len: usize, peak: usize) -> bool {
    peak > SHRINK_FROM && len < peak / 4 && len <= SHRINK_AT
}

/// The key of a binding, unique during its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindingKey {
    pub(crate) hash: u32,
    pub(crate) born: u32,
}

/// The timers of one kind. When three quarters of them are gone, the owner creates a new wheel and re-arms the rest.
#[derive(Debug)]
pub(crate) struct Wheel {
    timers: TimerWheel<BindingKey>,
    peak: usize,
    is_changed: bool,
}

impl Wheel {
    /// Creates an empty wheel at the time `now`.
    pub(crate) fn at(now: Timestamp) -> Self {
        let mut timers = TimerWheel::new();
        let none = timers.poll_expired(now);
        debug_assert!(none.is_none(), "nothing is armed");
        Self { timers, peak: 0, is_changed: true }
    }

    pub(crate) fn insert(&mut self, at: Timestamp, key: BindingKey) -> TimerId {
        let id = self.timers.insert(at, key);
        self.peak = self.peak.max(self.timers.len());
        self.is_changed = true;
        id
    }

    pub(crate) fn cancel(&mut self, id: TimerId) {
        self.is_changed |= self.timers.cancel(id).is_some();
    }

    pub(crate) fn poll_expired(&mut self, now: Timestamp) -> Option<BindingKey> {
        self.is_changed = true;
        self.timers.poll_expired(now)
    }

    /// Returns whether a timer was added or removed since the last call.
    pub(crate) const fn take_changed(&mut self) -> bool {
        core::mem::replace(&mut self.is_changed, false)
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.next_deadline()
    }

    pub(crate) fn len(&self) -> usize {
        self.timers.len()
    }

    /// Returns whether most of the memory is unused.
    pub(crate) fn is_sparse(&self) -> bool {
        is_sparse(self.timers.len(), self.peak)
    }
}
