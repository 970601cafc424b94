//! Measurements of one controller window.

use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::class::CLASSES;
use crate::filter::{FILTERED_KINDS, FilteredKind};

/// Number of queues with separate waits; further queues share entries.
pub(crate) const QUEUES: usize = 16;

/// Counts of one window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) ends: Timestamp,
    /// Minimum wait of each queue; [`Duration::MAX`] if nothing was read from it.
    shortest: [Duration; QUEUES],
    pub(crate) admitted: u32,
    pub(crate) answered: u32,
    pub(crate) dropped: u32,
    /// Messages of something admitted earlier.
    pub(crate) in_progress: u32,
    /// Emergency calls from unproven sources.
    pub(crate) unproven_emergencies: u32,
    pub(crate) kinds: [[u32; CLASSES]; FILTERED_KINDS],
}

impl Window {
    pub(crate) const fn until(ends: Timestamp) -> Self {
        Self {
            ends,
            shortest: [Duration::MAX; QUEUES],
            admitted: 0,
            answered: 0,
            dropped: 0,
            in_progress: 0,
            unproven_emergencies: 0,
            kinds: [[0; CLASSES]; FILTERED_KINDS],
        }
    }

    pub(crate) fn note_wait(&mut self, queue: usize, wait: Duration) {
        if let Some(shortest) = self.shortest.get_mut(queue % QUEUES) {
            *shortest = wait.min(*shortest);
        }
    }

    pub(crate) fn count(&mut self, kind: FilteredKind, rank: usize) {
        if let Some(count) = self.kinds.get_mut(kind as usize).and_then(|kind| kind.get_mut(rank)) {
            *count += 1;
        }
    }

    /// Returns the largest minimum wait of any queue; zero if nothing was read.
    pub(crate) fn standing_wait(&self) -> Duration {
        self.shortest.iter().filter(|wait| **wait != Duration::MAX).max().copied().unwrap_or_default()
    }
}
