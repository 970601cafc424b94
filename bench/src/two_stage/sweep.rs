//! Load after load on the servers of one layout, through saturation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::deployment::{Deployment, Environment, QuotaScope};
use super::layout::{Layout, Work};
use super::load::{Offer, Outcome, Pace, run};

/// How long each load takes.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Before the first load: until as many transactions end as begin.
    pub fill: Duration,
    /// The beginning of each load, which is not counted.
    pub warm_up: Duration,
    /// What is counted of each load.
    pub time: Duration,
}

/// What was offered, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Calls or registrations a second that were asked for.
    pub asked: f64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What was measured of a layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// Its servers.
    pub layout: Layout,
    /// What was asked of them.
    pub work: Work,
    /// The weights of the clusters; none where they are equal.
    pub weights: Vec<u16>,
    /// The share of the users that each cluster has, by its registrations.
    pub shares: Vec<f64>,
    /// By rising load.
    pub points: Vec<Point>,
}

/// What is swept.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// The servers.
    pub layout: Layout,
    /// What is asked of them.
    pub work: Work,
    /// The weights of the clusters; none where they are equal.
    pub weights: &'a [u16],
    /// Loads, rising.
    pub rates: Vec<f64>,
    /// How long each takes.
    pub course: Schedule,
}

/// Starts the servers and offers load after load to them.
///
/// # Errors
/// When a server or a generator does not run.
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

/// What part of all each is.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of users")]
pub fn shares(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| *count as f64 / all).collect()
}

/// A line for who waits.
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
