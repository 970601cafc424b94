//! What a controller sees within a window.

use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::class::CLASSES;
use crate::filter::{FILTERED_KINDS, FilteredKind};

/// Queues whose waits are told apart; others share an entry with one of these.
pub(crate) const QUEUES: usize = 16;

/// Counts of one window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) ends: Timestamp,
    /// The shortest wait of each queue; [`Duration::MAX`] where nothing came out of it.
    shortest: [Duration; QUEUES],
    pub(crate) admitted: u32,
    pub(crate) answered: u32,
    pub(crate) dropped: u32,
    /// Messages of what had been admitted before.
    pub(crate) in_progress: u32,
    /// Calls to an emergency service by sources that have proven nothing.
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

    /// The wait that everything had in the longest queue; none where nothing came.
    pub(crate) fn standing_wait(&self) -> Duration {
        self.shortest.iter().filter(|wait| **wait != Duration::MAX).max().copied().unwrap_or_default()
    }
}
