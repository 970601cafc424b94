//! Processor of the worker, or a share of one.

use core::time::Duration;

use strowger_foundation::Timestamp;

/// Processor that runs for a slice of each period and then stops until the next, as under a cgroup quota.
///
/// It runs faster in the slice, so that the capacity does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Running time per period; not zero.
    pub slice: Duration,
    /// Period.
    pub period: Duration,
}

impl Cpu {
    /// A whole processor.
    pub const WHOLE: Self = Self { slice: Duration::from_millis(25), period: Duration::from_millis(25) };

    /// Returns the first time from `at` on at which the processor runs.
    pub(super) fn runs_at(self, at: Timestamp) -> Timestamp {
        self.time_of(self.used_until(at))
    }

    /// Returns when work that starts at `at` and takes `work` on a whole processor is done.
    pub(super) fn done_at(self, at: Timestamp, work: Duration) -> Timestamp {
        let work_ns = nanos(work) * u128::from(self.slice_ns()) / u128::from(self.period_ns());
        self.time_of(self.used_until(at) + u64::try_from(work_ns).unwrap_or(u64::MAX))
    }

    /// Returns the running time until `at`, in ns.
    fn used_until(self, at: Timestamp) -> u64 {
        let (periods, rest) = (at.as_nanos() / self.period_ns(), at.as_nanos() % self.period_ns());
        periods * self.slice_ns() + rest.min(self.slice_ns())
    }

    /// Returns the first time at which it has run for `used_ns` and continues.
    fn time_of(self, used_ns: u64) -> Timestamp {
        let (periods, rest) = (used_ns / self.slice_ns(), used_ns % self.slice_ns());
        Timestamp::from_nanos(periods * self.period_ns() + rest)
    }

    fn slice_ns(self) -> u64 {
        u64::try_from(nanos(self.slice)).unwrap_or(u64::MAX).clamp(1, self.period_ns())
    }

    fn period_ns(self) -> u64 {
        u64::try_from(nanos(self.period)).unwrap_or(u64::MAX).max(1)
    }
}

const fn nanos(duration: Duration) -> u128 {
    duration.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Timestamp = Timestamp::from_millis;

    #[test]
    fn a_whole_processor_always_runs() {
        assert_eq!(Cpu::WHOLE.runs_at(MS(33)), MS(33));
        assert_eq!(Cpu::WHOLE.done_at(MS(20), Duration::from_millis(10)), MS(30));
    }

    #[test]
    fn a_quarter_cpu_pauses_for_the_rest_of_each_period() {
        let cpu = Cpu { slice: Duration::from_millis(5), period: Duration::from_millis(20) };
        assert_eq!(cpu.runs_at(MS(3)), MS(3));
        assert_eq!(cpu.runs_at(MS(7)), MS(20));
        // 8 ms of a whole processor are 2 ms of this one, and 12 ms are 3.
        assert_eq!(cpu.done_at(MS(1), Duration::from_millis(8)), MS(3));
        assert_eq!(cpu.done_at(MS(3), Duration::from_millis(12)), MS(21));
    }
}
