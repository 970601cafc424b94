//! Brings events of several processors into the order of time.

use std::collections::VecDeque;

use crate::probe::event::Event;

/// How much later than its time an event may come, ns: a program on a tracepoint takes less, but the processor may
/// serve an interrupt before it writes the event.
const DELAY_NS: u64 = 2_000_000;

/// Events that wait until no earlier one can come.
#[derive(Debug, Default)]
pub(super) struct Reordering {
    /// In the order of time.
    events: VecDeque<Event>,
    /// The latest time seen, ns.
    now: u64,
}

impl Reordering {
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the earliest event, although an earlier one may come.
    pub(super) fn pop_early(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn push(&mut self, event: Event) {
        self.now = self.now.max(event.at());
        let later = self.events.iter().rev().take_while(|other| other.at() > event.at()).count();
        self.events.insert(self.events.len() - later, event);
    }

    pub(super) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Returns the next event in the order of time.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.events.pop_front_if(|event| event.at() <= self.now.saturating_sub(DELAY_NS))
    }
}
