//! A socket's queue as the events show it.

use std::collections::VecDeque;

use crate::probe::event::{Queued, Received};

/// Number of oldest packets among which a message's is sought. Threads that receive from one socket at the same time
/// finish in any order.
const SEARCHED: usize = 64;
/// Number of later packets received before a packet counts as gone without being received, such as one whose checksum
/// was wrong.
const OVERTAKEN: u16 = 64;
/// Number of messages after which the queue's length is compared with the kernel's.
const COMPARED: u32 = 16;

/// Packets that were queued and not yet received.
#[derive(Debug)]
pub(super) struct SocketQueue {
    packets: VecDeque<Waiting>,
    /// Whether the oldest packet is known to be the one that is received next.
    is_known: bool,
    /// Messages since the last comparison, and the smallest number of packets that the kernel did not have.
    compared: u32,
    surplus: usize,
    /// When it last had an event, ns.
    used_ns: u64,
}

#[derive(Debug)]
struct Waiting {
    packet: Queued,
    overtaken: u16,
}

impl Default for SocketQueue {
    fn default() -> Self {
        Self { packets: VecDeque::new(), is_known: false, compared: 0, surplus: usize::MAX, used_ns: 0 }
    }
}

impl SocketQueue {
    /// Adds a packet at the end.
    pub(super) fn push(&mut self, packet: Queued) {
        self.used_ns = packet.at;
        self.packets.push_back(Waiting { packet, overtaken: 0 });
    }

    /// Returns the number of packets.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Takes the packet of a message, or of the first byte of what was read from a stream.
    pub(super) fn take(&mut self, message: &Received) -> Option<Queued> {
        self.used_ns = message.at;
        let packet = if message.is_stream { self.take_from_stream(message) } else { self.take_datagram(message) };
        packet.filter(|packet| packet.at <= message.at)
    }

    /// Forgets which packet is received next.
    pub(super) fn lose_position(&mut self) {
        self.is_known = false;
        self.packets.clear();
    }

    /// Returns whether it had an event after this time, ns.
    pub(super) fn is_used_after(&self, ns: u64) -> bool {
        self.used_ns > ns
    }

    fn take_datagram(&mut self, message: &Received) -> Option<Queued> {
        if !self.is_known && !self.find_position(message) {
            return None;
        }
        let place = self.place_of(message)?;
        let taken = self.packets.remove(place)?.packet;
        for earlier in self.packets.iter_mut().take(place) {
            earlier.overtaken += 1;
        }
        while self.packets.front().is_some_and(|oldest| oldest.overtaken >= OVERTAKEN) {
            self.packets.pop_front();
        }
        self.compare(message);
        Some(taken)
    }

    /// Returns the place of the oldest packet of the message's length. A message that was cut to fit a buffer is the
    /// oldest packet.
    fn place_of(&self, message: &Received) -> Option<usize> {
        let same = self.packets.iter().take(SEARCHED).position(|waiting| waiting.packet.length == message.length);
        same.or_else(|| self.packets.front().filter(|oldest| oldest.packet.length > message.length).map(|_| 0))
    }

    /// Finds the next packet by the kernel's count of those behind it; returns whether it is there.
    fn find_position(&mut self, message: &Received) -> bool {
        let wanted = message.queue as usize + 1;
        self.is_known = self.packets.len() >= wanted;
        if self.is_known {
            self.packets.drain(..self.packets.len() - wanted);
        }
        self.is_known
    }

    /// Removes the oldest packets if there are persistently more than in the kernel's queue: they left it without
    /// being received. Packets that other threads have taken but not finished are more only for a moment.
    fn compare(&mut self, message: &Received) {
        self.surplus = self.surplus.min(self.packets.len().saturating_sub(message.queue as usize));
        self.compared += 1;
        if self.compared == COMPARED {
            self.packets.drain(..self.surplus.min(self.packets.len()));
            self.compared = 0;
            self.surplus = usize::MAX;
        }
    }

    fn take_from_stream(&mut self, message: &Received) -> Option<Queued> {
        let first = message.stream_end.wrapping_sub(message.length);
        self.remove_until(first);
        let packet = self.packets.front()?.packet;
        self.remove_until(message.stream_end);
        Some(packet)
    }

    /// Removes the packets whose last byte is before this sequence number.
    fn remove_until(&mut self, end: u32) {
        let is_read = |waiting: &Waiting| end.wrapping_sub(waiting.packet.stream_end) < 1 << 31;
        while self.packets.front().is_some_and(is_read) {
            self.packets.pop_front();
        }
    }
}
