//! The values of a report's JSON. What an older or shorter report lacks is empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::statistics::ConfidenceInterval;

/// Why a file is not a report; the text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportError(pub String);

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReportError {}

/// The shown part of a run's report.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct RunReport {
    pub workload: String,
    pub arrivals: String,
    pub to: String,
    pub seed: u64,
    pub declared: BTreeMap<String, String>,
    pub was_stopped: bool,
    pub broken_off: Option<String>,
    pub machine: Machine,
    pub elapsed_s: f64,
    pub offered: u64,
    pub refused: u64,
    pub sent: u64,
    pub carried: u64,
    pub lost: u64,
    pub failed: u64,
    pub unfinished: u64,
    pub offered_per_s: f64,
    pub carried_per_s: f64,
    pub carried_share: f64,
    pub failures: BTreeMap<String, u64>,
    pub answers: Vec<AnswerRow>,
    pub answers_from_due: Vec<AnswerRow>,
    pub caution: Option<String>,
    pub callee: Callee,
    pub handshakes: Handshakes,
    pub messages_sent: BTreeMap<String, u64>,
    pub messages_received: BTreeMap<String, u64>,
    pub repeats_sent: u64,
    pub repeats_received: u64,
    pub unexpected: u64,
    pub samples: Vec<String>,
    pub generator: Generator,
    pub rfc6076: Vec<MetricRow>,
    pub intervals: Intervals,
    pub distributions: Vec<Distribution>,
    pub confidence: BTreeMap<String, Confidence>,
    pub server: Option<Server>,
    pub scripts: Vec<ScriptRow>,
    pub transactions: BTreeMap<String, Transactions>,
    pub record: Option<Record>,
    pub calls: Option<Calls>,
    pub recovery: Option<Recovery>,
}

/// Handshakes of connections over TLS and WebSockets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Handshakes {
    pub count: u64,
    pub per_s: f64,
    pub us: Latency,
    pub resumed: u64,
    pub resumed_share: f64,
    pub failed: u64,
    pub failures: BTreeMap<String, u64>,
}

/// Outcomes of calls under load.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Calls {
    pub begun: u64,
    pub answered: u64,
    pub ended_by_bye: u64,
    pub ended_otherwise: u64,
    pub refused_503: u64,
    pub timed_out: u64,
    pub timed_out_408: u64,
    pub refused_otherwise: u64,
    pub going_on: u64,
    pub tried_again: u64,
    pub setup_us: Latency,
}

/// Recovery of phones after a power cut.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Recovery {
    pub phones: u64,
    pub registered: u64,
    pub times: Vec<RecoveryTime>,
    pub attempts: Counts,
    pub requests: Counts,
    pub refreshed: u64,
    pub refreshes_failed: u64,
    /// Seconds from the beginning, and the phones registered by then.
    pub course: Vec<(f64, u64)>,
}

/// Time at which a share of all phones was registered.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct RecoveryTime {
    pub percent: f64,
    pub s: Option<f64>,
}

/// Distribution of counts per user.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Counts {
    pub mean: f64,
    pub p50: u32,
    pub p99: u32,
    pub max: u32,
}

/// Outcomes of the calls of one script.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct ScriptRow {
    pub script: String,
    pub end: String,
    pub sent: u64,
    pub carried: u64,
    pub lost: u64,
    pub failed: u64,
    pub unfinished: u64,
}

/// Outcomes of the requests of one method.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Transactions {
    pub all: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub share: f64,
}

/// Responses of a replay compared with those of its record.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Equal responses.
    pub same: u64,
    /// Different responses.
    pub differs: Vec<Difference>,
}

/// Responses that differ from the record.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Difference {
    pub method: String,
    pub recorded: String,
    pub got: String,
    pub count: u64,
}

impl RunReport {
    /// Parses a report.
    ///
    /// # Errors
    /// If it is not one of ours.
    pub fn from_json(report: &Value) -> Result<Self, ReportError> {
        let remedy = "give a file written by `load run --json FILE`";
        if report.get("carried").is_none() || report.get("offered").is_none() {
            return Err(ReportError(format!("this is not the report of a run; {remedy}")));
        }
        Self::deserialize(report).map_err(|error| ReportError(format!("this report cannot be read: {error}; {remedy}")))
    }

    /// Returns the times to the 2xx of the run's main request.
    #[must_use]
    pub fn latency(&self) -> Option<&AnswerRow> {
        let successes = || self.answers.iter().filter(|row| row.answer == "2xx" && row.us.count > 0);
        let known = successes().find(|row| row.method == self.intervals.latency_of);
        known
            .or_else(|| successes().find(|row| row.method == "INVITE"))
            .or_else(|| successes().max_by_key(|row| row.us.count))
    }
}

/// Where and when a run took place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// CPU model.
    pub processor: String,
    /// CPUs available to the run.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
    /// End of the run, in seconds since 1970.
    pub ended_at_s: u64,
}

impl Machine {
    /// Returns this machine and the current time.
    #[must_use]
    pub fn here() -> Self {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            processor: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            ended_at_s: since.map_or(0, |since| since.as_secs()),
        }
    }
}

/// Times from one method's requests to one class of response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct AnswerRow {
    pub method: String,
    pub answer: String,
    pub us: Latency,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Latency {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// Called end, if it is in this process.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Callee {
    pub service_drops: u64,
}

/// The generator's own figures.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Generator {
    pub lateness_us: Latency,
    pub unread_us: Latency,
    pub resend_lateness_us: Latency,
    pub cpu_us_per_call: f64,
    pub kernel_drops: u64,
    pub send_failures: u64,
    pub joined: u64,
    pub handed_over: u64,
    pub handover_drops: u64,
    pub forgotten: u64,
    pub was_bottleneck: bool,
    pub bottleneck: Option<String>,
}

/// A metric of RFC 6076: a ratio in percent, or times in its unit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricRow {
    /// Abbreviation in the RFC.
    pub name: String,
    /// Full name.
    pub title: String,
    /// Section of the RFC.
    pub section: String,
    /// `%`, `ms` or `s`.
    pub unit: String,
    /// Ratio, or mean; `None` if undefined.
    pub value: Option<f64>,
    /// For times: number of samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// For times: median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// For times: 95th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    /// For times: 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// For times: maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// Time series of the phase, in slices.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Intervals {
    /// Width of a slice, in seconds.
    pub width_s: f64,
    /// Method whose times to the 2xx are given.
    pub latency_of: String,
    /// Slices in order.
    pub rows: Vec<IntervalRow>,
}

/// One slice; times in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct IntervalRow {
    /// End, in seconds since the phase began.
    pub at_s: f64,
    pub offered: u64,
    pub refused: u64,
    pub carried: u64,
    pub lost: u64,
    pub failed: u64,
    /// Calls in progress at its end.
    pub unfinished: u64,
    pub repeats: u64,
    pub answered: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub late_p99_us: f64,
    pub unread_p99_us: f64,
}

/// Distribution of the times from one method's requests to one class of response.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    /// Method.
    pub method: String,
    /// Class of response.
    pub answer: String,
    /// Times in microseconds (the upper end of a bucket of one percent), with their numbers.
    pub us: Vec<(f64, u64)>,
}

/// A mean with its confidence interval from batch means.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Confidence {
    pub mean: f64,
    pub half_width: f64,
    pub level: f64,
    pub batches: usize,
    /// Whether successive batches are correlated: the interval is then too narrow and the run too short.
    pub is_correlated: bool,
}

impl From<ConfidenceInterval> for Confidence {
    fn from(interval: ConfidenceInterval) -> Self {
        let ConfidenceInterval { mean, half_width, level, batches, .. } = interval;
        Self { mean, half_width, level, batches, is_correlated: interval.is_correlated() }
    }
}

/// Resource use of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Process name.
    pub name: String,
    /// Process ID.
    pub pid: u32,
    /// Maximum number of processes: the server, its children, and others that were named.
    pub processes: u64,
    /// Processes that replaced it during the run, in order.
    pub successors: Vec<u32>,
    /// Whether it, or the last of these, ended before the run.
    pub is_gone: bool,
    /// Average CPU use; 1.0 is one whole CPU.
    pub processors: f64,
    /// CPU time per carried call, in microseconds.
    pub cpu_us_per_call: f64,
    /// Context switches per carried call.
    pub switches_per_call: f64,
    /// Datagrams dropped for lack of room in its sockets, if known.
    pub drops: Option<u64>,
    /// Peak resident memory, in bytes.
    pub peak_bytes: u64,
    /// Sampling intervals in order.
    pub rows: Vec<ServerRow>,
}

/// Resource use of the server in one sampling interval; switches and interrupts per second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct ServerRow {
    /// End, in seconds since the phase began.
    pub at_s: f64,
    pub user: f64,
    pub system: f64,
    pub resident_bytes: u64,
    pub voluntary_per_s: f64,
    pub involuntary_per_s: f64,
    pub interrupts_per_s: f64,
    pub soft_interrupts_per_s: f64,
    pub major_faults: u64,
    pub drops: Option<u64>,
    pub machine_drops: u64,
}
