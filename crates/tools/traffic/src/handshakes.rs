//! Handshakes of an end: how long they took, how many continued an earlier session, and why others failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::time_histogram::{TimeHistogram, times_json};

/// Maximum number of different reasons; further ones count as [`OTHER_REASONS`].
const MAX_REASONS: usize = 16;
const OTHER_REASONS: &str = "other reasons";

/// What a report declares if the server's certificate is accepted unchecked.
pub(crate) const NOT_CHECKED: &str = "not checked (--no-verify)";

/// Counts of handshakes on the connections that an end opened.
#[derive(Clone, Debug, Default)]
pub struct Handshakes {
    /// Times from the beginning of a connection until it can carry messages: TCP, TLS and the upgrade to a WebSocket.
    pub times: TimeHistogram,
    /// Those that continued an earlier TLS session.
    pub resumed: u64,
    /// Failed ones by reason.
    pub failures: BTreeMap<String, u64>,
}

impl Handshakes {
    /// Adds one that succeeded.
    pub(crate) fn on_success(&mut self, time: Duration, is_resumed: bool) {
        self.times.record(time);
        self.resumed += u64::from(is_resumed);
    }

    /// Adds one that failed.
    pub(crate) fn on_failure(&mut self, reason: &str) {
        self.add_failures(reason, 1);
    }

    fn add_failures(&mut self, reason: &str, count: u64) {
        let has_room = self.failures.len() < MAX_REASONS || self.failures.contains_key(reason);
        *self.failures.entry(if has_room { reason } else { OTHER_REASONS }.to_owned()).or_default() += count;
    }

    /// Returns the number of those that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Returns whether there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.count() == 0 && self.failures.is_empty()
    }

    /// Returns the share of the succeeded ones that continued an earlier session.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn resumed_share(&self) -> f64 {
        self.resumed as f64 / self.times.count().max(1) as f64
    }

    /// Adds those of another.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.resumed += other.resumed;
        for (reason, count) in &other.failures {
            self.add_failures(reason, *count);
        }
    }

    /// Returns the lines of a report; `elapsed` is the measured time.
    pub(crate) fn to_text(&self, elapsed: Duration) -> String {
        let mut text = String::new();
        if self.is_empty() {
            return text;
        }
        let (count, times) = (self.times.count(), &self.times);
        if count == 0 {
            text.push_str("  handshakes: none was completed\n");
        } else {
            text.push_str(&format!(
                "  handshakes {count} ({:.1}/s)  mean {:.1?}  p50 {:.1?}  p99 {:.1?}  max {:.1?}, resumed {:.1} %, failed {}\n",
                per_second(count, elapsed),
                times.mean(),
                times.quantile(0.5),
                times.quantile(0.99),
                times.max(),
                100.0 * self.resumed_share(),
                self.failed()
            ));
        }
        for (reason, count) in &self.failures {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {count} handshakes failed: {reason}");
        }
        text
    }

    /// Returns the figures for a report's JSON.
    pub(crate) fn to_json(&self, elapsed: Duration) -> Value {
        json!({
            "count": self.times.count(),
            "per_s": per_second(self.times.count(), elapsed),
            "us": times_json(&self.times),
            "resumed": self.resumed,
            "resumed_share": self.resumed_share(),
            "failed": self.failed(),
            "failures": self.failures,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_bounded_and_no_failure_is_lost() {
        let (mut one, mut other) = (Handshakes::default(), Handshakes::default());
        for number in 0..40 {
            one.on_failure(&format!("reason {number}"));
            other.on_failure(&format!("reason {}", number + 20));
        }
        one.merge(&other);
        assert_eq!((one.failed(), one.failures.len()), (80, MAX_REASONS + 1));
        assert!(one.to_text(Duration::from_secs(1)).contains("other reasons"));
    }

    #[test]
    fn figures_are_told() {
        let mut handshakes = Handshakes::default();
        assert_eq!(handshakes.to_text(Duration::from_secs(1)), "");
        for is_resumed in [true, true, true, false] {
            handshakes.on_success(Duration::from_millis(2), is_resumed);
        }
        handshakes.on_failure("it refused: alert X");
        let text = handshakes.to_text(Duration::from_secs(2));
        assert!(text.contains("handshakes 4 (2.0/s)") && text.contains("resumed 75.0 %, failed 1"), "{text}");
        assert!(text.contains("1 handshakes failed: it refused: alert X"), "{text}");
    }
}
