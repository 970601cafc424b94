//! Limits how often a repeated failure is logged.

use std::time::Duration;

use strowger_foundation::Timestamp;

/// Minimum time between logged failures of one kind. All are counted.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between log lines about one limit.
const LIMIT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Limits how often something is logged.
#[derive(Debug, Default)]
pub(crate) struct LogInterval {
    next: Timestamp,
    /// Number of failures since the last logged one.
    skipped: u64,
}

impl LogInterval {
    /// Returns the number of failures that were not logged, if this one may be.
    pub(crate) fn begin(&mut self, now: Timestamp) -> Option<u64> {
        self.begin_for(now, LOG_INTERVAL)
    }

    /// The same for something that a limit has refused, which may happen all the time.
    pub(crate) fn begin_limit(&mut self, now: Timestamp) -> Option<u64> {
        self.begin_for(now, LIMIT_LOG_INTERVAL)
    }

    fn begin_for(&mut self, now: Timestamp, interval: Duration) -> Option<u64> {
        if now < self.next {
            self.skipped += 1;
            return None;
        }
        self.next = now + interval;
        Some(std::mem::take(&mut self.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_once_a_second() {
        let mut log = LogInterval::default();
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        assert_eq!([0, 1, 999, 1000, 1001].map(|ms| log.begin(at(ms))), [Some(0), None, None, Some(2), None]);
        let mut log = LogInterval::default();
        assert_eq!([0, 1000, 9999, 10_000].map(|ms| log.begin_limit(at(ms))), [Some(0), None, None, Some(2)]);
    }
}
