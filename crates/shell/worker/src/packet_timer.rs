//! Times of a worker's packets: a state machine that is told when each step ends.
//!
//! The worker parses several messages, then handles them one by one. The time of parsing is divided equally among
//! them. All times that a message waits for others of its batch are [`Part::ReceiveBatch`], so that the parts add up
//! to the time from the receive call to the end of the message.

use strowger_foundation::Timestamp;
use strowger_net::SEND_QUEUE;
use strowger_timing::{HistogramRecorder, MessageType, Part, TypeIndex};

use crate::worker_times::ReceiveCounts;

/// One in this many sent packets has a stamp of when it reached the device. Stamps cost a system call each.
const SAMPLE_EVERY: usize = 256;

/// Measures the packets of one worker.
#[derive(Debug, Default)]
pub(crate) struct PacketTimer {
    recorder: HistogramRecorder,
    counts: ReceiveCounts,
    /// When the messages at hand were received.
    received: Timestamp,
    /// End of the last step.
    step_ended: Timestamp,
    /// Time that each of the messages at hand took to parse, ns.
    common: u64,
    /// The type of the message being handled.
    current: Option<TypeIndex>,
    /// Time of the current message that was spent sending, ns.
    sending: u64,
    /// Queues of received packets whose length is still being counted, by socket.
    queues: Vec<Option<QueueCount>>,
    /// Packets waiting to be sent, by listener.
    unsent: Vec<UnsentList>,
    sent_since_sample: usize,
}

/// Number of packets that were in a socket's queue at some moment, counted as they are received.
#[derive(Clone, Copy, Debug)]
struct QueueCount {
    at: Timestamp,
    packets: u64,
    /// Number of receive calls that it took.
    calls: u64,
}

/// Packets of one socket that wait to be sent, in order.
#[derive(Debug, Default)]
struct UnsentList {
    waiting: Vec<Unsent>,
    /// Whether the last entry is of the message being handled.
    is_open: bool,
}

/// Packets that one message caused.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    /// The type of that message; `None` if a timer or the like caused them.
    cause: Option<TypeIndex>,
    /// When that message was handled; [`Timestamp::MAX`] while it is being handled.
    handled: Timestamp,
    packets: u32,
}

/// What a receive call returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveCall {
    /// Number of the socket.
    pub(crate) socket: usize,
    /// When it returned.
    pub(crate) now: Timestamp,
    pub(crate) datagrams: usize,
    /// Whether there may be more in the queue.
    pub(crate) is_full: bool,
}

/// A send call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendCall {
    pub(crate) listener: usize,
    pub(crate) begun: Timestamp,
    pub(crate) ended: Timestamp,
    /// Number of packets that the kernel took.
    pub(crate) sent: usize,
    /// Number of packets that still wait.
    pub(crate) waiting: usize,
}

impl PacketTimer {
    /// Returns the histograms of what was measured.
    pub(crate) const fn recorder(&self) -> &HistogramRecorder {
        &self.recorder
    }

    /// Returns the counts of what was received.
    pub(crate) const fn counts(&self) -> &ReceiveCounts {
        &self.counts
    }

    /// Begins with the datagrams of a receive call, which arrived at the given times.
    pub(crate) fn begin_batch(&mut self, call: ReceiveCall, arrivals: impl Iterator<Item = Timestamp>) {
        self.begin(call.now);
        self.counts.receives += 1;
        self.counts.datagrams += call.datagrams as u64;
        self.count_queue(call, arrivals);
    }

    /// Begins with messages from elsewhere: a connection or another worker.
    pub(crate) const fn begin(&mut self, now: Timestamp) {
        (self.received, self.step_ended) = (now, now);
    }

    /// Returns when the messages at hand were received.
    pub(crate) const fn received(&self) -> Timestamp {
        self.received
    }

    /// Ends the parsing of some messages.
    pub(crate) fn end_common(&mut self, now: Timestamp, messages: usize) {
        self.common = between(self.step_ended, now) / messages.max(1) as u64;
        self.step_ended = now;
    }

    /// Begins to handle a message.
    pub(crate) fn begin_message(&mut self, message: MessageType) {
        self.current = Some(self.recorder.index_of(message));
        self.sending = 0;
    }

    /// Ends the handling of a message, which arrived at the device at `arrival` and was `received` by this server.
    pub(crate) fn end_message(&mut self, now: Timestamp, arrival: Option<Timestamp>, received: Timestamp) {
        let Some(message) = self.current.take() else { return self.skip(now) };
        let specific = between(self.step_ended, now).saturating_sub(self.sending);
        let whole = self.common + specific;
        let waited = between(received, now).saturating_sub(whole + self.sending);
        let recorder = &mut self.recorder;
        recorder.count(message);
        if let Some(arrival) = arrival {
            recorder.record(message, Part::Receive, between(arrival, received), 1);
        }
        recorder.record(message, Part::ReceiveBatch, waited, 1);
        recorder.record(message, Part::Common, self.common, 1);
        recorder.record(message, Part::Specific, specific, 1);
        recorder.record(message, Part::Application, whole, 1);
        for list in self.unsent.iter_mut().filter(|list| list.is_open) {
            list.close(now);
        }
        self.step_ended = now;
    }

    /// Ends a step that is not counted.
    pub(crate) const fn skip(&mut self, now: Timestamp) {
        self.step_ended = now;
        self.current = None;
    }

    /// Counts a datagram that is not handled like others.
    pub(crate) fn count(&mut self, message: MessageType, arrival: Timestamp) {
        let message = self.recorder.index_of(message);
        let waited = between(arrival, self.received);
        self.recorder.count(message);
        self.recorder.record(message, Part::Receive, waited, 1);
    }

    /// Records that the message being handled, if any, has caused a packet on a listener.
    pub(crate) fn note_unsent(&mut self, listener: usize) {
        if self.unsent.len() <= listener {
            self.unsent.resize_with(listener + 1, UnsentList::default);
        }
        if let Some(list) = self.unsent.get_mut(listener) {
            list.push(self.current);
        }
    }

    /// Returns whether the first packet of the next send call should be stamped, and the tag of the stamp.
    pub(crate) fn sample(&mut self, listener: usize, packets: usize) -> Option<u32> {
        self.sent_since_sample += packets;
        if self.sent_since_sample < SAMPLE_EVERY {
            return None;
        }
        let cause = self.unsent.get(listener)?.waiting.first()?.cause?;
        self.sent_since_sample = 0;
        Some(cause.number().into())
    }

    /// Records a send stamp.
    pub(crate) fn on_stamp(&mut self, tag: u32, nanos: u64) {
        if let Ok(number) = u8::try_from(tag) {
            self.recorder.record(TypeIndex::from_number(number), Part::Send, nanos, 1);
        }
    }

    /// Records a send call.
    pub(crate) fn on_send_call(&mut self, call: SendCall) {
        let took = between(call.begun, call.ended);
        if self.current.is_some() {
            self.sending += took;
        }
        let Some(list) = self.unsent.get_mut(call.listener) else { return };
        let each = took.checked_div(call.sent as u64).unwrap_or(0);
        let mut left = u32::try_from(call.sent).unwrap_or(u32::MAX);
        let mut gone = 0;
        for entry in &mut list.waiting {
            if left == 0 {
                break;
            }
            let packets = entry.packets.min(left);
            left -= packets;
            entry.packets -= packets;
            gone += usize::from(entry.packets == 0);
            if let Some(cause) = entry.cause {
                // A message that is still being handled makes nothing wait.
                let waited = between(entry.handled, call.begun);
                let packets = packets.into();
                self.recorder.record(cause, Part::SendBatch, waited, packets);
                self.recorder.record(cause, Part::SendCall, each, packets);
            }
        }
        // Packets that the kernel refuses are neither sent nor waiting.
        let gone = if call.waiting == 0 { list.waiting.len() } else { gone };
        list.is_open &= gone < list.waiting.len();
        list.waiting.drain(..gone);
    }

    /// Counts the packets in the queue of a socket. A call that returns all it can leaves the rest uncounted; those
    /// of the next calls that had arrived by then belong to it.
    fn count_queue(&mut self, call: ReceiveCall, arrivals: impl Iterator<Item = Timestamp>) {
        if self.queues.len() <= call.socket {
            self.queues.resize(call.socket + 1, None);
        }
        let Some(open) = self.queues.get_mut(call.socket) else { return };
        if let Some(count) = open {
            let earlier = arrivals.take_while(|arrival| *arrival < count.at).count();
            count.packets += earlier as u64;
            if call.is_full && earlier == call.datagrams {
                count.calls += 1;
                return;
            }
            self.counts.depths.record(count.packets, count.calls);
            *open = None;
        }
        if call.is_full {
            *open = Some(QueueCount { at: call.now, packets: call.datagrams as u64, calls: 1 });
        } else {
            self.counts.depths.record(call.datagrams as u64, 1);
        }
    }
}

impl UnsentList {
    fn push(&mut self, cause: Option<TypeIndex>) {
        let is_same = self.is_open || (cause.is_none() && self.waiting.last().is_some_and(|last| last.cause.is_none()));
        if let Some(last) = self.waiting.last_mut().filter(|_| is_same) {
            last.packets += 1;
        } else if self.waiting.len() < SEND_QUEUE {
            self.waiting.push(Unsent { cause, handled: Timestamp::MAX, packets: 1 });
            self.is_open = cause.is_some();
        }
    }

    /// Ends the message of the last entry.
    fn close(&mut self, now: Timestamp) {
        self.is_open = false;
        if let Some(last) = self.waiting.last_mut() {
            last.handled = now;
        }
    }
}

/// Returns the time between two moments, ns; 0 if the clock seems to run backwards.
const fn between(begin: Timestamp, end: Timestamp) -> u64 {
    end.as_nanos().saturating_sub(begin.as_nanos())
}

#[cfg(test)]
mod tests {
    use strowger_timing::{Distribution, MethodName, TimingReport};

    use super::*;

    const INVITE: MessageType = MessageType::Request(MethodName::Invite);
    const BYE: MessageType = MessageType::Request(MethodName::Bye);

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(micros * 1_000)
    }

    fn call(now: u64, datagrams: usize, is_full: bool) -> ReceiveCall {
        ReceiveCall { socket: 0, now: at(now), datagrams, is_full }
    }

    fn send_call(begun: u64, ended: u64, sent: usize, waiting: usize) -> SendCall {
        SendCall { listener: 0, begun: at(begun), ended: at(ended), sent, waiting }
    }

    /// Returns count and mean, µs, of a part of a type, or of all together.
    fn times(timer: &PacketTimer, message: Option<MessageType>, part: Part) -> (u64, f64) {
        let (rows, all) = timer.recorder().recorded().copy().report();
        let name = message.map(|message| message.to_string());
        let row = name.map_or(Some(&all), |name| rows.iter().find(|row| row.message == name));
        let part = row.and_then(|row| row.parts.get(part.key()).cloned()).unwrap_or_default();
        let Distribution { count, mean_us, .. } = part;
        (count, mean_us)
    }

    #[test]
    fn the_parts_of_a_batch_add_up() {
        let mut timer = PacketTimer::default();
        timer.begin_batch(call(100, 3, false), [60, 70, 95].map(at).into_iter());
        timer.end_common(at(106), 3);
        for (message, arrival, ended) in [(INVITE, 60, 116), (BYE, 70, 121), (BYE, 95, 128)] {
            timer.begin_message(message);
            timer.end_message(at(ended), Some(at(arrival)), at(100));
        }
        let of = |message, part| times(&timer, message, part);
        assert_eq!(of(Some(INVITE), Part::Receive), (1, 40.0));
        assert_eq!(of(Some(INVITE), Part::Common), (1, 2.0));
        assert_eq!(of(Some(INVITE), Part::Specific), (1, 10.0));
        assert_eq!(of(Some(INVITE), Part::Application), (1, 12.0));
        // It waited only while the two others were parsed.
        assert_eq!(of(Some(INVITE), Part::ReceiveBatch), (1, 4.0));
        assert_eq!(of(Some(BYE), Part::Receive), (2, 17.5));
        assert_eq!(of(Some(BYE), Part::Application), (2, 8.0));
        assert_eq!(of(Some(BYE), Part::ReceiveBatch), (2, (14.0 + 19.0) / 2.0));
        let whole: f64 = [Part::ReceiveBatch, Part::Application].into_iter().map(|part| of(None, part).1 * 3.0).sum();
        assert_eq!(whole, 16.0 + 21.0 + 28.0);
    }

    #[test]
    fn a_single_message_waits_for_nothing() {
        let mut timer = PacketTimer::default();
        timer.begin_batch(call(10, 1, false), [at(12)].into_iter());
        timer.end_common(at(11), 1);
        timer.begin_message(INVITE);
        timer.end_message(at(15), Some(at(12)), at(10));
        assert_eq!(times(&timer, None, Part::ReceiveBatch), (1, 0.0));
        // A stamp later than the receive call comes from a clock that was set back.
        assert_eq!(times(&timer, None, Part::Receive), (1, 0.0));
    }

    #[test]
    fn a_message_of_another_worker_has_waited_since_that_one_received_it() {
        let mut timer = PacketTimer::default();
        timer.begin(at(50));
        timer.end_common(at(52), 1);
        timer.begin_message(INVITE);
        timer.end_message(at(57), Some(at(10)), at(30));
        assert_eq!(times(&timer, None, Part::Receive), (1, 20.0));
        assert_eq!(times(&timer, None, Part::ReceiveBatch), (1, 20.0));
        assert_eq!(times(&timer, None, Part::Application), (1, 7.0));
    }

    #[test]
    fn a_connection_has_no_k_rcv() {
        let mut timer = PacketTimer::default();
        timer.begin(at(50));
        timer.end_common(at(52), 1);
        timer.begin_message(INVITE);
        timer.end_message(at(57), None, at(50));
        assert_eq!(times(&timer, None, Part::Receive).0, 0);
        assert_eq!(times(&timer, None, Part::Application), (1, 7.0));
    }

    #[test]
    fn sends_belong_to_the_message_that_caused_them() {
        let mut timer = PacketTimer::default();
        timer.begin_batch(call(0, 2, false), [at(0), at(0)].into_iter());
        timer.end_common(at(2), 2);
        timer.begin_message(INVITE);
        timer.note_unsent(0);
        timer.note_unsent(0);
        timer.end_message(at(10), Some(at(0)), at(0));
        timer.begin_message(BYE);
        timer.note_unsent(0);
        timer.end_message(at(14), Some(at(0)), at(0));
        // By a timer.
        timer.note_unsent(0);
        timer.on_send_call(send_call(20, 28, 4, 0));
        assert_eq!(times(&timer, Some(INVITE), Part::SendBatch), (2, 10.0));
        assert_eq!(times(&timer, Some(BYE), Part::SendBatch), (1, 6.0));
        assert_eq!(times(&timer, None, Part::SendCall), (3, 2.0));
        timer.on_send_call(send_call(30, 31, 1, 0));
        assert_eq!(times(&timer, None, Part::SendCall).0, 3, "nothing is counted twice");
    }

    #[test]
    fn a_send_call_within_a_message_is_not_its_t_sip() {
        let mut timer = PacketTimer::default();
        timer.begin(at(0));
        timer.end_common(at(1), 1);
        timer.begin_message(INVITE);
        timer.note_unsent(0);
        timer.on_send_call(send_call(3, 8, 1, 0));
        timer.note_unsent(0);
        timer.end_message(at(10), None, at(0));
        assert_eq!(times(&timer, None, Part::Application), (1, 5.0));
        assert_eq!(times(&timer, None, Part::ReceiveBatch), (1, 0.0));
        timer.on_send_call(send_call(11, 12, 1, 0));
        assert_eq!(times(&timer, None, Part::SendBatch), (2, 0.5));
    }

    #[test]
    fn what_a_full_send_buffer_holds_back_is_counted_when_it_leaves() {
        let mut timer = PacketTimer::default();
        for (message, ended) in [(INVITE, 10), (BYE, 20)] {
            timer.begin(at(0));
            timer.begin_message(message);
            timer.note_unsent(0);
            timer.note_unsent(0);
            timer.end_message(at(ended), None, at(0));
        }
        timer.on_send_call(send_call(30, 33, 3, 1));
        assert_eq!(times(&timer, Some(BYE), Part::SendBatch), (1, 10.0));
        timer.on_send_call(send_call(50, 51, 1, 0));
        assert_eq!(times(&timer, Some(BYE), Part::SendBatch), (2, 20.0));
        assert_eq!(times(&timer, None, Part::SendCall), (4, 1.0));
    }

    #[test]
    fn one_packet_in_256_is_sampled_by_its_cause() {
        let mut timer = PacketTimer::default();
        let mut samples = 0;
        for _ in 0..1_024 {
            timer.begin(at(0));
            timer.begin_message(BYE);
            timer.note_unsent(0);
            timer.end_message(at(1), None, at(0));
            if let Some(tag) = timer.sample(0, 1) {
                samples += 1;
                timer.on_stamp(tag, 3_000);
            }
            timer.on_send_call(send_call(2, 3, 1, 0));
        }
        assert_eq!(samples, 4);
        assert_eq!(times(&timer, Some(BYE), Part::Send), (4, 3.0));
    }

    #[test]
    fn a_queue_longer_than_a_batch_is_counted_over_several() {
        let mut timer = PacketTimer::default();
        let report = |timer: &PacketTimer| {
            let queue = timer.counts().depths.report().unwrap_or_default();
            TimingReport { queue: Some(queue), ..TimingReport::default() }.queue.map(|queue| (queue.mean, queue.max))
        };
        timer.begin_batch(call(10, 3, false), [1, 2, 3].map(at).into_iter());
        assert_eq!(report(&timer), Some((3.0, 3)));
        // At 20 there were 64 + 64 + 10.
        timer.begin_batch(call(20, 64, true), (0..64).map(|_| at(15)));
        timer.begin_batch(call(30, 64, true), (0..64).map(|_| at(16)));
        timer.begin_batch(call(40, 12, false), (0..12).map(|n| at(if n < 10 { 17 } else { 35 })));
        assert_eq!(report(&timer).map(|(_, max)| max), Some(138));
        assert_eq!(report(&timer).map(|(mean, _)| mean), Some((3.0 + 2.0 * 138.0 + 12.0) / 4.0));
        assert_eq!((timer.counts().receives, timer.counts().datagrams), (4, 143));
    }
}
