//! What is measured of a target: how soon it responds, and what its transactions cost it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::method::{BYE_WEIGHT, MethodClass};

/// A moment in units of 1,024 ns, modulo 73 minutes: longer than any transaction waits for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoarseTime(u32);

impl CoarseTime {
    #[inline]
    pub(crate) const fn of(at: Timestamp) -> Self {
        Self(low_half(at.as_nanos() >> 10))
    }
}

/// From when to when a request waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub now: Timestamp,
    pub begun: CoarseTime,
}

impl Sample {
    /// How long that is, in [ticks](TICK_NANOS); at least one, at most 4.6 minutes.
    fn ticks(self) -> u32 {
        CoarseTime::of(self.now).0.wrapping_sub(self.begun.0).saturating_mul(16).max(1)
    }
}

/// Averages are kept in units of so many nanoseconds, so that those of a hundred microseconds still have three digits.
const TICK_NANOS: u64 = 64;

/// One in so many of a new response time goes into the average, as a power of two.
const RESPONSE_SHIFT: u32 = 4;
/// The same of costs, which change seldom.
const COST_SHIFT: u32 = 5;
/// An average that nothing has been added to for so long (milliseconds, a power of two) counts half, and so on: who once was slow
/// is tried again.
const HALVED_AFTER_MS_SHIFT: u32 = 12;
/// Measured weights are kept between 1/16 and 16 BYE.
const MAX_RATIO: u64 = 16;

/// The averages of one target. Two shards that write at the same moment lose one sample of two, which does no harm.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct TargetAverages {
    /// Above, when it was last added to (milliseconds, modulo 2^32); below, the response time in ticks, zero where unknown.
    response: AtomicU64,
    /// What a transaction of each method takes a target that has nothing else to do, in ticks; zero where unknown.
    costs: [AtomicU32; MethodClass::COUNT],
}

impl TargetAverages {
    /// The average response time.
    pub(crate) fn response_time(&self) -> Option<Duration> {
        let (_, ticks) = split(self.response.load(Ordering::Relaxed));
        (ticks != 0).then(|| Duration::from_nanos(u64::from(ticks) * TICK_NANOS))
    }

    /// The response time that is to be expected now, in ticks.
    #[inline]
    pub(crate) fn expected_ticks(&self, now: Timestamp) -> Option<u32> {
        let (at, ticks) = split(self.response.load(Ordering::Relaxed));
        // Another worker's clock may have been read a little later.
        let age_ms = low_half(now.as_millis()).wrapping_sub(at).cast_signed().max(0);
        let halvings = age_ms.cast_unsigned() >> HALVED_AFTER_MS_SHIFT;
        (ticks != 0).then(|| ticks.checked_shr(halvings).unwrap_or(0).max(1))
    }

    pub(crate) fn handle_response(&self, sample: Sample) {
        self.add(sample.now, sample.ticks());
    }

    /// A request got no answer: it would have waited longer than it did, and longer than the others.
    pub(crate) fn handle_timeout(&self, now: Timestamp, begun: CoarseTime) {
        let (_, known) = split(self.response.load(Ordering::Relaxed));
        self.add(now, Sample { now, begun }.ticks().max(known));
    }

    fn add(&self, now: Timestamp, ticks: u32) {
        let (_, old) = split(self.response.load(Ordering::Relaxed));
        let new = blend(old, ticks, RESPONSE_SHIFT);
        self.response.store(u64::from(low_half(now.as_millis())) << 32 | u64::from(new), Ordering::Relaxed);
    }

    /// A transaction of `class` is done that was alone at the target.
    pub(crate) fn handle_cost(&self, sample: Sample, class: MethodClass) {
        if let Some(cost) = self.costs.get(class as usize) {
            cost.store(blend(cost.load(Ordering::Relaxed), sample.ticks(), COST_SHIFT), Ordering::Relaxed);
        }
    }

    /// What a transaction of `class` costs relative to a BYE, or to OPTIONS where there was no BYE, in thousandths.
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

/// A moving average with one value more, the 2^`shift`-th part of which counts; the first counts whole.
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
