//! Distribution of queue lengths.

use hdrhistogram::Histogram;

use crate::report::QueueDepth;

/// Longest queue that is told apart, packets.
const LONGEST: u64 = 1_000_000;

/// Numbers of packets in queues.
#[derive(Clone, Debug, Default)]
pub struct QueueDepths {
    counts: Option<Histogram<u64>>,
    /// Sum over all observations, packets.
    sum: u64,
}

impl QueueDepths {
    /// Records a queue that was seen `times` times with this many packets.
    pub fn record(&mut self, packets: u64, times: u64) {
        self.counts().saturating_record_n(packets, times);
        self.sum = self.sum.wrapping_add(packets.min(LONGEST).wrapping_mul(times));
    }

    /// Adds all values of `other`.
    pub fn add(&mut self, other: &Self) {
        if let Some(theirs) = &other.counts {
            self.counts().add(theirs).expect("both have the same bounds");
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Returns the values added since `earlier`, an earlier copy of these.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        if let (Some(counts), Some(before)) = (&mut since.counts, &earlier.counts)
            && counts.subtract(before).is_ok()
        {
            since.sum = since.sum.wrapping_sub(earlier.sum);
        }
        since
    }

    /// Returns the summary; `None` without values.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of packets are far below 2^53")]
    pub fn report(&self) -> Option<QueueDepth> {
        let counts = self.counts.as_ref().filter(|counts| !counts.is_empty())?;
        // The histogram rounds up.
        let max = if counts.max() < 200 { counts.max() } else { counts.lowest_equivalent(counts.max()) };
        Some(QueueDepth { mean: self.sum as f64 / counts.len() as f64, max })
    }

    fn counts(&mut self) -> &mut Histogram<u64> {
        self.counts.get_or_insert_with(|| Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are valid"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_its_own_mean_and_maximum() {
        let mut depths = QueueDepths::default();
        assert_eq!(depths.report(), None);
        depths.record(5_000, 2);
        assert_eq!(depths.report().map(|depth| depth.mean), Some(5_000.0));
        let before = depths.clone();
        assert_eq!(depths.since(&before).report(), None);
        depths.record(1, 3);
        depths.record(9, 1);
        assert_eq!(depths.since(&before).report(), Some(QueueDepth { mean: 3.0, max: 9 }));
        let mut both = depths.since(&before);
        both.add(&before);
        assert_eq!(both.report().map(|depth| depth.mean), depths.report().map(|depth| depth.mean));
        assert!((4_950..=5_050).contains(&both.report().expect("values").max));
    }
}
