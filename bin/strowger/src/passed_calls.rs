//! Calls that are set up here after another process has taken over.

use std::sync::{Arc, OnceLock};

use strowger_takeover::{RelayFrame, RelayLink};

/// The way of such calls to the process that has taken over; there is none before.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassedCalls(Arc<OnceLock<RelayLink>>);

impl PassedCalls {
    /// Sets the process that has taken over.
    pub(crate) fn set_successor(&self, link: RelayLink) {
        // A process hands over once.
        drop(self.0.set(link));
    }

    /// Passes on the state of a call; returns whether there was a process and room.
    pub(crate) fn pass(&self, state: &[u8]) -> bool {
        self.0.get().is_some_and(|link| link.send(&RelayFrame::Call(state)))
    }
}
