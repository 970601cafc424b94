//! Increasing loads on the servers of one layout, through saturation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::deployment::{Deployment, Environment, QuotaScope};
use super::layout::{Layout, Work};
use super::load::{Offer, Outcome, Pace, run};

/// Durations of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Time before the first load, until transactions end at the rate at which they begin.
    pub fill: Duration,
    /// Initial time of each load that is not counted.
    pub warm_up: Duration,
    /// Counted time of each load.
    pub time: Duration,
}

/// An offered load and its results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requested calls or registrations per second.
    pub asked: f64,
    /// Results of the load.
    pub outcome: Outcome,
}

/// Results of a layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// Layout of the servers.
    pub layout: Layout,
    /// Kind of work.
    pub work: Work,
    /// Weights of the clusters; empty if equal.
    pub weights: Vec<u16>,
    /// Share of users of each cluster, by its registrations.
    pub shares: Vec<f64>,
    /// Results by ascending load.
    pub points: Vec<Point>,
}

/// Parameters of a sweep.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// Layout of the servers.
    pub layout: Layout,
    /// Kind of work.
    pub work: Work,
    /// Weights of the clusters; empty if equal.
    pub weights: &'a [u16],
    /// Loads, ascending.
    pub rates: Vec<f64>,
    /// Durations of each load.
    pub course: Schedule,
}

/// Starts the servers and offers one load after another.
///
/// # Errors
/// If a server or a generator does not run.
pub fn sweep(task: &Task<'_>, place: &Environment) -> Result<Sweep, String> {
    let mut site = Deployment::start(task.layout, task.work, task.weights, QuotaScope::All, place)?;
    let workload = task.work.workload();
    let (mut points, mut seed) = (Vec::new(), 1_000);
    for rate in &task.rates {
        let warm_up = if points.is_empty() { task.course.fill } else { task.course.warm_up };
        let offer = Offer {
            workload: &workload,
            pace: Pace::Rate(*rate),
            warm_up,
            time: task.course.time,
            registers: points.is_empty(),
            seed,
        };
        let outcome = run(&mut site, &offer)?;
        eprintln!("  {}", brief(*rate, &outcome));
        points.push(Point { asked: *rate, outcome });
        seed += 100;
    }
    let shares = shares(&site.registrations()?);
    let Task { layout, work, .. } = *task;
    Ok(Sweep { layout, work, weights: task.weights.to_vec(), shares, points })
}

/// Returns each count as a share of the total.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of users")]
pub fn shares(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| *count as f64 / all).collect()
}

/// Returns a line of progress output.
#[must_use]
pub fn brief(asked: f64, outcome: &Outcome) -> String {
    let Outcome { offered, goodput, refused, p50_ms, p99_ms, first_throttled, second_throttled, is_late } = outcome;
    let late = if *is_late { ", THE GENERATOR WAS LATE" } else { "" };
    format!(
        "{asked:.0}/s: {offered:.0}/s offered, {goodput:.0}/s carried, 503 {refused:.0}/s, p50 {p50_ms:.1?} p99 {p99_ms:.1?} ms, \
         throttled {first_throttled:.0} and {second_throttled:.0} %{late}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_of_all_users() {
        assert_eq!(shares(&[60, 40]), [0.6, 0.4]);
        assert_eq!(shares(&[0]), [0.0], "nobody is registered");
    }
}
