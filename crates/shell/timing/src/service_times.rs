//! Service times: for how long packets occupy the threads of a program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::message_type::MessageType;
use crate::part::Part;
use crate::record::PacketRecord;

/// Maximum number of threads with a receive call that has not ended; those of further ones are not counted.
const MAX_THREADS: usize = 16_384;
/// Maximum number of packets of one receive call that are counted: as many as the kernel returns at once.
const MAX_BATCH: usize = 1_024;

/// Service times of packets of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceTime {
    /// Number of packets whose service time is known.
    pub packets: u64,
    /// Mean, µs.
    pub mean_us: f64,
    /// Variance, µs²; `None` if some packets were received together, which share their time equally.
    pub variance_us2: Option<f64>,
}

/// Collects the service time X of each packet: from the moment at which a thread took it until the thread was ready for
/// the next one, or took that if it was waiting already. So X includes the receive call, the program, and all send
/// calls.
#[derive(Clone, Debug, Default)]
pub struct ServiceTimes {
    /// The last receive call of each thread.
    calls: BTreeMap<u32, Call>,
    all: Moments,
    types: BTreeMap<MessageType, Moments>,
}

/// A receive call, whose packets came one after the other.
#[derive(Clone, Debug, Default)]
struct Call {
    /// When its first packet was taken, ns.
    taken: u64,
    messages: Vec<MessageType>,
    /// When the thread was ready for the next call, ns; known with the last packet.
    ready: Option<u64>,
    /// Number of packets that it returned.
    batch: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    packets: u64,
    /// Sum, µs.
    sum: f64,
    /// Sum of squares, µs².
    squares: f64,
    has_batches: bool,
}

impl ServiceTimes {
    /// Counts a record. Records of one thread come in the order in which it received.
    pub fn record(&mut self, record: &PacketRecord) {
        let Some(copied) = record.times.get(Part::Copy) else { return };
        let taken = record.received_ns.saturating_sub(copied);
        let is_within = |call: &&mut Call| call.ready.is_none() && call.messages.len() < call.batch;
        if let Some(call) = self.calls.get_mut(&record.thread).as_mut().filter(|call| is_within(call)) {
            call.add(record);
            return;
        }
        if let Some(call) = self.calls.remove(&record.thread) {
            let queued = record.arrived_ns.zip(record.times.get(Part::Stack));
            let queued = queued.map(|(arrived, stack)| arrived.saturating_add(stack));
            let was_waiting = |ready: u64| queued.is_some_and(|queued| queued <= ready);
            self.end(&call, |ready| if was_waiting(ready) { taken.max(ready) } else { ready });
        }
        let batch = usize::from(record.batch.max(1));
        if self.calls.len() < MAX_THREADS && batch <= MAX_BATCH {
            let mut call = Call { taken, batch, ..Call::default() };
            call.add(record);
            self.calls.insert(record.thread, call);
        }
    }

    /// Counts a call; `end` returns when its service ended, given when the thread was ready, ns.
    #[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
    fn end(&mut self, call: &Call, end: impl FnOnce(u64) -> u64) {
        let Some(length) = call.ready.and_then(|ready| end(ready).checked_sub(call.taken)) else { return };
        let each = length as f64 / 1e3 / call.messages.len().max(1) as f64;
        for message in &call.messages {
            for moments in [&mut self.all, self.types.entry(*message).or_default()] {
                moments.packets += 1;
                moments.sum += each;
                moments.squares += each * each;
                moments.has_batches |= call.batch > 1;
            }
        }
    }

    /// Returns the times by message type, and of `all`; empty if none is known.
    #[must_use]
    pub fn report(&self) -> BTreeMap<String, ServiceTime> {
        let rows = self.types.iter().map(|(message, moments)| (message.to_string(), moments.report()));
        let all = (self.all.packets > 0).then(|| ("all".to_owned(), self.all.report()));
        rows.chain(all).collect()
    }
}

impl Call {
    fn add(&mut self, record: &PacketRecord) {
        self.messages.push(record.message);
        self.ready = record.ready_ns;
    }
}

impl Moments {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn report(&self) -> ServiceTime {
        let count = self.packets.max(1) as f64;
        let mean_us = self.sum / count;
        let variance = (self.squares / count - mean_us * mean_us).max(0.0);
        ServiceTime { packets: self.packets, mean_us, variance_us2: (!self.has_batches).then_some(variance) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_type::MethodName;
    use crate::part::PartTimes;

    const INVITE: MessageType = MessageType::Request(MethodName::Invite);
    const BYE: MessageType = MessageType::Request(MethodName::Bye);

    /// A packet that was queued and taken at these moments, with 1 µs of K_copy; µs.
    fn record(message: MessageType, queued: u64, taken: u64, ready: Option<u64>, batch: u16) -> PacketRecord {
        let mut times = PartTimes::default();
        times.set(Part::Stack, 1_000);
        times.set(Part::Copy, 1_000);
        PacketRecord {
            arrived_ns: Some(queued * 1_000 - 1_000),
            received_ns: taken * 1_000 + 1_000,
            thread: 7,
            port: 5_060,
            is_stream: false,
            length: 400,
            message,
            times,
            batch,
            sent: 2,
            ready_ns: ready.map(|ready| ready * 1_000),
            queue: Some(0),
        }
    }

    #[test]
    fn service_ends_when_the_thread_is_ready_or_takes_a_packet_that_waited() {
        let mut times = ServiceTimes::default();
        times.record(&record(INVITE, 10, 15, Some(45), 1));
        // It waited already, so the thread was busy until it took this one.
        times.record(&record(BYE, 40, 47, Some(57), 1));
        // It came later: the thread was idle in between.
        times.record(&record(BYE, 90, 95, Some(115), 1));
        times.record(&record(INVITE, 200, 201, None, 1));
        let report = times.report();
        let of = |name: &str| (report[name].packets, report[name].mean_us, report[name].variance_us2);
        assert_eq!(of("INVITE"), (1, 32.0, Some(0.0)));
        assert_eq!(of("BYE"), (2, 15.0, Some(25.0)));
        assert_eq!((of("all").0, (of("all").1 * 3.0).round()), (3, 62.0));
    }

    #[test]
    fn packets_of_one_call_share_its_time() {
        let mut times = ServiceTimes::default();
        times.record(&record(INVITE, 10, 15, None, 2));
        times.record(&record(BYE, 11, 17, Some(55), 2));
        // A call whose end was not seen is not counted.
        times.record(&record(BYE, 60, 65, None, 1));
        times.record(&record(BYE, 160, 165, Some(170), 1));
        let report = times.report();
        assert_eq!(report["all"], ServiceTime { packets: 2, mean_us: 20.0, variance_us2: None });
        assert!(ServiceTimes::default().report().is_empty());
    }
}
