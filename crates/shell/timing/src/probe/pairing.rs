//! Makes records of packets from the kernel's events: a state machine without clock and I/O.
//!
//! A socket's queue is first in, first out, so a received message belongs to the oldest packet of its length that was
//! queued (`socket_queue.rs`). A receive call belongs to the send calls of its thread that follow it, until the next
//! receive call (`receive_call.rs`).

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::event::{Event, Given, Queued, Received, Sent};
use crate::record::PacketRecord;
use limits::Limits;
pub(super) use limits::Overflows;
use receive_call::{Packet, ReceiveCall};
use reordering::Reordering;
use socket_queue::SocketQueue;

mod limits;
mod receive_call;
mod reordering;
mod socket_queue;
#[cfg(test)]
mod tests;

type Map<Key, Value> = HashMap<Key, Value, FixedState>;

/// Maximum number of a thread's receive calls that wait for a device to take what they caused to be sent.
const MAX_WAITING_CALLS: usize = 64;
/// How long a call waits for the next one of its thread, ns. A thread that needs longer for a packet has a record
/// without T_sip.
const PATIENCE_NS: u64 = 10_000_000_000;
/// How long a call that has ended waits for a device, ns. A device for which the kernel cuts a packet into segments
/// never takes the packet itself.
const DEVICE_PATIENCE_NS: u64 = 1_000_000_000;

/// Pairs events. Inputs go in by the `handle_` methods; then records are taken with [`Pairing::poll_record`] until
/// there is none.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    reordering: Reordering,
    sockets: Map<u64, SocketQueue>,
    threads: Map<u32, Thread>,
    /// Number of packets in all sockets' queues.
    queued: usize,
    /// Number of messages and send calls in all receive calls.
    open: usize,
    limits: Limits,
    overflows: Overflows,
    records: VecDeque<PacketRecord>,
    unpaired: u64,
}

impl Pairing {
    /// Takes an event. Events may come out of order by up to 2 ms.
    pub(crate) fn handle_event(&mut self, event: Event) {
        if self.reordering.len() >= self.limits.events {
            self.overflows.events += 1;
            if let Some(earliest) = self.reordering.pop_early() {
                self.on_event(earliest);
            }
        }
        self.reordering.push(event);
        while let Some(event) = self.reordering.pop() {
            self.on_event(event);
        }
    }

    /// Takes the time, ns of the monotonic clock: what has waited too long is ended.
    pub(crate) fn handle_timeout(&mut self, now: u64) {
        self.reordering.advance(now);
        while let Some(event) = self.reordering.pop() {
            self.on_event(event);
        }
        let deadline = now.saturating_sub(PATIENCE_NS);
        let device_deadline = now.saturating_sub(DEVICE_PATIENCE_NS);
        self.threads.retain(|_, thread| {
            thread.end_until(deadline, device_deadline, &mut self.records);
            !thread.calls.is_empty()
        });
        self.sockets.retain(|_, queue| queue.is_used_after(deadline));
        self.open = self.threads.values().map(|thread| thread.size).sum();
        self.queued = self.sockets.values().map(SocketQueue::len).sum();
    }

    /// Notes that events were lost: until a queue is known again, its packets are not paired. What threads do next is
    /// not because of their last packets, since others may have been received between.
    pub(crate) fn handle_loss(&mut self) {
        while let Some(event) = self.reordering.pop_early() {
            self.on_event(event);
        }
        self.threads.drain().for_each(|(_, mut thread)| thread.end_all(&mut self.records));
        self.open = 0;
        self.sockets.values_mut().for_each(SocketQueue::lose_position);
        self.queued = 0;
    }

    /// Ends all that is under way.
    pub(crate) fn handle_end(&mut self) {
        self.handle_timeout(u64::MAX);
    }

    /// Returns the next record.
    pub(crate) fn poll_record(&mut self) -> Option<PacketRecord> {
        self.records.pop_front()
    }

    /// Returns the number of messages received so far whose packet was not found.
    pub(crate) fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// Returns what the tables had no room for.
    pub(crate) fn overflows(&self) -> Overflows {
        self.overflows
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Queued(event) => self.on_queued(event),
            Event::Received(event) => self.on_received(event),
            Event::Sent(event) => {
                let has_room = self.open < self.limits.open;
                let is_kept = self.with_thread(event.thread, |thread, _| thread.on_sent(event, has_room));
                self.overflows.sent += u64::from(is_kept == Some(false));
            }
            Event::Given(event) => {
                self.with_thread(event.thread, |thread, records| thread.on_given(event, records));
            }
        }
    }

    fn on_queued(&mut self, event: Queued) {
        let has_room = self.queued < self.limits.queued;
        let is_known = self.with_queue(event.socket, |queue| {
            // Without one of its packets, the others would be paired with the wrong messages.
            if has_room { queue.push(event) } else { queue.lose_position() }
        });
        self.overflows.queued += u64::from(is_known.is_some() && !has_room);
        self.overflows.sockets += u64::from(is_known.is_none());
    }

    fn on_received(&mut self, event: Received) {
        let queued = self.with_queue(event.socket, |queue| queue.take(&event)).flatten();
        if queued.is_none() {
            self.unpaired += 1;
        }
        let (id, packet) = (event.thread, Packet { event, queued });
        if self.open >= self.limits.open {
            self.with_thread(id, Thread::end_all);
        }
        let is_new = !self.threads.contains_key(&id);
        if self.open >= self.limits.open || is_new && self.threads.len() >= self.limits.threads {
            self.overflows.received += 1;
            self.records.extend(ReceiveCall::new(packet).records());
            return;
        }
        self.threads.entry(id).or_default();
        self.with_thread(id, |thread, records| thread.on_received(packet, records));
    }

    /// Changes a socket's queue, if there is room for it.
    fn with_queue<Output>(&mut self, id: u64, change: impl FnOnce(&mut SocketQueue) -> Output) -> Option<Output> {
        if self.sockets.len() >= self.limits.sockets && !self.sockets.contains_key(&id) {
            return None;
        }
        let queue = self.sockets.entry(id).or_default();
        let before = queue.len();
        let output = change(queue);
        self.queued = self.queued + queue.len() - before;
        Some(output)
    }

    /// Changes a thread, if it has received.
    fn with_thread<Output>(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut Thread, &mut VecDeque<PacketRecord>) -> Output,
    ) -> Option<Output> {
        let thread = self.threads.get_mut(&id)?;
        let before = thread.size;
        let output = change(thread, &mut self.records);
        self.open = self.open + thread.size - before;
        Some(output)
    }
}

/// A thread of the program.
#[derive(Debug, Default)]
struct Thread {
    /// Its receive calls, oldest first. All but the last have ended and wait for a device.
    calls: VecDeque<ReceiveCall>,
    /// The last packet that a device took before the send call returned.
    early: Option<Given>,
    /// Number of messages and send calls in its receive calls.
    size: usize,
}

impl Thread {
    fn on_received(&mut self, packet: Packet, records: &mut VecDeque<PacketRecord>) {
        self.size += 1;
        if let Some(call) = self.calls.back_mut() {
            if call.is_of(&packet) {
                call.add(packet);
                return;
            }
            call.end(&packet.event);
        }
        self.calls.push_back(ReceiveCall::new(packet));
        self.release(records);
    }

    /// Adds a send call; returns whether it was kept.
    fn on_sent(&mut self, mut event: Sent, has_room: bool) -> bool {
        if let Some(early) = self.early.take_if(|early| early.call == event.call) {
            event.given += 1;
            event.given_ns += early.ns;
        }
        let Some(call) = self.calls.back_mut() else { return true };
        let before = call.size();
        let is_kept = call.add_sent(event, has_room);
        self.size += call.size() - before;
        is_kept
    }

    fn on_given(&mut self, event: Given, records: &mut VecDeque<PacketRecord>) {
        if self.calls.iter_mut().rev().any(|call| call.add_given(&event)) {
            self.release(records);
        } else {
            self.early = Some(event);
        }
    }

    /// Makes records of the oldest calls that have ended and wait for nothing.
    fn release(&mut self, records: &mut VecDeque<PacketRecord>) {
        while self.calls.len() > 1 && (self.calls[0].is_complete() || self.calls.len() > MAX_WAITING_CALLS) {
            self.end_oldest(records);
        }
    }

    /// Makes records of all calls.
    fn end_all(&mut self, records: &mut VecDeque<PacketRecord>) {
        while !self.calls.is_empty() {
            self.end_oldest(records);
        }
    }

    fn end_oldest(&mut self, records: &mut VecDeque<PacketRecord>) {
        if let Some(call) = self.calls.pop_front() {
            self.size -= call.size();
            records.extend(call.records());
        }
    }

    /// Makes records of the calls without an event after `deadline`, and of those that wait for a device since
    /// `device_deadline`, ns.
    fn end_until(&mut self, deadline: u64, device_deadline: u64, records: &mut VecDeque<PacketRecord>) {
        let latest = |calls: &VecDeque<ReceiveCall>| if calls.len() > 1 { device_deadline } else { deadline };
        while self.calls.front().is_some_and(|call| call.last_event_ns() <= latest(&self.calls)) {
            self.end_oldest(records);
        }
    }
}
