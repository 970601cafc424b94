//! Averages of a target: its response time and the cost of its transactions.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::method::{BYE_WEIGHT, MethodClass};

/// A time in units of 1,024 ns, modulo 73 minutes: longer than any transaction waits for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoarseTime(u32);

impl CoarseTime {
    #[inline]
    pub(crate) const fn of(at: Timestamp) -> Self {
        Self(low_half(at.as_nanos() >> 10))
    }
}

/// The start and end of a request's wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub now: Timestamp,
    pub begun: CoarseTime,
}

impl Sample {
    /// Returns the duration in [ticks](TICK_NANOS); at least one, at most 4.6 minutes.
    fn ticks(self) -> u32 {
        CoarseTime::of(self.now).0.wrapping_sub(self.begun.0).saturating_mul(16).max(1)
    }
}

/// Unit of averages, in ns; an average of a hundred microseconds still has three digits.
const TICK_NANOS: u64 = 64;

/// Smoothing factor of response times: a new sample counts 1 in 2 to this power.
const RESPONSE_SHIFT: u32 = 4;
/// The same for costs, which change rarely.
const COST_SHIFT: u32 = 5;
/// Half-life of an average without new samples, as a power of two in milliseconds, so that a target that once was
/// slow is tried again.
const HALVED_AFTER_MS_SHIFT: u32 = 12;
/// Measured weights are limited to between 1/16 and 16 BYE.
const MAX_RATIO: u64 = 16;

/// The averages of one target. If two shards write at the same time, one sample is lost, which is harmless.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct TargetAverages {
    /// Upper half: time of the last sample (milliseconds, modulo 2^32). Lower half: the response time in ticks, zero
    /// if unknown.
    pub(crate) response: AtomicU64,
    /// Duration of a transaction of each method at an otherwise idle target, in ticks; zero if unknown.
    pub(crate) costs: [AtomicU32; MethodClass::COUNT],
}

impl TargetAverages {
    /// Returns the average response time.
    pub(crate) fn response_time(&self) -> Option<Duration> {
        let (_, ticks) = split(self.response.load(Ordering::Relaxed));
        (ticks != 0).then(|| Duration::from_nanos(u64::from(ticks) * TICK_NANOS))
    }

    /// Returns the response time currently expected, in ticks.
    #[inline]
    pub(crate) fn expected_ticks(&self, now: Timestamp) -> Option<u32> {
        let (at, ticks) = split(self.response.load(Ordering::Relaxed));
        // Another worker may have read its clock a little later.
        let age_ms = low_half(now.as_millis()).wrapping_sub(at).cast_signed().max(0);
        let halvings = age_ms.cast_unsigned() >> HALVED_AFTER_MS_SHIFT;
        (ticks != 0).then(|| ticks.checked_shr(halvings).unwrap_or(0).max(1))
    }

    pub(crate) fn handle_response(&self, sample: Sample) {
        self.add(sample.now, sample.ticks());
    }

    /// Handles a request without a response. Its response time would have exceeded both its wait and the average.
    pub(crate) fn handle_timeout(&self, now: Timestamp, begun: CoarseTime) {
        let (_, known) = split(self.response.load(Ordering::Relaxed));
        self.add(now, Sample { now, begun }.ticks().max(known));
    }

    fn add(&self, now: Timestamp, ticks: u32) {
        let (_, old) = split(self.response.load(Ordering::Relaxed));
        let new = blend(old, ticks, RESPONSE_SHIFT);
        self.response.store(u64::from(low_half(now.as_millis())) << 32 | u64::from(new), Ordering::Relaxed);
    }

    /// Adds a finished transaction of `class` that was alone at the target.
    pub(crate) fn handle_cost(&self, sample: Sample, class: MethodClass) {
        if let Some(cost) = self.costs.get(class as usize) {
            cost.store(blend(cost.load(Ordering::Relaxed), sample.ticks(), COST_SHIFT), Ordering::Relaxed);
        }
    }

    /// Returns the cost of a transaction of `class` relative to a BYE (or to OPTIONS if there was no BYE), in
    /// thousandths.
    pub(crate) fn weight(&self, class: MethodClass) -> Option<u16> {
        let reference = self.cost(MethodClass::Bye).or_else(|| self.cost(MethodClass::Options))?;
        let thousandths = self.cost(class)? * u64::from(BYE_WEIGHT) / reference;
        let bounded = thousandths.clamp(u64::from(BYE_WEIGHT) / MAX_RATIO, u64::from(BYE_WEIGHT) * MAX_RATIO);
        u16::try_from(bounded).ok()
    }

    fn cost(&self, class: MethodClass) -> Option<u64> {
        self.costs.get(class as usize).map(|cost| u64::from(cost.load(Ordering::Relaxed))).filter(|cost| *cost != 0)
    }
}

/// Returns the moving average with one more value, which counts 1 in 2^`shift`; the first value counts fully.
fn blend(old: u32, new: u32, shift: u32) -> u32 {
    if old == 0 {
        return new.max(1);
    }
    let (old, new) = (i64::from(old), i64::from(new));
    u32::try_from(old + ((new - old) >> shift)).unwrap_or(u32::MAX).max(1)
}

const fn split(packed: u64) -> (u32, u32) {
    (low_half(packed >> 32), low_half(packed))
}

const fn low_half(number: u64) -> u32 {
    number as u32
}
