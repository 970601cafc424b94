//! Offered load and arrival times of calls.

use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::rng::Rng;

/// Period of constant load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Duration.
    pub lasts: Duration,
    /// Load as a multiple of the capacity.
    pub times: f64,
}

impl Phase {
    /// Creates a phase of `seconds` at `times` the capacity.
    #[must_use]
    pub const fn new(seconds: u64, times: f64) -> Self {
        Self { lasts: Duration::from_secs(seconds), times }
    }
}

/// Returns the end of all phases.
pub(super) fn end_of(phases: &[Phase]) -> Timestamp {
    phases.iter().fold(Timestamp::ZERO, |end, phase| end + phase.lasts)
}

/// Arrival times of calls: a Poisson process whose rate follows the phases.
#[derive(Debug)]
pub(super) struct Arrivals {
    rng: Rng,
    capacity: f64,
    phases: Vec<Phase>,
    /// Phase of the last arrival, and its time within the phase.
    phase: usize,
    since_s: f64,
    began: Timestamp,
}

impl Arrivals {
    pub(super) fn new(rng: Rng, capacity: u32, phases: Vec<Phase>) -> Self {
        Self { rng, capacity: f64::from(capacity), phases, phase: 0, since_s: 0.0, began: Timestamp::ZERO }
    }

    /// Returns the time of the next call, or `None` after the last phase.
    pub(super) fn next(&mut self) -> Option<Timestamp> {
        let mut expected = self.rng.exponential();
        loop {
            let Phase { lasts, times } = *self.phases.get(self.phase)?;
            let rate = times * self.capacity;
            let left_s = lasts.as_secs_f64() - self.since_s;
            if expected < rate * left_s {
                self.since_s += expected / rate;
                return Some(self.began + Duration::from_secs_f64(self.since_s));
            }
            expected -= rate * left_s;
            (self.phase, self.since_s, self.began) = (self.phase + 1, 0.0, self.began + lasts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_rate() {
        let phases = vec![Phase::new(10, 1.0), Phase::new(10, 0.0), Phase::new(10, 5.0)];
        let mut arrivals = Arrivals::new(Rng::new(1), 100, phases.clone());
        let mut found = [0_u32; 3];
        while let Some(at) = arrivals.next() {
            found[usize::try_from(at.as_millis() / 10_000).unwrap_or(9)] += 1;
        }
        assert!((900..1_100).contains(&found[0]) && found[1] == 0 && (4_800..5_200).contains(&found[2]), "{found:?}");
        assert_eq!(end_of(&phases), Timestamp::from_millis(30_000));
    }
}
