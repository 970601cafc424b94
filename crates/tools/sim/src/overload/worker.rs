//! Worker: it reads batches from the kernel's queues, passes them to the shards, and is busy for the time that this
//! costs.

use core::net::IpAddr;
use core::time::Duration;

use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_overload::{FilteredKind, Queue, kind_of};

use super::admission::Admission;
use super::costs::{Costs, MessageKind};
use super::cpu::Cpu;
use super::kernel::{Datagram, Kernel};
use super::outcome::Drops;
use super::schedule::Schedule;
use crate::server::{HandleResult, MessageOutcome, SentMessage, Server, Step};

/// Highest number of full batches in progress for which new work waits.
const NEW_WORK_PUT_OFF: u32 = 8;

/// State of a worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) server: Server,
    pub(super) admission: Admission,
    pub(super) costs: Costs,
    pub(super) cpu: Cpu,
    /// Datagrams read at once.
    pub(super) batch: usize,
    /// Number of consecutive batches for which new work has waited.
    pub(super) put_off: u32,
    /// End of the current work.
    pub(super) busy_until: Timestamp,
    /// Number of 503 responses sent.
    pub(super) refusals: u64,
    /// Checksum of everything sent, to compare two runs byte by byte.
    pub(super) checksum: u32,
}

impl Worker {
    /// Returns the start of the next round, at the earliest `now`.
    pub(super) fn next_round(&self, now: Timestamp, kernel: &Kernel) -> Option<Timestamp> {
        let due = if kernel.is_empty() {
            let timer = self.server.next_timeout().map_or(Timestamp::MAX, |(at, _)| at);
            timer.min(self.admission.next_deadline(&kernel.filter))
        } else {
            now
        };
        (due != Timestamp::MAX).then(|| self.cpu.runs_at(due.max(self.busy_until).max(now)))
    }

    /// Runs one round: a batch of messages in progress, then one of new work, then due timers.
    pub(super) fn round(&mut self, now: Timestamp, kernel: &mut Kernel, schedule: &mut Schedule, drops: &mut Drops) {
        self.busy_until = now;
        let count = self.handle_batch(now, Queue::InProgress, kernel, schedule, drops);
        if count == self.batch && self.put_off < NEW_WORK_PUT_OFF {
            self.put_off += 1;
        } else {
            self.put_off = 0;
            self.handle_batch(now, Queue::NewWork, kernel, schedule, drops);
        }
        self.handle_timeouts(now, schedule);
        self.admission.adjust(now, kernel);
    }

    /// Handles a batch from one queue and returns its number of datagrams.
    fn handle_batch(
        &mut self,
        now: Timestamp,
        queue: Queue,
        kernel: &mut Kernel,
        schedule: &mut Schedule,
        drops: &mut Drops,
    ) -> usize {
        let datagrams = kernel.take(now, queue, self.batch);
        for datagram in &datagrams {
            self.handle_datagram(now, datagram, kernel, schedule, drops);
        }
        datagrams.len()
    }

    /// Returns the kind of new work from a peer.
    pub(super) fn kind_from(&self, peer: IpAddr, bytes: &[u8]) -> FilteredKind {
        match kind_of(bytes) {
            FilteredKind::Call if self.server.has_proven(peer) => FilteredKind::ProvenCall,
            kind => kind,
        }
    }

    fn handle_datagram(
        &mut self,
        now: Timestamp,
        datagram: &Datagram,
        kernel: &mut Kernel,
        schedule: &mut Schedule,
        drops: &mut Drops,
    ) {
        let Datagram { arrival, from, bytes } = datagram;
        if self.admission.filters_out(self.kind_from(from.ip(), bytes), bytes) {
            drops.filter += 1;
            self.work(Duration::from_nanos(self.costs.drop_ns));
            return;
        }
        let flow = Flow::new(ListenerId(0), Transport::Udp, *from);
        let Self { server, admission, .. } = self;
        let judged = ((now, *arrival), (&bytes[..], &flow));
        let HandleResult { fate, sent } =
            server.handle_received(now, (*arrival, flow), bytes, |classifier, peek, steered| {
                admission.judge(judged.0, judged.1, &mut kernel.filter, (classifier, peek, steered))
            });
        drops.controller += u64::from(fate == MessageOutcome::Dropped);
        self.refusals += u64::from(fate == MessageOutcome::Refused);
        self.work(self.costs.of(MessageKind::of(bytes), fate, sent.len()));
        self.send(sent, schedule);
    }

    /// Serves each shard with due timers once.
    fn handle_timeouts(&mut self, now: Timestamp, schedule: &mut Schedule) {
        for _ in 0..SHARDS {
            let Some((_, shard)) = self.server.next_timeout().filter(|(at, _)| *at <= now) else { return };
            let sent = self.server.handle(&Step::Timeout { at: now, shard });
            for message in sent {
                self.work(Duration::from_nanos(self.costs.timer_send_ns));
                self.send(vec![message], schedule);
            }
        }
    }

    /// Adds to the time for which the worker is busy.
    fn work(&mut self, cost: Duration) {
        self.busy_until = self.cpu.done_at(self.busy_until, cost);
    }

    /// Sends the result of the last work.
    fn send(&mut self, sent: Vec<SentMessage>, schedule: &mut Schedule) {
        for SentMessage { flow, bytes, .. } in sent {
            self.checksum = crc32c::crc32c_append(self.checksum, &self.busy_until.as_nanos().to_be_bytes());
            self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
            schedule.send_to_client(self.busy_until, flow.peer, bytes);
        }
    }
}

/// Number of shards of the worker.
pub(super) const SHARDS: u16 = 2;
