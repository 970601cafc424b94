//! The kernel's queue of new work on one address.

use std::io;
use std::time::Duration;

use strowger_net::{FilterMemory, PacketFilter};
use strowger_overload::QueueBound;

use crate::datagram_socket::DatagramSocket;

/// While what is in progress fills whole batches, new work waits for so many of them at most.
const MOST_PUT_OFF: u32 = 8;

/// A socket that only receives new work, and the room that its queue has.
#[derive(Debug)]
pub(crate) struct NewWorkQueue {
    pub(crate) socket: DatagramSocket,
    bound: QueueBound,
    /// The longest wait of what was received since the room was last looked at.
    longest: Duration,
    /// Batches in a row for which it has waited.
    put_off: u32,
}

impl NewWorkQueue {
    pub(crate) fn new(outlet: DatagramSocket) -> Self {
        // The kernel books twice what it was asked for.
        let most = 2 * outlet.socket().buffers().receive;
        Self { socket: outlet, bound: QueueBound::new(most), longest: Duration::ZERO, put_off: 0 }
    }

    /// Takes note of how long what was received had waited.
    pub(crate) fn note_wait(&mut self, wait: Duration) {
        self.longest = self.longest.max(wait);
    }

    /// Whether the queue waits for another batch of what is in progress. While that fills whole batches, new work waits for a few of
    /// them at most.
    pub(crate) fn should_defer(&mut self, is_full_batch: bool) -> bool {
        let waits = is_full_batch && self.put_off < MOST_PUT_OFF;
        self.put_off = if waits { self.put_off + 1 } else { 0 };
        waits
    }

    /// Gives the queue the room that what came out of it asks for, and so much time.
    pub(crate) fn bound(&mut self, bound: Duration) {
        let longest = std::mem::take(&mut self.longest);
        if let Some(bytes) = self.bound.handle_window(longest, bound)
            && let Err(error) = self.socket.socket().bound_queue(bytes)
        {
            let address = self.socket.socket().local_addr();
            tracing::debug!(%address, %error, "the receive queue keeps its room");
        }
    }

    /// Has the kernel drop what does not pass, and what was dropped before.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn filter_by_memory(
        &self,
        rules: &PacketFilter,
        memory: FilterMemory<'_>,
        worker: usize,
    ) -> io::Result<()> {
        self.socket.socket().filter_by_memory(rules, memory, worker)
    }

    /// Has the kernel drop what does not pass.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn filter(&self, rules: &PacketFilter) -> io::Result<()> {
        self.socket.socket().filter(rules)
    }
}
