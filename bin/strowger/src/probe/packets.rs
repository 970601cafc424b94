//! Packets seen by eBPF, counted and logged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use strowger_timing::{
    LogFooter, PacketRecord, Part, Probe, QueueDepths, ServiceTimes, TimingHistograms, TimingReport,
};

use super::log::PacketLog;
use crate::failure::Failure;
use crate::text::count;

/// Number of receiving threads that are known apart.
const MAX_RECEIVERS: usize = 16_384;
/// Cost of the probe from which it changes what it measures, as a share of the program's processor time.
const NOTICED_COST: f64 = 0.1;

/// The packets of a measurement.
pub(super) struct Packets {
    /// `None` after the end.
    probe: Option<Probe>,
    histograms: TimingHistograms,
    service: ServiceTimes,
    depths: QueueDepths,
    /// Receive calls, as the sum of 1/batch over the packets.
    receive_calls: f64,
    log: Option<PacketLog>,
    /// Records that were just collected.
    records: Vec<PacketRecord>,
    drops: BTreeMap<String, u64>,
    lost_events: u64,
    unpaired: u64,
    notes: Vec<String>,
    /// Processors that the probe's programs use.
    cost: Option<f64>,
    /// Threads that received, at most [`MAX_RECEIVERS`].
    receivers: BTreeSet<u32>,
}

impl Packets {
    pub(super) fn new(probe: Probe, log: Option<PacketLog>) -> Self {
        Self {
            probe: Some(probe),
            histograms: TimingHistograms::default(),
            service: ServiceTimes::default(),
            depths: QueueDepths::default(),
            receive_calls: 0.0,
            log,
            records: Vec::new(),
            drops: BTreeMap::new(),
            lost_events: 0,
            unpaired: 0,
            notes: Vec::new(),
            cost: None,
            receivers: BTreeSet::new(),
        }
    }

    /// Collects records for at most this long.
    pub(super) fn collect(&mut self, length: Duration) -> Result<(), Failure> {
        if let Some(probe) = &mut self.probe {
            probe.poll(length, &mut self.records);
        }
        self.count()
    }

    /// Detaches the probe and counts the packets that were still in processing.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.remember();
        if let Some(probe) = self.probe.take() {
            probe.stop(&mut self.records);
        }
        self.count()
    }

    /// Keeps what the probe knows beyond its end.
    fn remember(&mut self) {
        if let Some(probe) = &self.probe {
            self.drops = probe.drops();
            self.lost_events = probe.lost_events();
            self.unpaired = probe.unpaired();
            self.notes = probe.notes();
            self.cost = probe.cost();
        }
    }

    fn count(&mut self) -> Result<(), Failure> {
        for record in self.records.drain(..) {
            self.histograms.record(record.message, &record.times);
            self.service.record(&record);
            self.receive_calls += 1.0 / f64::from(record.batch.max(1));
            if self.receivers.len() < MAX_RECEIVERS {
                self.receivers.insert(record.thread);
            }
            if let Some(queue) = record.queue {
                self.depths.record(u64::from(queue), 1);
            }
            if let Some(log) = &mut self.log {
                log.write(&record)?;
            }
        }
        Ok(())
    }

    /// Returns the threads that received.
    pub(super) fn receivers(&self) -> &BTreeSet<u32> {
        &self.receivers
    }

    /// Adds to a report what was counted so far.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(super) fn fill(&mut self, report: &mut TimingReport) {
        self.remember();
        let packets = self.histograms.packets();
        report.method = "ebpf".to_owned();
        report.packets_per_s = if report.seconds > 0.0 { packets as f64 / report.seconds } else { 0.0 };
        (report.messages, report.all) = self.histograms.report();
        report.service = self.service.report();
        report.queue = self.depths.report();
        report.drops.clone_from(&self.drops);
        report.packets_per_receive = if self.receive_calls > 0.0 { packets as f64 / self.receive_calls } else { 0.0 };
        report.notes.extend(self.notes.iter().cloned());
        report.notes.extend(self.cost.map(|cost| cost_note(cost, report)));
        if packets > 0 && !report.all.parts.contains_key(Part::Application.key()) {
            report.notes.push(
                "no packet was sent that the probe could see, so T_sip and K_snd are unknown: the program only receives, or \
                 sends by raw sockets (Kamailio: set udp4_raw=0)"
                    .to_owned(),
            );
        }
        if self.lost_events > 0 {
            report.notes.push(format!(
                "{} of the probe did not fit into its buffer: some packets are missing or have no K_stack, K_sockq and K_copy; \
                 give this command a processor of its own (taskset), or measure less load",
                count(self.lost_events, "event")
            ));
        }
        if self.unpaired > 0 {
            report.notes.push(format!("the arrival of {} was not seen", count(self.unpaired, "packet")));
        }
    }

    /// Writes the end of the log.
    pub(super) fn finish_log(&mut self, report: &TimingReport) -> Result<(), Failure> {
        let footer = LogFooter {
            seconds: report.seconds,
            cpu: report.cpu,
            lost_events: self.lost_events,
            drops: self.drops.clone(),
        };
        self.log.take().map_or(Ok(()), |log| log.finish(&footer))
    }
}

/// Says what the probe costs.
fn cost_note(processors: f64, report: &TimingReport) -> String {
    let mut note = format!("the probe's own programs used at least {processors:.3} processors");
    if report.packets_per_s > 0.0 {
        note += &format!(", {:.1} µs a packet", processors * 1e6 / report.packets_per_s);
    }
    if let Some(cpu) = report.cpu.filter(|cpu| *cpu > 0.0) {
        let share = processors / cpu;
        note += &format!(", {:.0} % of the program's processor time", share * 100.0);
        if share > NOTICED_COST {
            note += ": the program is slower than without it; measure shorter (--duration 2s), or with less load";
        }
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_changes_the_measurement_is_told_with_a_remedy() {
        let report = TimingReport { packets_per_s: 50_000.0, cpu: Some(1.0), ..TimingReport::default() };
        let said = cost_note(0.25, &report);
        assert!(said.contains("0.250 processors, 5.0 µs a packet, 25 % of the program's"), "{said}");
        assert!(said.contains("measure shorter (--duration 2s)"), "{said}");
        assert!(!cost_note(0.05, &report).contains("measure shorter"));
        assert!(cost_note(0.05, &TimingReport::default()).ends_with("0.050 processors"));
    }
}
