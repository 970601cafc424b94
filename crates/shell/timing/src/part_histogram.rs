//! Histogram of one part of one message type.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::report::{Bucket, Distribution};
use crate::time_buckets::TimeBuckets;

/// Bins in each power of two: their width is 1.6 % of their value.
const BINS_PER_OCTAVE: u64 = 64;
/// Values below this have bins of 1 ns.
const LINEAR_NS: u64 = 2 * BINS_PER_OCTAVE;
/// Number of bins: for values up to 68 s; a longer one counts as that.
const BINS: usize = (LINEAR_NS + 29 * BINS_PER_OCTAVE) as usize;

/// Counts of times in bins of a constant relative width, with exact sums. It is recorded into several times for each
/// packet, so it stores nothing that reading can compute, and all in one piece of memory.
#[derive(Clone, Debug)]
pub(crate) struct PartHistogram {
    /// Sum, ns.
    sum: f64,
    /// Sum of squares, ns².
    squares: f64,
    counts: [u64; BINS],
}

impl PartHistogram {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self { sum: 0.0, squares: 0.0, counts: [0; BINS] })
    }

    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
    pub(crate) fn record(&mut self, nanos: u64, packets: u64) {
        self.counts[bin_of(nanos)] += packets;
        let sum = nanos as f64 * packets as f64;
        self.sum += sum;
        self.squares += sum * nanos as f64;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Subtracts an earlier copy.
    pub(crate) fn subtract(&mut self, earlier: &Self) {
        self.counts.iter_mut().zip(&earlier.counts).for_each(|(ours, before)| *ours = ours.saturating_sub(*before));
        self.sum -= earlier.sum;
        self.squares -= earlier.squares;
    }

    pub(crate) fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^53")]
    pub(crate) fn distribution(&self) -> Distribution {
        let count = self.len();
        let mean = self.sum / count.max(1) as f64;
        let quantile = |share: f64| self.quantile((share * count as f64).ceil() as u64);
        let bins = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Distribution {
            count,
            mean_us: mean / 1e3,
            variance_us2: (self.squares / count.max(1) as f64 - mean * mean).max(0.0) / 1e6,
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: self.quantile(count),
            histogram: bins.map(|(bin, count)| Bucket { up_to_us: upper_us(bin), count: *count }).collect(),
        }
    }

    /// Returns the upper bound of the bin of the value with this rank, which counts from 1, µs.
    fn quantile(&self, rank: u64) -> f64 {
        let mut below = 0;
        let bin = self.counts.iter().position(|count| {
            below += count;
            below >= rank.max(1)
        });
        bin.map_or(0.0, upper_us)
    }
}

/// Maximum number of attempts to copy a [`SharedPartHistogram`] while nothing is recorded. One takes some µs.
const MAX_COPIES: usize = 16;

/// A [`PartHistogram`] that one thread records and others read meanwhile. Only one thread may record: values are loaded
/// and stored, not added atomically, which costs no more than recording into a plain one.
#[derive(Debug)]
pub(crate) struct SharedPartHistogram {
    /// Bits of the sum, ns.
    sum: AtomicU64,
    /// Bits of the sum of squares, ns².
    squares: AtomicU64,
    counts: [AtomicU64; BINS],
}

impl SharedPartHistogram {
    pub(crate) fn new() -> Box<Self> {
        let zero = || AtomicU64::new(0);
        Box::new(Self { sum: zero(), squares: zero(), counts: [const { AtomicU64::new(0) }; BINS] })
    }

    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "a time of 100 days is exact")]
    pub(crate) fn record(&self, nanos: u64, packets: u64) {
        let count = &self.counts[bin_of(nanos)];
        count.store(count.load(Relaxed) + packets, Relaxed);
        let sum = nanos as f64 * packets as f64;
        for (total, more) in [(&self.sum, sum), (&self.squares, sum * nanos as f64)] {
            total.store((f64::from_bits(total.load(Relaxed)) + more).to_bits(), Relaxed);
        }
    }

    /// Returns a copy. The packet that is being recorded may be in the counts and not yet in the sums, or the reverse;
    /// so may others if times are recorded during each of the [`MAX_COPIES`] attempts.
    pub(crate) fn copy(&self) -> Box<PartHistogram> {
        let mut copy = PartHistogram::new();
        for _ in 0..MAX_COPIES {
            let sums = self.sums();
            (copy.sum, copy.squares) = sums;
            copy.counts.iter_mut().zip(&self.counts).for_each(|(ours, count)| *ours = count.load(Relaxed));
            if self.sums() == sums {
                break;
            }
        }
        copy
    }

    /// Returns the sum and the sum of squares. They are the same as before if nothing was recorded, or only zeros.
    fn sums(&self) -> (f64, f64) {
        (f64::from_bits(self.sum.load(Relaxed)), f64::from_bits(self.squares.load(Relaxed)))
    }

    /// Returns the number of times up to each bound, ns, and above all. A bin belongs to the bucket of its largest
    /// time, so that a bucket is exact to 1.6 % of its bound.
    pub(crate) fn buckets(&self, bounds_ns: &[u64]) -> TimeBuckets {
        let mut buckets =
            TimeBuckets { sum_s: f64::from_bits(self.sum.load(Relaxed)) / 1e9, counts: vec![0; bounds_ns.len() + 1] };
        let mut first = 0;
        for (bucket, bound) in bounds_ns.iter().enumerate() {
            let end = bin_of(bound.saturating_add(1)).max(first);
            buckets.counts[bucket] = self.counts[first..end].iter().map(|count| count.load(Relaxed)).sum();
            first = end;
        }
        buckets.counts[bounds_ns.len()] = self.counts[first..].iter().map(|count| count.load(Relaxed)).sum();
        buckets
    }
}

/// Returns the bin of a time.
#[inline]
fn bin_of(nanos: u64) -> usize {
    // A value of the linear range has no octave to subtract.
    let octave = u64::from((nanos | (LINEAR_NS - 1)).ilog2() - (LINEAR_NS - 1).ilog2());
    ((octave * BINS_PER_OCTAVE + (nanos >> octave)) as usize).min(BINS - 1)
}

/// Returns the largest time of a bin, µs.
#[expect(clippy::cast_precision_loss, reason = "bounds are far below 2^53")]
fn upper_us(bin: usize) -> f64 {
    let bin = bin as u64;
    let octave = (bin / BINS_PER_OCTAVE).saturating_sub(1);
    let upper = ((bin - octave * BINS_PER_OCTAVE + 1) << octave) - 1;
    upper as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bins_follow_each_other_without_gaps() {
        for (bin, next) in (0..BINS - 1).zip(1..) {
            let upper = (upper_us(bin) * 1e3).round() as u64;
            assert_eq!((bin_of(upper), bin_of(upper + 1)), (bin, next));
        }
        assert_eq!((bin_of(0), bin_of(u64::MAX)), (0, BINS - 1));
        assert!(upper_us(BINS - 1) > 60e6);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_two_percent(mut values in prop::collection::vec(1_u64..60_000_000_000, 1..200)) {
            let mut histogram = PartHistogram::new();
            values.iter().for_each(|value| histogram.record(*value, 1));
            values.sort_unstable();
            let found = histogram.distribution();
            let median = values[(values.len() - 1) / 2] as f64 / 1e3;
            prop_assert!((median..=median * 1.02).contains(&found.p50_us), "{median} {}", found.p50_us);
            let max = values[values.len() - 1] as f64 / 1e3;
            prop_assert!((max..=max * 1.02).contains(&found.max_us));
            prop_assert_eq!(found.count, values.len() as u64);
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64 / 1e3;
            prop_assert!((found.mean_us - mean).abs() < 1e-6 * mean);
        }
    }
}
