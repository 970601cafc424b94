//! A histogram of times.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Histogram of times in nanoseconds, exact to one percent, from 0.1 µs to a week; longer times count as a week.
#[derive(Clone, Debug)]
pub struct TimeHistogram {
    all: Histogram<u32>,
    overflow: u64,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "the bounds are constants that the library takes")]
        let all = Histogram::new_with_bounds(100, LONGEST_NANOS, 2).expect("sound bounds");
        Self { all, overflow: 0 }
    }
}

impl TimeHistogram {
    /// Adds one.
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.overflow += u64::from(nanos > LONGEST_NANOS);
        self.all.saturating_record(nanos.min(LONGEST_NANOS));
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.all.len()
    }

    /// Returns how many times exceeded the range; quantiles and the mean are then too low.
    #[must_use]
    pub const fn beyond(&self) -> u64 {
        self.overflow
    }

    /// Returns the time that a share (0 to 1) of the times does not exceed; zero if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        if self.all.is_empty() { Duration::ZERO } else { Duration::from_nanos(self.all.value_at_quantile(share)) }
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::try_from_secs_f64(self.all.mean() / 1e9).unwrap_or_default()
    }

    /// Returns how many times do not exceed `limit`.
    #[must_use]
    pub fn within(&self, limit: Duration) -> u64 {
        self.all.count_between(0, u64::try_from(limit.as_nanos()).unwrap_or(LONGEST_NANOS).min(LONGEST_NANOS))
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.all.max())
    }

    /// Returns the histogram itself, in nanoseconds.
    #[must_use]
    pub const fn histogram(&self) -> &Histogram<u32> {
        &self.all
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so this cannot fail.
        let _ = self.all.add(&other.all);
        self.overflow += other.overflow;
    }
}

/// Times in microseconds.
pub(crate) fn times_json(times: &TimeHistogram) -> Value {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let at = |share| us(times.quantile(share));
    json!({ "count": times.count(), "mean": if times.count() > 0 { us(times.mean()) } else { 0.0 }, "p50": at(0.5), "p90": at(0.9),
        "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": us(times.max()), "beyond": times.beyond() })
}

/// Longest time that the histogram distinguishes: a week.
pub(crate) const LONGEST_NANOS: u64 = 7 * 86_400 * 1_000_000_000;
