//! Counts of durations that people notice, such as the setup of calls.

use core::time::Duration;

use crate::time::Timestamp;

/// Number of buckets of a [`DurationHistogram`].
const DURATION_BUCKETS: usize = 19;

/// Counts of durations below 1, 2, 4, … 131,072 ms and above, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    counts: [u64; DURATION_BUCKETS],
    sum_ms: u64,
}

impl DurationHistogram {
    /// Records the time between two moments; zero if `end` is before `begin`.
    #[inline]
    pub fn record(&mut self, begin: Timestamp, end: Timestamp) {
        // A `Duration` would cost two more divisions.
        let ms = end.as_nanos().saturating_sub(begin.as_nanos()) / 1_000_000;
        // Bucket n has the numbers of n bits.
        let bucket = (u64::BITS - ms.leading_zeros()) as usize;
        if let Some(count) = self.counts.get_mut(bucket.min(DURATION_BUCKETS - 1)) {
            *count = count.wrapping_add(1);
        }
        self.sum_ms = self.sum_ms.wrapping_add(ms);
    }

    /// Adds all durations of `other`.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours = ours.wrapping_add(*theirs));
        self.sum_ms = self.sum_ms.wrapping_add(other.sum_ms);
    }

    /// Returns the number of durations of each bucket: of those below each of [`bounds`](Self::bounds) and not below
    /// the one before, and last of all others.
    #[must_use]
    pub const fn counts(&self) -> &[u64; DURATION_BUCKETS] {
        &self.counts
    }

    /// Returns the sum of the durations, each rounded down to milliseconds.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_millis(self.sum_ms)
    }

    /// Returns the bounds of the buckets; the last bucket has none.
    pub fn bounds() -> impl Iterator<Item = Duration> {
        (0..DURATION_BUCKETS - 1).map(|bits| Duration::from_millis(1 << bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_below_their_bound() {
        let mut histogram = DurationHistogram::default();
        for ms in [0, 1, 3, 131_071, 131_072, 10_000_000] {
            histogram.record(Timestamp::from_millis(7), Timestamp::from_millis(7 + ms));
        }
        histogram.record(Timestamp::from_nanos(1), Timestamp::from_nanos(1_000_000));
        let mut expected = [0; DURATION_BUCKETS];
        (expected[0], expected[1], expected[2], expected[17], expected[18]) = (2, 1, 1, 1, 2);
        assert_eq!((histogram.counts(), histogram.sum()), (&expected, Duration::from_millis(10_262_147)));
        let mut double = histogram;
        double.add(&histogram);
        assert_eq!((double.counts()[0], double.sum()), (4, 2 * histogram.sum()));
        let bounds: Vec<Duration> = DurationHistogram::bounds().collect();
        assert_eq!(
            (bounds.len() + 1, bounds.first(), bounds.last()),
            (DURATION_BUCKETS, Some(&Duration::from_millis(1)), Some(&Duration::from_millis(131_072)))
        );
    }
}
