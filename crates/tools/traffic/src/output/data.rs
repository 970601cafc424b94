//! A report's JSON as values. What an older or a shorter report lacks is empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::statistics::ConfidenceInterval;

/// Why something is no report; the text names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportError(pub String);

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReportError {}

/// What is shown of a run's report.
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

/// What became of calls under load.
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

/// How phones came back after a power cut.
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
    /// Seconds from the beginning, and the phones that had been registered by then.
    pub course: Vec<(f64, u64)>,
}

/// When a share of all phones was registered.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct RecoveryTime {
    pub percent: f64,
    pub s: Option<f64>,
}

/// What each of many did how often.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Counts {
    pub mean: f64,
    pub p50: u32,
    pub p99: u32,
    pub max: u32,
}

/// What became of the calls of one script.
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

/// What became of the requests of one method.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Transactions {
    pub all: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub share: f64,
}

/// The answers of a replay beside those of its record.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Those that are the same.
    pub same: u64,
    /// Those that are not.
    pub differs: Vec<Difference>,
}

/// Answers that differ from the record.
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
    /// Reads a report.
    ///
    /// # Errors
    /// Where it is none of ours.
    pub fn from_json(report: &Value) -> Result<Self, ReportError> {
        let remedy = "give the file that `load run --json FILE` wrote";
        if report.get("carried").is_none() || report.get("offered").is_none() {
            return Err(ReportError(format!("this is no report of a run; {remedy}")));
        }
        Self::deserialize(report).map_err(|error| ReportError(format!("this report cannot be read: {error}; {remedy}")))
    }

    /// The times to the 2xx of the request that the run is about.
    #[must_use]
    pub fn latency(&self) -> Option<&AnswerRow> {
        let successes = || self.answers.iter().filter(|row| row.answer == "2xx" && row.us.count > 0);
        let known = successes().find(|row| row.method == self.intervals.latency_of);
        known
            .or_else(|| successes().find(|row| row.method == "INVITE"))
            .or_else(|| successes().max_by_key(|row| row.us.count))
    }
}

/// Where and when a run was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The model of its processors.
    pub processor: String,
    /// How many the run could use.
    pub processors: usize,
    /// Its kernel's release.
    pub kernel: String,
    /// When the run had ended, in seconds since 1970.
    pub ended_at_s: u64,
}

impl Machine {
    /// This one, now.
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

/// The times from one method's requests to one kind of answer.
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

/// The called end, where it is here.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct Callee {
    pub service_drops: u64,
}

/// What the generator says of itself.
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
    /// As the RFC abbreviates it.
    pub name: String,
    /// What that means.
    pub title: String,
    /// Its section in the RFC.
    pub section: String,
    /// `%`, `ms` or `s`.
    pub unit: String,
    /// The ratio, or the mean; nothing where it is undefined.
    pub value: Option<f64>,
    /// Of times: how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Of times: the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// Of times: what one in twenty exceeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    /// Of times: what one in a hundred exceeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Of times: the longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// How the phase went, slice by slice.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Intervals {
    /// How wide a slice is, in seconds.
    pub width_s: f64,
    /// The method whose times to the 2xx are meant.
    pub latency_of: String,
    /// The slices in their order.
    pub rows: Vec<IntervalRow>,
}

/// One slice; times in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct IntervalRow {
    /// Its end, in seconds since the phase began.
    pub at_s: f64,
    pub offered: u64,
    pub refused: u64,
    pub carried: u64,
    pub lost: u64,
    pub failed: u64,
    /// Going on at its end.
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

/// How often which time occurred, from one method's requests to one kind of answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    /// The method.
    pub method: String,
    /// The kind of answer.
    pub answer: String,
    /// Times in microseconds (the upper end of a bucket of one percent), and how many.
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
    /// Neighbouring batches resemble each other: the interval is too narrow, the run too short.
    pub is_correlated: bool,
}

impl From<ConfidenceInterval> for Confidence {
    fn from(interval: ConfidenceInterval) -> Self {
        let ConfidenceInterval { mean, half_width, level, batches, .. } = interval;
        Self { mean, half_width, level, batches, is_correlated: interval.is_correlated() }
    }
}

/// What the server used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// The name of its process.
    pub name: String,
    /// The number of it.
    pub pid: u32,
    /// It, and its children, and others that were named: at most.
    pub processes: u64,
    /// It ended before the run did.
    pub is_gone: bool,
    /// Processors kept busy on average; 1.0 is one whole processor.
    pub processors: f64,
    /// Its processor time for a call that was carried, in microseconds.
    pub cpu_us_per_call: f64,
    /// Context switches for a call that was carried.
    pub switches_per_call: f64,
    /// Datagrams that found no room in its sockets, where that could be seen.
    pub drops: Option<u64>,
    /// The most memory that it had resident, in bytes.
    pub peak_bytes: u64,
    /// Stretch by stretch.
    pub rows: Vec<ServerRow>,
}

/// What the server used in one stretch; switches and interrupts a second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is what the report names so")]
pub struct ServerRow {
    /// Its end, in seconds since the phase began.
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
