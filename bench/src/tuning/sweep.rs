//! Runs of a tuned server at several rates.

use std::path::PathBuf;
use std::time::Duration;

use super::kernel_time::KernelTime;
use super::results::{KERNEL_TIME_SHARE, Point, Shared, Sweep};
use super::server::{Competitor, Contender, Server, Tuning};
use crate::models::load::{Load, Outcome, Pace, Spacing, carry_out, prepare_with};

/// Share of the saturation rate that is offered beside another program: far below what half a core carries.
const SHARED_SHARE: f64 = 0.3;

/// Lengths of runs.
#[derive(Clone, Debug)]
pub struct Effort {
    /// The `strowger` binary.
    pub strowger: PathBuf,
    /// Initial time of a run that is not counted.
    pub warm_up: Duration,
    /// Counted time.
    pub time: Duration,
    /// Sweeps of each server and tuning; of each rate the run with the fewest drops counts, because other work of the
    /// machine can only add drops.
    pub rounds: usize,
    /// Seed of the next run.
    pub seed: u64,
}

impl Effort {
    fn load(&mut self, pace: Pace) -> Load {
        self.seed += 1;
        Load { pace, course: Spacing::AtOnce, warm_up: self.warm_up, time: self.time, seed: self.seed }
    }

    fn run(&mut self, server: &Server, contender: Contender, pace: Pace) -> Result<Outcome, String> {
        let load = self.load(pace);
        // On two cores the generator shares one with the server, so it must not keep it busy.
        let run = prepare_with(&load, contender.cores == 1)?;
        carry_out(server.pid(), run)
    }

    /// Returns the calls per second that an untuned server carries in a closed loop.
    ///
    /// # Errors
    /// If the server or the generator fails.
    pub fn saturation(&mut self, contender: Contender) -> Result<f64, String> {
        let mut best = 0.0_f64;
        for _ in 0..self.rounds {
            let server = Server::start(contender, Tuning::None, &self.strowger.clone())?;
            best = best.max(self.run(&server, contender, Pace::Saturation)?.carried_per_s);
        }
        Ok(best)
    }

    /// Measures a server with each of the tunings, in rotation, at these rates.
    ///
    /// # Errors
    /// If the server or the generator fails.
    pub fn sweeps(&mut self, contender: Contender, tunings: &[Tuning], rates: &[f64]) -> Result<Vec<Sweep>, String> {
        let empty = |tuning: &Tuning| Sweep { contender, tuning: *tuning, points: Vec::new(), kernel_time_us: None };
        let mut all: Vec<Sweep> = tunings.iter().map(empty).collect();
        for _ in 0..self.rounds {
            for sweep in &mut all {
                let server = Server::start(contender, sweep.tuning, &self.strowger.clone())?;
                for rate in rates {
                    let outcome = self.run(&server, contender, Pace::Rate(rate.round()))?;
                    keep_best(&mut sweep.points, point(rate.round(), &outcome));
                }
            }
        }
        Ok(all)
    }

    /// Measures K_rcv of a server, at [`KERNEL_TIME_SHARE`] of the saturation rate.
    ///
    /// # Errors
    /// If the server or the generator fails.
    pub fn kernel_time(&mut self, contender: Contender, tuning: Tuning, full: f64) -> Result<Option<f64>, String> {
        let server = Server::start(contender, tuning, &self.strowger.clone())?;
        Ok(self.timed(&server, contender, KERNEL_TIME_SHARE * full)?.1)
    }

    fn timed(&mut self, server: &Server, contender: Contender, rate: f64) -> Result<(Outcome, Option<f64>), String> {
        // It begins with the run, so it also sees the packets before the counted time, at the same rate.
        let seconds = (self.warm_up + self.time).as_secs().max(1);
        let time = KernelTime::start(&self.strowger, server, contender.is_ours, seconds);
        let outcome = self.run(server, contender, Pace::Rate(rate.round()));
        let kernel_time_us = time.and_then(KernelTime::finish);
        Ok((outcome?, kernel_time_us))
    }

    /// Measures a server that shares its core with a program that computes.
    ///
    /// # Errors
    /// If one of them or the generator fails.
    pub fn shared(&mut self, contender: Contender, tuning: Tuning, full: f64) -> Result<Shared, String> {
        let rate = (SHARED_SHARE * full).round();
        let server = Server::start(contender, tuning, &self.strowger.clone())?;
        let _competitor = Competitor::start()?;
        let (outcome, kernel_time_us) = self.timed(&server, contender, rate)?;
        Ok(Shared { contender, tuning, point: point(rate, &outcome), kernel_time_us })
    }
}

fn point(calls_per_s: f64, outcome: &Outcome) -> Point {
    Point {
        calls_per_s,
        packets_per_s: outcome.packets_per_s,
        drops_percent: 100.0 * outcome.drops,
        processors: outcome.processors,
        p99_ms: outcome.p99_ms,
        is_late: outcome.is_late,
    }
}

/// Adds a point, or replaces that of the same rate if the new one counts more: a run in which the generator was not
/// late, and then the one with fewer drops.
fn keep_best(points: &mut Vec<Point>, new: Point) {
    let Some(old) = points.iter_mut().find(|old| old.calls_per_s == new.calls_per_s) else {
        points.push(new);
        return;
    };
    let is_better = match (old.is_late, new.is_late) {
        (true, false) => true,
        (false, true) => false,
        _ => new.drops_percent < old.drops_percent,
    };
    if is_better {
        *old = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_undisturbed_run_of_a_rate_counts() {
        let run = |calls_per_s, drops_percent, is_late| Point {
            calls_per_s,
            packets_per_s: 0.0,
            drops_percent,
            processors: 1.0,
            p99_ms: None,
            is_late,
        };
        let mut points = Vec::new();
        for one in [
            run(1.0, 5.0, false),
            run(2.0, 9.0, true),
            run(1.0, 3.0, false),
            run(2.0, 20.0, false),
            run(1.0, 0.0, true),
        ] {
            keep_best(&mut points, one);
        }
        let kept: Vec<f64> = points.iter().map(|point| point.drops_percent).collect();
        assert_eq!(kept, [3.0, 20.0]);
    }
}
