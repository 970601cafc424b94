//! Monotonic and wall time as plain values. The core never reads a clock; time is passed in.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment on the monotonic clock, in nanoseconds since an origin that the shell chooses.
///
/// Deadlines are monotonic only, so a jump of the wall clock expires nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than any deadline.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a moment `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates a moment `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the time since `earlier`, or zero if that is not earlier.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        let nanos = rhs.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(rhs.subsec_nanos()));
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, rhs: Self) -> Duration {
        self.saturating_since(rhs)
    }
}

/// Wall-clock time in whole seconds since 1970-01-01 UTC. Used for what leaves the machine (Date, logs, storage),
/// never for deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO - Timestamp::MAX, Duration::ZERO);
        assert_eq!(Timestamp::from_millis(1500) - Timestamp::from_millis(500), Duration::from_secs(1));
    }
}
