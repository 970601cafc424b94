//! A step: the load rises to a multiple of the capacity for a while and falls back.
//!
//! Two generators: the calls of the first come at half the capacity throughout. Those of the second add the rest
//! during the step and retransmit their INVITEs for up to 32 s after it, as callers do. The service is judged by the
//! first generator's calls.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strowger_traffic::engine::{Run, Stopper};

use super::contender::{Contender, Environment, Mode, Server};
use super::load::{CALLING, LoadRequest, Pace, prepare};
use super::{CALLEES, SERVER};

/// Sampling interval of successful calls.
const EVERY: Duration = Duration::from_millis(100);
/// Window in which successful calls are compared with offered ones.
const WINDOW: Duration = Duration::from_secs(1);
/// Share of the offered calls from which on service counts as fully restored.
pub const FULL: f64 = 0.95;
/// Load before and after the step, relative to the capacity.
pub const BASE: f64 = 0.5;
/// Maximum time for a server to register the callees of a generator.
const PATIENCE: Duration = Duration::from_secs(60);

/// Durations of a run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Time before the step, until transactions end at the rate at which they begin.
    pub before: Duration,
    /// Duration of the step.
    pub step: Duration,
    /// Time after the step: longer than callers retransmit.
    pub after: Duration,
}

impl Schedule {
    /// Schedule of a full run.
    pub const USUAL: Self =
        Self { before: Duration::from_secs(35), step: Duration::from_secs(30), after: Duration::from_secs(40) };
    /// Schedule of a smoke test.
    pub const QUICK: Self =
        Self { before: Duration::from_secs(2), step: Duration::from_secs(2), after: Duration::from_secs(4) };
}

/// Cumulative counts at a point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the step began.
    pub at_s: f64,
    /// Started calls of the base load.
    pub offered: u64,
    /// Successful calls of the base load.
    pub carried: u64,
    /// Started calls of the step.
    pub more_offered: u64,
    /// Successful calls of the step.
    pub more_carried: u64,
}

/// Results of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepResult {
    /// Contender under test.
    pub contender: Contender,
    /// Highest load as a multiple of the capacity.
    pub times: f64,
    /// Capacity in calls per second.
    pub capacity: f64,
    /// Duration of the step in seconds.
    pub step_s: f64,
    /// Counts over time.
    pub points: Vec<Point>,
}

impl StepResult {
    /// Returns the share of the base load that succeeded within [`WINDOW`] from a point on.
    fn service(&self, from: usize) -> Option<f64> {
        let first = self.points.get(from)?;
        let last = self.points.iter().skip(from).find(|point| point.at_s >= first.at_s + WINDOW.as_secs_f64())?;
        let (offered, carried) = (last.offered - first.offered, last.carried - first.carried);
        (offered > 0).then(|| ratio(carried, offered))
    }

    /// Returns the seconds from the end of the step until full service, or `None` if it was not reached.
    #[must_use]
    pub fn recovery_s(&self) -> Option<f64> {
        let behind = (0..self.points.len()).filter(|number| self.points[*number].at_s >= self.step_s);
        let full = behind.into_iter().find(|number| self.service(*number).is_some_and(|share| share >= FULL))?;
        Some(self.points[full].at_s - self.step_s)
    }

    /// Returns the worst second after the return to full service, as a share of the offered calls.
    #[must_use]
    pub fn worst_after(&self) -> Option<f64> {
        let from = self.step_s + self.recovery_s()?;
        let behind = (0..self.points.len()).filter(|number| self.points[*number].at_s >= from);
        behind.filter_map(|number| self.service(number)).min_by(f64::total_cmp)
    }

    /// Returns the successful calls per second of both generators during the step.
    #[must_use]
    pub fn during(&self) -> f64 {
        let at = |seconds: f64| self.points.iter().find(|point| point.at_s >= seconds).copied().unwrap_or_default();
        let (first, last) = (at(0.0), at(self.step_s));
        let carried = |point: Point| point.carried + point.more_carried;
        ratio(carried(last).saturating_sub(carried(first)), 1) / (last.at_s - first.at_s).max(0.001)
    }

    /// Returns time, offered calls per second and successful calls per second for each second.
    #[must_use]
    pub fn seconds(&self) -> Vec<(f64, f64, f64)> {
        let mut rows = Vec::new();
        let mut last: Option<Point> = None;
        for point in &self.points {
            let Some(from) = last else {
                last = Some(*point);
                continue;
            };
            let width = point.at_s - from.at_s;
            if width >= 0.95 {
                let rate = |of: fn(&Point) -> u64| ratio(of(point).saturating_sub(of(&from)), 1) / width;
                rows.push((point.at_s, rate(|p| p.offered + p.more_offered), rate(|p| p.carried + p.more_carried)));
                last = Some(*point);
            }
        }
        rows
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls")]
fn ratio(of: u64, all: u64) -> f64 {
    of as f64 / all as f64
}

/// Runs the step on a separate server.
///
/// # Errors
/// If a server or a generator does not run.
pub fn run(
    contender: Contender,
    place: &Environment,
    limit: Option<f64>,
    (capacity, times): (f64, f64),
    course: Schedule,
) -> Result<StepResult, String> {
    let mut server = Server::start(contender, Mode::Udp, place, limit)?;
    let seed = 41;
    let all = course.before + course.step + course.after;
    let base = LoadRequest {
        warm_up: Duration::ZERO,
        time: all + Duration::from_secs(2),
        ..LoadRequest::new(Mode::Udp, Pace::Rate(BASE * capacity), seed)
    };
    let base = RunningGenerator::new(prepare(&base)?)?;
    thread::sleep(course.before);
    let mut callees = CALLEES;
    callees.set_port(CALLEES.port() + 1);
    let surge = LoadRequest {
        warm_up: Duration::ZERO,
        time: course.step,
        drain: course.after + Duration::from_secs(1),
        pattern: "step%",
        callees,
        ..LoadRequest::new(Mode::Udp, Pace::Rate((times - BASE) * capacity), seed + 1)
    };
    let surge = RunningGenerator::new(prepare(&surge)?)?;
    let (begun, mut points) = (Instant::now(), Vec::new());
    while begun.elapsed() < course.step + course.after {
        let (one, two) = (base.stopper.progress().caller.began, surge.stopper.progress().caller.began);
        points.push(Point {
            at_s: begun.elapsed().as_secs_f64(),
            offered: one.sent,
            carried: one.carried,
            more_offered: two.sent,
            more_carried: two.carried,
        });
        thread::sleep(EVERY);
    }
    surge.end()?;
    base.end()?;
    server.check()?;
    Ok(StepResult { contender, times, capacity, step_s: course.step.as_secs_f64(), points })
}

/// A generator whose calls have begun.
struct RunningGenerator {
    stopper: Stopper,
    thread: thread::JoinHandle<Result<(), String>>,
}

impl RunningGenerator {
    /// Starts the generator and waits until its callees are registered.
    fn new(run: Run) -> Result<Self, String> {
        let stopper = run.stopper();
        let thread = thread::spawn(move || match run.go() {
            Ok(report) => report.broken_off.map_or(Ok(()), Err),
            Err(error) => Err(error.to_string()),
        });
        let deadline = Instant::now() + PATIENCE;
        while stopper.phase().is_some_and(|phase| phase < CALLING) && !thread.is_finished() {
            if Instant::now() > deadline {
                stopper.stop();
                stopper.stop();
                return Err(format!("callees cannot register at {SERVER}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { stopper, thread })
    }

    fn end(self) -> Result<(), String> {
        self.stopper.stop();
        self.stopper.stop();
        self.thread.join().map_err(|_| "the generator has panicked".to_owned())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns results with full service except for `gap_s` seconds from the end of a step of 10 s.
    fn stepped(gap_s: f64) -> StepResult {
        let (mut points, mut carried) = (Vec::new(), 0);
        for tenth in 0..400_u32 {
            let at_s = f64::from(tenth) / 10.0;
            let is_down = at_s < 10.0 + gap_s;
            points.push(Point { at_s, offered: u64::from(tenth) * 50, carried, ..Point::default() });
            carried += if is_down { 2 } else { 50 };
        }
        StepResult { contender: Contender::Control, times: 10.0, capacity: 1_000.0, step_s: 10.0, points }
    }

    #[test]
    fn recovery_is_counted_from_the_end_of_the_step() {
        for gap in [0.5, 3.0] {
            let stepped = stepped(gap);
            let recovery = stepped.recovery_s().expect("it recovers");
            assert!((recovery - gap).abs() < 0.25, "{gap}: {recovery}");
            assert!(stepped.worst_after().is_some_and(|worst| worst >= FULL));
        }
        assert_eq!(stepped(100.0).recovery_s(), None);
    }

    #[test]
    fn rates_are_reported_per_second() {
        let rows = stepped(0.0).seconds();
        assert!((36..=40).contains(&rows.len()), "{}", rows.len());
        let (.., offered, carried) = rows[20];
        assert!((offered - 500.0).abs() < 1.0 && (carried - 500.0).abs() < 1.0, "{offered} {carried}");
        assert!((stepped(0.0).during() - 20.0).abs() < 1.0);
    }
}
