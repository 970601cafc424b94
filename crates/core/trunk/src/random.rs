//! Pseudo-random numbers from a seed.

use core::time::Duration;

use strowger_locate::SplitMix64;

/// Generator with its own sequence per seed. The shell draws seeds at random.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a share of `whole` between `least` and `most` percent.
    pub(crate) fn share(&mut self, whole: Duration, least: u32, most: u32) -> Duration {
        let width = u64::from(most.saturating_sub(least)).saturating_mul(1000).saturating_add(1);
        let thousandths =
            u64::from(least).saturating_mul(1000).saturating_add(self.next().checked_rem(width).unwrap_or(0));
        let nanos = whole.as_nanos().saturating_mul(u128::from(thousandths)) / 100_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
