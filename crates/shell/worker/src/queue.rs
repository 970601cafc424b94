//! The kernel's queue of new work on one address.

use std::io;
use std::time::Duration;

use strowger_net::{DroppedMessages, PacketFilter};
use strowger_overload::QueueBound;

use crate::outlet::Outlet;

/// A socket that only receives new work, and the room that its queue has.
#[derive(Debug)]
pub(crate) struct NewWorkQueue {
    pub(crate) outlet: Outlet,
    bound: QueueBound,
    /// The longest wait of what was received since the room was last looked at.
    longest: Duration,
}

impl NewWorkQueue {
    pub(crate) fn new(outlet: Outlet) -> Self {
        // The kernel books twice what it was asked for.
        let most = 2 * outlet.socket().buffers().receive;
        Self { outlet, bound: QueueBound::new(most), longest: Duration::ZERO }
    }

    /// Takes note of how long what was received had waited.
    pub(crate) fn note_wait(&mut self, wait: Duration) {
        self.longest = self.longest.max(wait);
    }

    /// Gives the queue the room that what came out of it asks for.
    pub(crate) fn bound(&mut self) {
        let longest = std::mem::take(&mut self.longest);
        if let Some(bytes) = self.bound.handle_window(longest)
            && let Err(error) = self.outlet.socket().bound_queue(bytes)
        {
            let address = self.outlet.socket().local_addr();
            tracing::debug!(%address, %error, "the receive queue keeps its room");
        }
    }

    /// Has the kernel drop what does not pass, and what was dropped before.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn filter_by_memory(&mut self, rules: &PacketFilter, dropped: &DroppedMessages) -> io::Result<()> {
        self.outlet.socket().filter_by_memory(rules, dropped)
    }

    /// Has the kernel drop what does not pass.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn filter(&mut self, rules: &PacketFilter) -> io::Result<()> {
        self.outlet.socket().filter(rules)
    }
}
