//! Messages about the times of packets.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strowger_timing::TimingReport;

/// Period of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimingRequest {
    /// Length of the measurement, ms; without it, the measurement ends when the client disconnects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Time between two updates, ms, at least 100. Default: of a measurement with an end, only the last one is sent;
    /// otherwise one each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// Whether to include everything since the server started.
    #[serde(default)]
    pub since_start: bool,
}

impl TimingRequest {
    /// Time between two updates of a measurement without an end.
    const USUAL_INTERVAL: Duration = Duration::from_secs(1);
    const MIN_INTERVAL: Duration = Duration::from_millis(100);

    /// Returns when the update after the one at `last` is due; `None` if there is only the one at the end.
    pub(crate) fn next_update(&self, last: Instant) -> Option<Instant> {
        last.checked_add(self.interval()?)
    }

    /// Returns how long there may be no update.
    pub(crate) fn longest_silence(&self) -> Duration {
        let end = self.for_ms.map(Duration::from_millis);
        let interval = self.interval();
        interval.into_iter().chain(end).min().unwrap_or_default()
    }

    fn interval(&self) -> Option<Duration> {
        let asked = self.every_ms.map(|every| Duration::from_millis(every).max(Self::MIN_INTERVAL));
        asked.or_else(|| self.for_ms.is_none().then_some(Self::USUAL_INTERVAL))
    }
}

/// Times since the beginning of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimingUpdate {
    /// The times. Only the last update has the histograms.
    pub report: TimingReport,
    /// Whether this is the last update.
    pub is_last: bool,
}
