//! Waits until the machine is quiet. A virtual machine shares its cores with others: at times each core is slower by
//! a third or a half for minutes, or gone for milliseconds, and a measurement then measures the neighbours. A *core
//! reading* measures the current speed of the cores. Its work is as dense as a core allows, because dense code
//! suffers most from a foreign thread on the same physical core. The kernel counts the time taken away from all cores
//! (*steal*).

use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crate::register::process::stay_on;

/// Duration of a reading.
const PULSE: Duration = Duration::from_millis(150);
/// Steps between two clock readings: some microseconds.
const STEPS: u64 = 2_000;
/// Independent computations per step, to keep the core's execution units busy.
const LANES: usize = 8;
/// Longest pause of a core that is attributed to the system's own work; a longer one means that the core was taken
/// away.
const MOST_AWAY: Duration = Duration::from_millis(2);
/// Share of the best speed above which a core counts as undisturbed.
const AS_FAST: f64 = 0.9;
/// Maximum steal between two checks, in kernel ticks of 10 ms.
const MOST_STOLEN: u64 = 5;
/// Pause between two readings while the machine is not quiet.
const PAUSE: Duration = Duration::from_millis(500);

/// Reading of the slower core.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CoreReading {
    /// Steps per second.
    speed: f64,
    /// Longest time between two steps.
    away: Duration,
}

/// Waits for a quiet machine.
#[derive(Clone, Debug)]
pub struct QuietWaiter {
    cores: Vec<usize>,
    best: f64,
    /// Steal at the last check, in ticks.
    stolen: u64,
    /// Remaining waiting time.
    patience: Duration,
    waited: Duration,
    /// Number of waits that timed out.
    given_up: u32,
}

impl QuietWaiter {
    /// Creates a waiter for these cores. All waits together last at most `patience`.
    #[must_use]
    pub fn new(cores: &[usize], patience: Duration) -> Self {
        Self { cores: cores.to_vec(), best: 0.0, stolen: stolen(), patience, waited: Duration::ZERO, given_up: 0 }
    }

    /// Waits until the machine is quiet or the waiting time is used up.
    pub fn wait(&mut self) {
        let begun = Instant::now();
        while !self.is_calm() {
            if begun.elapsed() >= self.patience {
                self.given_up += 1;
                break;
            }
            thread::sleep(PAUSE);
        }
        let lasted = begun.elapsed();
        self.patience = self.patience.saturating_sub(lasted);
        self.waited += lasted;
    }

    /// Returns whether the machine is quiet and almost nothing was stolen since the last check or wait.
    pub fn is_calm(&mut self) -> bool {
        let pulse = pulse(&self.cores);
        let before = std::mem::replace(&mut self.stolen, stolen());
        self.judge(pulse) && self.stolen.saturating_sub(before) <= MOST_STOLEN
    }

    fn judge(&mut self, pulse: CoreReading) -> bool {
        self.best = self.best.max(pulse.speed);
        pulse.away <= MOST_AWAY && pulse.speed >= AS_FAST * self.best
    }

    /// Returns a sentence on the waits.
    #[must_use]
    pub fn told(&self) -> String {
        let waited = self.waited.as_secs();
        match self.given_up {
            0 => format!("Runs began when both cores ran at full speed, after {waited} s of waiting in total."),
            times => format!(
                "Runs should begin when both cores run at full speed. After {waited} s of waiting in total, {times} began without that."
            ),
        }
    }
}

fn pulse(cores: &[usize]) -> CoreReading {
    let each: Vec<CoreReading> = thread::scope(|scope| {
        let threads: Vec<_> = cores.iter().map(|core| scope.spawn(move || pulse_of(*core))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    each.into_iter().fold(CoreReading { speed: f64::INFINITY, away: Duration::ZERO }, |sum, one| CoreReading {
        speed: sum.speed.min(one.speed),
        away: sum.away.max(one.away),
    })
}

fn pulse_of(core: usize) -> CoreReading {
    // If affinity cannot be set, the reading is of any core.
    let _ = stay_on(core);
    let begun = Instant::now();
    let (mut last, mut away, mut done, mut mixed) = (begun, Duration::ZERO, 0_u64, [1_u64; LANES]);
    while last.duration_since(begun) < PULSE {
        for step in 0..STEPS {
            for lane in &mut mixed {
                *lane = (*lane ^ step).wrapping_add(lane.rotate_left(31));
            }
        }
        black_box(mixed);
        done += STEPS;
        let now = Instant::now();
        away = away.max(now.duration_since(last));
        last = now;
    }
    CoreReading { speed: done as f64 / last.duration_since(begun).as_secs_f64(), away }
}

/// Returns the steal of all cores since boot in ticks, or 0 if the system does not count it.
pub(crate) fn stolen() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let of_all = stat.lines().next().and_then(|line| line.split_ascii_whitespace().nth(8)?.parse().ok());
    of_all.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_or_absent_cores_are_not_calm() {
        let mut calm = QuietWaiter::new(&[0], Duration::ZERO);
        let mut judge = |speed, away_ms| calm.judge(CoreReading { speed, away: Duration::from_millis(away_ms) });
        assert!(judge(1e9, 0), "the first is the best");
        assert!(judge(0.95e9, 1));
        assert!(!judge(0.8e9, 0), "slower by a fifth");
        assert!(!judge(1e9, 3), "it was away");
        assert!(judge(1.2e9, 0) && !judge(1e9, 0), "what is best is learnt");
    }

    #[test]
    fn waiting_for_calm_is_bounded() {
        let mut calm = QuietWaiter::new(&[0], Duration::ZERO);
        calm.best = f64::INFINITY;
        calm.wait();
        assert!(calm.told().ends_with("1 began without that."), "{}", calm.told());
        let pulse = pulse(&[0]);
        assert!(pulse.speed > 1e6 && pulse.speed.is_finite(), "{pulse:?}");
    }
}
