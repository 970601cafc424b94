//! The report of times: what `--json` prints, and what tables, pages and `plan fit` read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::service_times::ServiceTime;

/// Times of a server's packets over some period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimingReport {
    /// How it was measured: `server` (by the server itself), `ebpf`, or `proc` (without eBPF).
    pub method: String,
    /// The program: its name and process, or its port.
    pub program: String,
    /// Length of the period, s.
    pub seconds: f64,
    /// Rate of packets received, 1/s.
    pub packets_per_s: f64,
    /// Rows by message type.
    pub messages: Vec<MessageReport>,
    /// All message types together.
    pub all: MessageReport,
    /// Service times by message type, and of `all`; empty if they were not measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service: BTreeMap<String, ServiceTime>,
    /// Packets in the sockets' queues, if they were counted.
    pub queue: Option<QueueDepth>,
    /// Number of packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Processor time of the program, processors: 1 is a whole one.
    pub cpu: Option<f64>,
    /// Share that was used of the processor time that the program can use for its packets: 1 is at its capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Mean number of packets returned by one receive call.
    pub packets_per_receive: f64,
    /// What the reader must know to judge the figures, such as parts that could not be measured and why.
    pub notes: Vec<String>,
}

impl TimingReport {
    /// Removes the histograms, which are most of a report's size.
    pub fn remove_histograms(&mut self) {
        let rows = self.messages.iter_mut().chain([&mut self.all]);
        rows.flat_map(|row| row.parts.values_mut()).for_each(|times| times.histogram = Vec::new());
    }
}

/// Times of packets of one type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MessageReport {
    /// The type: `INVITE`, `200 BYE`, …
    pub message: String,
    /// Number of packets.
    pub packets: u64,
    /// Distribution of each measured part, by [`Part::key`](crate::Part::key).
    pub parts: BTreeMap<String, Distribution>,
}

/// Number of packets in the sockets' queues, seen each time that the program received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueDepth {
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub max: u64,
}

/// Distribution of a part, µs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Variance, µs².
    pub variance_us2: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Counts of values up to each bound, ascending; empty ones are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bucket>,
}

/// Number of values in a range of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Upper bound, µs.
    pub up_to_us: f64,
    /// Number of values above the previous bound.
    pub count: u64,
}
