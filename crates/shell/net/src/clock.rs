//! Clocks: monotonic time for all timers, and conversion from real time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strowger_foundation::{Timestamp, WallTime};

/// A point in real time, as used in kernel packet timestamps: nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RealNanos(pub u64);

/// The process's monotonic clock (`CLOCK_MONOTONIC`). Create one at startup and give every worker a copy, so that
/// their [`Timestamp`]s share an origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Creates a clock whose origin, [`Timestamp::ZERO`], is now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Creates a clock whose origin lies before now: that of a process that this one replaces, whose [`Timestamp`]s stay
    /// valid. `None` if the machine has not run so long.
    #[must_use]
    pub fn started_before(age: Duration) -> Option<Self> {
        Some(Self { origin: Instant::now().checked_sub(age)? })
    }

    /// Returns the monotonic time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Reads both clocks together. Call it once per batch, just after receiving it.
    #[must_use]
    pub fn pair(&self) -> ClockPair {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let real = RealNanos(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX));
        ClockPair { monotonic: self.now(), real }
    }
}

/// The same moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// The moment in monotonic time.
    pub monotonic: Timestamp,
    /// The same moment in real time.
    pub real: RealNanos,
}

impl ClockPair {
    /// Converts a packet's arrival time to monotonic time. A packet without a timestamp gets the pair's own time.
    ///
    /// The result is never later than the pair: a timestamp in the future, which occurs after real time was set back,
    /// counts as no waiting time. If real time is set forward, packets queued at that moment look older than they
    /// are, once.
    #[must_use]
    pub fn arrival(&self, stamp: Option<RealNanos>) -> Timestamp {
        let waited = stamp.map_or(0, |stamp| self.real.0.saturating_sub(stamp.0));
        Timestamp::from_nanos(self.monotonic.as_nanos().saturating_sub(waited))
    }

    /// Converts a monotonic time to real time. Times that must keep their order are converted by one pair: the two
    /// clocks are read microseconds apart.
    #[must_use]
    pub fn real_time(&self, at: Timestamp) -> RealNanos {
        let (own, at) = (self.monotonic.as_nanos(), at.as_nanos());
        let since_pair = at.saturating_sub(own);
        RealNanos(self.real.0.saturating_add(since_pair).saturating_sub(own.saturating_sub(at)))
    }

    /// Returns the pair's real time in whole seconds.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        WallTime(self.real.0 / 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: ClockPair =
        ClockPair { monotonic: Timestamp::from_millis(500), real: RealNanos(1_700_000_000_000_000_000) };

    #[test]
    fn stamps_convert_to_monotonic_time() {
        let stamp = RealNanos(PAIR.real.0 - 20_000_000);
        assert_eq!(PAIR.arrival(Some(stamp)), Timestamp::from_millis(480));
        assert_eq!(PAIR.arrival(None), PAIR.monotonic);
        assert_eq!(PAIR.wall(), WallTime(1_700_000_000));
        assert_eq!(PAIR.real_time(Timestamp::from_millis(480)), stamp);
        assert_eq!(PAIR.real_time(Timestamp::from_millis(501)), RealNanos(PAIR.real.0 + 1_000_000));
    }

    #[test]
    fn stamps_in_the_future_or_before_the_origin_are_clamped() {
        assert_eq!(PAIR.arrival(Some(RealNanos(PAIR.real.0 + 1))), PAIR.monotonic);
        assert_eq!(PAIR.arrival(Some(RealNanos(0))), Timestamp::ZERO);
    }

    #[test]
    fn the_clock_does_not_run_backwards() {
        let clock = Clock::start();
        let first = clock.now();
        let pair = clock.pair();
        assert!(first <= pair.monotonic);
        assert!(pair.monotonic <= clock.now());
        assert!(pair.wall() > WallTime(1_600_000_000));
    }
}
