//! Kernel side of one UDP address: bounded receive queues, receive timestamps, and the socket filter.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use strowger_foundation::Timestamp;
use strowger_overload::{FilteredKind, Queue, QueueBound, queue_of};

use super::kernel_filter::KernelFilter;
use super::outcome::Drops;
use super::{Policy, Setup};

/// Memory that the kernel accounts per datagram, whatever its length, in bytes.
const BOOKED_BYTES: usize = 2_304;

/// Datagram in a receive queue.
#[derive(Debug)]
pub(super) struct Datagram {
    /// Kernel receive timestamp.
    pub(super) arrival: Timestamp,
    pub(super) from: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// Sockets of a worker on one address.
#[derive(Debug)]
pub(super) struct Kernel {
    sorts: bool,
    in_progress: VecDeque<Datagram>,
    new_work: VecDeque<Datagram>,
    /// Size of the queue of messages in progress, in bytes.
    room_bytes: usize,
    /// Size of the queue of new work.
    bound: QueueBound,
    /// Longest wait of new work since the last adjustment.
    longest_wait: Duration,
    pub(super) filter: KernelFilter,
}

impl Kernel {
    pub(super) fn new(setup: &Setup, salt: u32) -> Self {
        Self {
            sorts: setup.policy.sorts(),
            in_progress: VecDeque::new(),
            new_work: VecDeque::new(),
            room_bytes: setup.receive_buffer_bytes,
            bound: QueueBound::new(setup.receive_buffer_bytes),
            longest_wait: Duration::ZERO,
            filter: KernelFilter::new(
                matches!(setup.policy, Policy::KernelFilter | Policy::KernelMemory),
                setup.policy == Policy::KernelMemory,
                salt,
            ),
        }
    }

    /// Adds a datagram to its queue, or drops it.
    pub(super) fn receive(&mut self, kind: FilteredKind, datagram: Datagram, drops: &mut Drops) {
        let is_new_work = self.sorts && queue_of(&datagram.bytes) == Queue::NewWork;
        if is_new_work && self.filter.drops(kind, &datagram.bytes) {
            drops.filter += 1;
            return;
        }
        let (queue, room_bytes, overflows) = if is_new_work {
            (&mut self.new_work, self.bound.bytes(), &mut drops.overflow_new_work)
        } else {
            (&mut self.in_progress, self.room_bytes, &mut drops.overflow_in_progress)
        };
        if (queue.len() + 1) * BOOKED_BYTES > room_bytes {
            *overflows += 1;
        } else {
            queue.push_back(datagram);
        }
    }

    /// Returns whether all queues are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.in_progress.is_empty() && self.new_work.is_empty()
    }

    /// Takes up to `most` datagrams from a queue, oldest first.
    pub(super) fn take(&mut self, now: Timestamp, queue: Queue, most: usize) -> Vec<Datagram> {
        let datagrams = match queue {
            Queue::InProgress => &mut self.in_progress,
            Queue::NewWork => &mut self.new_work,
        };
        let taken: Vec<_> = datagrams.drain(..most.min(datagrams.len())).collect();
        if let (Queue::NewWork, Some(first)) = (queue, taken.first()) {
            self.longest_wait = self.longest_wait.max(now.saturating_since(first.arrival));
        }
        taken
    }

    /// Adjusts the size of the queue of new work to its waiting time, once per window.
    pub(super) fn adjust_bound(&mut self, bound: Duration) {
        self.bound.handle_window(core::mem::take(&mut self.longest_wait), bound);
    }
}
