//! A step: the load rises to many times the capacity for a while and falls back.
//!
//! Two generators: the calls of one come at half of the capacity all the time, those of the other make up the rest during the step and
//! go on repeating their INVITEs for 32 s after it, as callers do. What the first one's callers see is the service.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strowger_traffic::engine::{Run, Stopper};

use super::contender::{Contender, Environment, Mode, Server};
use super::load::{CALLING, LoadRequest, Pace, prepare};
use super::{CALLEES, SERVER};

/// How often it is looked at what was carried.
const EVERY: Duration = Duration::from_millis(100);
/// For how long what was carried is compared with what was offered.
const WINDOW: Duration = Duration::from_secs(1);
/// The share of what is offered from which on service counts as full.
pub const FULL: f64 = 0.95;
/// The load before and behind, as a part of the capacity.
pub const BASE: f64 = 0.5;
/// How long a server may take to register the callees of a generator.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it takes.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Before the step: until as many transactions end as begin.
    pub before: Duration,
    /// The step.
    pub step: Duration,
    /// Behind it: longer than callers repeat themselves.
    pub after: Duration,
}

impl Schedule {
    /// For figures.
    pub const USUAL: Self =
        Self { before: Duration::from_secs(35), step: Duration::from_secs(30), after: Duration::from_secs(40) };
    /// For trying.
    pub const QUICK: Self =
        Self { before: Duration::from_secs(2), step: Duration::from_secs(2), after: Duration::from_secs(4) };
}

/// What had happened at a moment; counts are since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the step began.
    pub at_s: f64,
    /// Calls that began at the base load.
    pub offered: u64,
    /// Those of them that were carried.
    pub carried: u64,
    /// Calls that the step added.
    pub more_offered: u64,
    /// Those of them that were carried.
    pub more_carried: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepResult {
    /// Whose.
    pub contender: Contender,
    /// The highest load, in capacities.
    pub times: f64,
    /// The capacity, in calls a second.
    pub capacity: f64,
    /// How long the step lasted, in seconds.
    pub step_s: f64,
    /// The course.
    pub points: Vec<Point>,
}

impl StepResult {
    /// The share of the base load that was carried within [`WINDOW`] from a moment on.
    fn service(&self, from: usize) -> Option<f64> {
        let first = self.points.get(from)?;
        let last = self.points.iter().skip(from).find(|point| point.at_s >= first.at_s + WINDOW.as_secs_f64())?;
        let (offered, carried) = (last.offered - first.offered, last.carried - first.carried);
        (offered > 0).then(|| ratio(carried, offered))
    }

    /// Seconds from the end of the step until the service is full; `None` where it was not.
    #[must_use]
    pub fn recovery_s(&self) -> Option<f64> {
        let behind = (0..self.points.len()).filter(|number| self.points[*number].at_s >= self.step_s);
        let full = behind.into_iter().find(|number| self.service(*number).is_some_and(|share| share >= FULL))?;
        Some(self.points[full].at_s - self.step_s)
    }

    /// The worst second after the service was full, as a share of what was offered.
    #[must_use]
    pub fn worst_after(&self) -> Option<f64> {
        let from = self.step_s + self.recovery_s()?;
        let behind = (0..self.points.len()).filter(|number| self.points[*number].at_s >= from);
        behind.filter_map(|number| self.service(number)).min_by(f64::total_cmp)
    }

    /// Calls a second of both generators that were carried while the step lasted.
    #[must_use]
    pub fn during(&self) -> f64 {
        let at = |seconds: f64| self.points.iter().find(|point| point.at_s >= seconds).copied().unwrap_or_default();
        let (first, last) = (at(0.0), at(self.step_s));
        let carried = |point: Point| point.carried + point.more_carried;
        ratio(carried(last).saturating_sub(carried(first)), 1) / (last.at_s - first.at_s).max(0.001)
    }

    /// Second by second: when, offered a second, carried a second.
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

/// Carries it out on a server of its own.
///
/// # Errors
/// When a server or a generator does not run.
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
    /// Starts it, and waits until its callees are registered.
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

    /// A service that is full but for `gap_s` seconds from the end of a step of 10 s on.
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
    fn the_course_is_told_second_by_second() {
        let rows = stepped(0.0).seconds();
        assert!((36..=40).contains(&rows.len()), "{}", rows.len());
        let (.., offered, carried) = rows[20];
        assert!((offered - 500.0).abs() < 1.0 && (carried - 500.0).abs() < 1.0, "{offered} {carried}");
        assert!((stepped(0.0).during() - 20.0).abs() < 1.0);
    }
}
