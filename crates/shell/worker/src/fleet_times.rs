//! Times of the packets of all workers, as the control plane reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use strowger_foundation::Timestamp;
use strowger_net::{self as net, Clock};
use strowger_timing::{Part, RecordedHistograms, TimingReport, TypeBuckets};

use crate::calls::WorkerQuery;
use crate::kernel_filter::SharedMemory;
use crate::status::Counters;
use crate::worker_handle::{WorkerHandle, query_workers};
use crate::worker_times::{PacketTimes, WorkerTimes};

/// Reads the times of packets from the workers. A worker answers within microseconds; the reading thread copies its
/// histograms while the worker goes on.
#[derive(Clone, Debug)]
pub struct FleetTimesReader {
    workers: Vec<Arc<WorkerHandle>>,
    clock: Clock,
    memory: Arc<SharedMemory>,
    started: Timestamp,
    /// What each worker records; empty if timing is off.
    recorded: Vec<RecordedHistograms>,
}

/// The times of all packets since the server started.
#[derive(Clone, Debug)]
pub struct FleetTimes {
    /// Length of the time, and the processor time of the process within.
    lasted: Duration,
    cpu: Duration,
    /// By worker; `None` if it did not answer, so that its values are missing in differences too.
    workers: Vec<Option<Totals>>,
    /// Number of datagrams that the kernel's filter dropped.
    filtered: u64,
    has_send_stamps: bool,
}

/// The values of one worker, or of several.
#[derive(Clone, Debug, Default)]
struct Totals {
    packets: PacketTimes,
    /// Numbers of dropped packets, by cause.
    drops: BTreeMap<&'static str, u64>,
    lost_send_stamps: u64,
}

impl Totals {
    fn of(times: &WorkerTimes) -> Self {
        let packets = PacketTimes { histograms: times.histograms.copy(), counts: times.counts.clone() };
        let drops = drops(&times.net, &times.worker);
        Self { packets, drops, lost_send_stamps: times.lost_send_stamps }
    }

    fn add(&mut self, other: &Self) {
        self.packets.add(&other.packets);
        for (cause, count) in &other.drops {
            *self.drops.entry(cause).or_default() += count;
        }
        self.lost_send_stamps += other.lost_send_stamps;
    }

    fn since(&self, earlier: &Self) -> Self {
        let dropped = |(cause, count): (&&'static str, &u64)| {
            (*cause, count.saturating_sub(earlier.drops.get(*cause).copied().unwrap_or(0)))
        };
        Self {
            packets: self.packets.since(&earlier.packets),
            drops: self.drops.iter().map(dropped).collect(),
            lost_send_stamps: self.lost_send_stamps.saturating_sub(earlier.lost_send_stamps),
        }
    }
}

impl FleetTimesReader {
    pub(crate) fn new(workers: Vec<Arc<WorkerHandle>>, clock: Clock, memory: Arc<SharedMemory>) -> Self {
        Self { workers, clock, memory, started: clock.now(), recorded: Vec::new() }
    }

    /// Adds what the next worker records; `None` if timing is off.
    pub(crate) fn add_recorded(&mut self, recorded: Option<RecordedHistograms>) {
        self.recorded.extend(recorded);
    }

    /// Returns the times since the start by message type, counted up to each of `bounds_ns`, which ascend; empty if
    /// timing is off. Reads what the workers record and does not ask them.
    #[must_use]
    pub fn buckets(&self, bounds_ns: &[u64]) -> Vec<TypeBuckets> {
        let mut all: Vec<TypeBuckets> = Vec::new();
        for row in self.recorded.iter().flat_map(|recorded| recorded.buckets(bounds_ns)) {
            match all.iter_mut().find(|known| known.message == row.message) {
                Some(known) => known.add(&row),
                None => all.push(row),
            }
        }
        all
    }

    /// Returns the times since the start; `None` if timing is off.
    #[must_use]
    pub fn read(&self) -> Option<FleetTimes> {
        let answers = query_workers(&self.workers, WorkerQuery::Times);
        let (mut workers, mut has_send_stamps) = (Vec::with_capacity(answers.len()), true);
        for answer in answers {
            let Some(answer) = answer else {
                workers.push(None);
                continue;
            };
            let times = answer?;
            has_send_stamps &= times.has_send_stamps;
            workers.push(Some(Totals::of(&times)));
        }
        let (lasted, cpu) = (self.clock.now() - self.started, processor_time());
        Some(FleetTimes { lasted, cpu, workers, filtered: self.memory.dropped(), has_send_stamps })
    }
}

impl FleetTimes {
    /// Returns the times since `earlier`, of the workers that answered both times.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.workers.iter().zip(&earlier.workers);
        Self {
            lasted: self.lasted.saturating_sub(earlier.lasted),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            workers: pairs.map(|(now, then)| Some(now.as_ref()?.since(then.as_ref()?))).collect(),
            filtered: self.filtered.saturating_sub(earlier.filtered),
            has_send_stamps: self.has_send_stamps,
        }
    }

    fn total(&self) -> Totals {
        let mut total = Totals::default();
        self.workers.iter().flatten().for_each(|worker| total.add(worker));
        // The kernel counts what its filter drops as well, and reports with the next datagram.
        let full = total.drops.entry("socket_queue_full").or_default();
        *full = full.saturating_sub(self.filtered);
        total.drops.insert("kernel_filter", self.filtered);
        total
    }

    /// Returns the report.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of packets are far below 2^53")]
    pub fn report(&self) -> TimingReport {
        let total = self.total();
        let (messages, all) = total.packets.histograms.report();
        let seconds = self.lasted.as_secs_f64();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        TimingReport {
            method: "server".to_owned(),
            program: format!("strowger (process {})", std::process::id()),
            seconds,
            packets_per_s: per_second(all.packets as f64),
            messages,
            all,
            service: BTreeMap::new(),
            queue: total.packets.counts.depths.report(),
            drops: total.drops.iter().filter(|(_, n)| **n > 0).map(|(cause, n)| ((*cause).to_owned(), *n)).collect(),
            cpu: Some(per_second(self.cpu.as_secs_f64())),
            load: Some(per_second(self.cpu.as_secs_f64()) / self.workers.len().max(1) as f64),
            packets_per_receive: total.packets.counts.datagrams as f64 / total.packets.counts.receives.max(1) as f64,
            notes: self.notes(&total),
        }
    }

    fn notes(&self, total: &Totals) -> Vec<String> {
        let mut notes = Vec::new();
        let silent = self.workers.iter().filter(|worker| worker.is_none()).count();
        if silent > 0 {
            notes.push(format!("{silent} workers did not answer in time and are missing"));
        }
        if !self.has_send_stamps {
            notes.push("K_snd was not measured: this needs Linux 6.12".to_owned());
        } else if total.packets.histograms.values(Part::Send) > 0 {
            notes.push("K_snd is that of one sent packet in 256, the first one of its send call".to_owned());
        }
        if total.lost_send_stamps > 0 {
            notes.push(format!("{} samples of K_snd were not reported by the kernel", total.lost_send_stamps));
        }
        notes
    }
}

/// Returns the numbers of dropped packets of one worker, by cause.
fn drops(net: &net::Counters, worker: &Counters) -> BTreeMap<&'static str, u64> {
    [
        ("socket_queue_full", net.kernel_drops),
        ("overload_control", worker.shed),
        ("handover", worker.handover_drops),
        ("truncated", net.truncated),
        ("unaddressed", net.unaddressed),
        ("send_queue_full", net.send_overflow),
        ("send_no_buffers", net.no_buffers),
    ]
    .into()
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use strowger_timing::{MessageType, PartTimes};

    use super::*;

    /// The times after as many packets of each worker.
    fn times(packets: &[Option<u64>]) -> FleetTimes {
        let totals = |count: &u64| {
            let mut totals = Totals::default();
            let mut times = PartTimes::default();
            times.set(Part::Application, 5_000);
            (0..*count).for_each(|_| totals.packets.histograms.record(MessageType::Other, &times));
            totals.drops.insert("handover", *count);
            totals
        };
        let workers = packets.iter().map(|count| count.as_ref().map(totals)).collect();
        FleetTimes { lasted: Duration::ZERO, cpu: Duration::ZERO, workers, filtered: 0, has_send_stamps: true }
    }

    #[test]
    fn a_worker_that_did_not_answer_is_missing_in_the_difference() {
        let begin = times(&[Some(100), Some(100), None]);
        let end = times(&[Some(103), None, Some(100)]);
        let report = end.since(&begin).report();
        assert_eq!((report.all.packets, report.drops["handover"]), (3, 3));
        assert!((report.all.parts["t_sip"].mean_us - 5.0).abs() < 0.01);
        assert_eq!(report.notes, ["2 workers did not answer in time and are missing"]);
    }
}
