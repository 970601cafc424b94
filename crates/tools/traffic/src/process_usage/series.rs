//! Time series of a server's samples, for display.

use std::time::Duration;

use strowger_foundation::Timestamp;

use super::Sample;

/// Samples of a server during a run.
#[derive(Clone, Debug, Default)]
pub struct ServerSeries {
    /// The process ID.
    pub pid: u32,
    /// The name of the process.
    pub name: String,
    /// The samples, in order.
    pub samples: Vec<Sample>,
    /// The processes that replaced it, such as those of upgrades, in order.
    pub successors: Vec<u32>,
    /// Whether it, or the last of these, ended before the run did.
    pub is_gone: bool,
}

/// Resource usage between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// The end of the interval, since the beginning of the phase.
    pub at: Duration,
    /// The length of the interval.
    pub time: Duration,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Resident memory at its end, in bytes.
    pub resident_bytes: u64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Interrupts of the machine.
    pub interrupts: u64,
    /// Soft interrupts of the machine.
    pub soft_interrupts: u64,
    /// Datagrams dropped because the server's socket buffers were full, if visible.
    pub drops: Option<u64>,
    /// Datagrams dropped because a buffer of any socket in the server's network namespace was full.
    pub machine_drops: u64,
}

impl Usage {
    /// Computes the usage between two samples; `at` is relative to `from`. The usage of a child that has ended is
    /// unknown and counts as zero.
    #[must_use]
    pub fn between(earlier: &Sample, later: &Sample, from: Timestamp) -> Self {
        Self {
            at: later.at.saturating_since(from),
            time: later.at.saturating_since(earlier.at),
            user: later.user.saturating_sub(earlier.user),
            system: later.system.saturating_sub(earlier.system),
            resident_bytes: later.resident_bytes,
            voluntary: later.voluntary.saturating_sub(earlier.voluntary),
            involuntary: later.involuntary.saturating_sub(earlier.involuntary),
            major_faults: later.major_faults.saturating_sub(earlier.major_faults),
            interrupts: later.interrupts.saturating_sub(earlier.interrupts),
            soft_interrupts: later.soft_interrupts.saturating_sub(earlier.soft_interrupts),
            drops: later.drops.zip(earlier.drops).map(|(later, earlier)| later.saturating_sub(earlier)),
            machine_drops: later.machine_drops.saturating_sub(earlier.machine_drops),
        }
    }

    /// Returns the number of processors kept busy: 1.0 is one whole processor.
    #[must_use]
    pub fn processors(&self) -> f64 {
        let time = self.time.as_secs_f64();
        if time > 0.0 { (self.user + self.system).as_secs_f64() / time } else { 0.0 }
    }
}

impl ServerSeries {
    /// Returns the usage of a phase (starting at `from`, `elapsed` long) in intervals of about `width`. Closer
    /// samples are left out, so that the coarse resolution of the kernel's CPU times does not show.
    #[must_use]
    pub fn during(&self, from: Timestamp, elapsed: Duration, width: Duration) -> Vec<Usage> {
        let mut inside = self.samples.iter().filter(|sample| sample.at >= from && sample.at <= from + elapsed);
        let Some(mut last) = inside.next() else { return Vec::new() };
        let mut stretches = Vec::new();
        for sample in inside {
            // Samples come a little early or late.
            if sample.at.saturating_since(last.at) >= width.mul_f64(0.9) {
                stretches.push(Usage::between(last, sample, from));
                last = sample;
            }
        }
        if stretches.is_empty() {
            stretches.extend(self.total(from, elapsed));
        }
        stretches
    }

    /// Returns the usage of the phase as one interval.
    #[must_use]
    pub fn total(&self, from: Timestamp, elapsed: Duration) -> Option<Usage> {
        let mut inside = self.samples.iter().filter(|sample| sample.at >= from && sample.at <= from + elapsed);
        let first = inside.next()?;
        Some(Usage::between(first, inside.next_back()?, from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, cpu_ms: u64, drops: u64) -> Sample {
        Sample {
            at: Timestamp::from_millis(second * 1_000),
            user: Duration::from_millis(cpu_ms),
            system: Duration::from_millis(cpu_ms / 2),
            resident_bytes: second << 20,
            voluntary: 10 * second,
            drops: Some(drops),
            ..Sample::default()
        }
    }

    #[test]
    fn only_samples_inside_the_phase_count() {
        let samples =
            vec![sample(1, 0, 0), sample(2, 900, 5), sample(3, 1_300, 5), sample(4, 1_500, 8), sample(5, 9_000, 99)];
        let series = ServerSeries { samples, ..ServerSeries::default() };
        let (from, elapsed) = (Timestamp::from_millis(1_500), Duration::from_secs(3));
        let rows = series.during(from, elapsed, Duration::from_secs(1));
        let processors: Vec<_> = rows.iter().map(|row| (row.processors() * 10.0).round()).collect();
        assert_eq!(processors, [6.0, 3.0]);
        assert_eq!(rows[0].at, Duration::from_millis(1_500));
        let wide: Vec<_> = series.during(from, elapsed, Duration::from_secs(2)).iter().map(|row| row.time).collect();
        assert_eq!(wide, [Duration::from_secs(2)]);
        assert_eq!(series.during(from, elapsed, Duration::from_secs(60)).len(), 1, "a short phase is one stretch");
        let total = series.total(from, elapsed).expect("three samples");
        assert_eq!((total.time, total.drops, total.voluntary), (Duration::from_secs(2), Some(3), 20));
        assert_eq!(total.user, Duration::from_millis(600));
        assert_eq!(series.total(Timestamp::from_millis(90_000), elapsed), None);
    }

    #[test]
    fn an_ended_child_gives_no_negative_usage() {
        let usage = Usage::between(&sample(1, 500, 9), &sample(2, 100, 2), Timestamp::ZERO);
        assert_eq!((usage.user, usage.drops), (Duration::ZERO, Some(0)));
    }
}
