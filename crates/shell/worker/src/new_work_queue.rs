//! The kernel queue of new work on one address.

use std::io;
use std::time::Duration;

use strowger_net::{FilterMemory, PacketFilter};
use strowger_overload::QueueBound;

use crate::datagram_socket::DatagramSocket;

/// Maximum number of full batches of work in progress for which new work waits.
const MOST_PUT_OFF: u32 = 8;

/// A socket that receives only new work, and the size of its queue.
#[derive(Debug)]
pub(crate) struct NewWorkQueue {
    pub(crate) socket: DatagramSocket,
    bound: QueueBound,
    /// Longest wait of received messages since the queue size was last adjusted.
    longest: Duration,
    /// Consecutive batches for which it has waited.
    put_off: u32,
}

impl NewWorkQueue {
    pub(crate) fn new(outlet: DatagramSocket) -> Self {
        // The kernel books twice the requested size.
        let most = 2 * outlet.socket().buffers().receive;
        Self { socket: outlet, bound: QueueBound::new(most), longest: Duration::ZERO, put_off: 0 }
    }

    /// Records how long received messages had waited.
    pub(crate) fn note_wait(&mut self, wait: Duration) {
        self.longest = self.longest.max(wait);
    }

    /// Returns whether the queue waits for another batch of work in progress; it waits for a limited number of full
    /// batches.
    pub(crate) fn should_defer(&mut self, is_full_batch: bool) -> bool {
        let waits = is_full_batch && self.put_off < MOST_PUT_OFF;
        self.put_off = if waits { self.put_off + 1 } else { 0 };
        waits
    }

    /// Adjusts the size of the queue to the observed waits and the maximum wait.
    pub(crate) fn bound(&mut self, bound: Duration) {
        let longest = std::mem::take(&mut self.longest);
        if let Some(bytes) = self.bound.handle_window(longest, bound)
            && let Err(error) = self.socket.socket().bound_queue(bytes)
        {
            let address = self.socket.socket().local_addr();
            tracing::debug!(%address, %error, "the receive queue keeps its size");
        }
    }

    /// Makes the kernel drop what the filter does not pass and what was dropped before.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn filter_by_memory(
        &self,
        rules: &PacketFilter,
        memory: FilterMemory<'_>,
        worker: usize,
    ) -> io::Result<()> {
        self.socket.socket().filter_by_memory(rules, memory, worker)
    }

    /// Makes the kernel drop what the filter does not pass.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn filter(&self, rules: &PacketFilter) -> io::Result<()> {
        self.socket.socket().filter(rules)
    }
}
