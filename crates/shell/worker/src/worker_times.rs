//! Times of one worker's packets, as it reports them.

use strowger_net as net;
use strowger_timing::{QueueDepths, RecordedHistograms, TimingHistograms};

use crate::status::Counters;

/// The times of one worker's packets since it started, with the counters of what was dropped. The histograms can be
/// megabytes, so the worker does not copy them.
#[derive(Clone, Debug)]
pub(crate) struct WorkerTimes {
    pub(crate) histograms: RecordedHistograms,
    pub(crate) counts: ReceiveCounts,
    pub(crate) net: net::Counters,
    pub(crate) worker: Counters,
    /// Whether the kernel reports when a sent packet reached the device.
    pub(crate) has_send_stamps: bool,
    /// Number of these reports that were expected and did not come.
    pub(crate) lost_send_stamps: u64,
}

/// A copy of what was measured since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct PacketTimes {
    pub(crate) histograms: TimingHistograms,
    pub(crate) counts: ReceiveCounts,
}

/// What was received since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiveCounts {
    pub(crate) depths: QueueDepths,
    /// Number of receive calls that returned datagrams.
    pub(crate) receives: u64,
    /// Number of datagrams that they returned.
    pub(crate) datagrams: u64,
}

impl PacketTimes {
    /// Adds all values of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.histograms.add(&other.histograms);
        self.counts.add(&other.counts);
    }

    /// Returns the values added since `earlier`, an earlier copy.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self { histograms: self.histograms.since(&earlier.histograms), counts: self.counts.since(&earlier.counts) }
    }
}

impl ReceiveCounts {
    fn add(&mut self, other: &Self) {
        self.depths.add(&other.depths);
        self.receives += other.receives;
        self.datagrams += other.datagrams;
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            depths: self.depths.since(&earlier.depths),
            receives: self.receives.saturating_sub(earlier.receives),
            datagrams: self.datagrams.saturating_sub(earlier.datagrams),
        }
    }
}
