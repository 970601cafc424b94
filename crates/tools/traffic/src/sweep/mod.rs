//! Throughput over load: rate after rate, each several times, until the server is past its capacity.
//!
//! [`Sweep`] returns what to run next and receives the result; it runs nothing itself.

mod ready;
mod report;

use std::time::Duration;

pub use ready::await_answer;
pub use report::{PointReport, SweepReport};

use crate::engine::{PhaseReport, Report};
use crate::meter::{Meter, ResponseClass};
use crate::metrics::main_method;
use crate::report::per;
use crate::search::{Metric, Rule, RuleCheck, RuleError, kept_back, processors};
use crate::statistics::{ConfidenceInterval, batch_means, of_independent};

/// Confidence level of intervals.
pub const LEVEL: f64 = 0.95;
/// Maximum number of rates.
const MAX_RATES: usize = 10_000;

/// Rates of a sweep, in rising order.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates(Vec<f64>);

impl Rates {
    /// Parses `100..2400/100`, both ends included, or single rates, `100,200,400`.
    ///
    /// # Errors
    /// What is wrong, and the syntax.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let wrong = |what: &str| {
            RuleError(format!(
                "'{text}' {what}; rates are FROM..TO/STEP, such as 100..2400/100, or single ones, such as 100,200,400"
            ))
        };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
        let Some((from, rest)) = text.split_once("..") else {
            let rates: Option<Vec<f64>> = text.split(',').map(number).collect();
            let rates = rates.ok_or_else(|| wrong("is not a rate above 0"))?;
            let is_rising = rates.is_sorted_by(|a, b| a < b);
            return if is_rising { Ok(Self(rates)) } else { Err(wrong("does not rise")) };
        };
        let (to, step) = rest.split_once('/').ok_or_else(|| wrong("has no step"))?;
        let all = number(from).zip(number(to)).zip(number(step));
        let ((from, to), step) = all.ok_or_else(|| wrong("contains something that is not a number above 0"))?;
        if to < from {
            return Err(wrong("ends before it begins"));
        }
        // The end is included despite rounding errors.
        let steps = ((to - from) / step + 1e-9).floor();
        if steps >= float(MAX_RATES) {
            return Err(wrong("has more than 10000 rates"));
        }
        let rates = (0..MAX_RATES).map(float).take_while(|number| *number <= steps);
        // Removes rounding errors such as 0.30000000000000004.
        let exact = |rate: f64| format!("{rate:.11e}").parse().unwrap_or(rate);
        Ok(Self(rates.map(|number| exact(from + number * step)).collect()))
    }

    /// Returns all rates.
    #[must_use]
    pub fn all(&self) -> &[f64] {
        &self.0
    }
}

/// Parameters of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Rates.
    pub rates: Rates,
    /// Runs of each rate.
    pub repeats: u32,
    /// Maximum time of each request of a call for the call to be a success.
    pub within: Duration,
    /// Conditions that end the sweep, if one is true over all runs of a rate.
    pub until: Vec<Rule>,
}

/// A run to perform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Rate.
    pub rate: f64,
    /// Number among the repeats, from 1.
    pub repeat: u32,
    /// Number among all runs, from 1.
    pub number: u32,
}

/// Result of one run.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Counts.
    pub meter: Meter,
    /// Duration.
    pub elapsed: Duration,
    /// Calls per second that succeeded in time, for each slice up to the last arrival; empty for a run shorter than a
    /// slice.
    pub in_time_per_s: Vec<f64>,
    /// Mean of `in_time_per_s`.
    pub throughput: f64,
    /// Average CPU use of the server, if it was sampled.
    pub processors: Option<f64>,
    /// Why the generator was the bottleneck, if it was.
    pub bottleneck: Option<String>,
}

impl Measurement {
    /// Evaluates a report, with this maximum time for each request of a call.
    #[must_use]
    pub fn of(report: &Report, within: Duration) -> Self {
        let Some(phase) = report.measured() else { return Self::default() };
        let (meter, in_time_per_s) = (phase.meter(), in_time_per_s(phase, within));
        let throughput = if in_time_per_s.is_empty() {
            let in_time = meter.slowest.within(within).min(phase.carried_in_time);
            per(in_time, phase.elapsed.as_secs_f64())
        } else {
            in_time_per_s.iter().sum::<f64>() / float(in_time_per_s.len())
        };
        Self {
            meter: meter.clone(),
            elapsed: phase.elapsed,
            in_time_per_s,
            throughput,
            processors: processors(report),
            // Lateness of calls may be the machine's fault; calls that were refused are the generator's limit.
            bottleneck: (phase.links.exhaustion())
                .or_else(|| kept_back(meter.began.refused))
                .or_else(|| phase.bottleneck()),
        }
    }
}

/// Returns the slices with arrivals: calls that end after the last arrival would be attributed to too short a time.
fn in_time_per_s(phase: &PhaseReport, within: Duration) -> Vec<f64> {
    let width = phase.series.width().as_secs_f64();
    let whole = whole(phase.elapsed.as_secs_f64() / width);
    // No call can end before the shortest one is over.
    let shortest = phase.meter().durations.quantile(0.0).as_secs_f64();
    let empty = whole_above(shortest / width).min(whole / 2);
    let slices = phase.series.slices().iter().take(whole).skip(empty);
    slices.map(|slice| per(slice.ended.within(within), width)).collect()
}

/// Rounds down to a whole number, allowing for rounding errors.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, not negative, and saturating")]
fn whole(number: f64) -> usize {
    (number + 1e-6).floor() as usize
}

/// Rounds up to a whole number, except for a small excess.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, not negative, and saturating")]
fn whole_above(number: f64) -> usize {
    (number - 0.02).ceil() as usize
}

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// Mean.
    pub mean: f64,
    /// Half the width of the interval; `None` if it is unknown.
    pub half_width: Option<f64>,
}

impl Mean {
    /// Computes the mean of repeated runs, by Student's t. A value that is not finite makes it infinite.
    fn over(values: &[f64]) -> Self {
        let interval = of_independent(values, LEVEL);
        let mean = values.iter().sum::<f64>() / float(values.len().max(1));
        Self { mean, half_width: interval.map(|interval| interval.half_width) }
    }
}

/// Results of all runs of a rate.
#[derive(Clone, Debug)]
pub struct Point {
    /// Requested rate.
    pub rate: f64,
    /// Runs.
    pub runs: Vec<Measurement>,
    /// Offered calls per second.
    pub offered: Mean,
    /// Calls per second that succeeded in time, up to the last arrival. The interval is by Student's t over several
    /// runs; for a single run, by batch means of its seconds, if these are independent.
    pub throughput: Mean,
    /// Share of calls that succeeded in time, 0 to 1; `None` if none began.
    pub success: Option<Mean>,
    /// Mean time from the main request to its 2xx, in seconds; `None` without a 2xx.
    pub latency_mean: Option<Mean>,
    /// Median of that time.
    pub latency_p50: Option<Mean>,
    /// 99th percentile of that time.
    pub latency_p99: Option<Mean>,
    /// Average CPU use of the server.
    pub processors: Option<Mean>,
    /// Batch means of each run that was long enough.
    pub batches: Vec<Option<ConfidenceInterval>>,
}

impl Point {
    fn new(rate: f64, runs: Vec<Measurement>, within: Duration) -> Self {
        let over = |of: &dyn Fn(&Measurement) -> Option<f64>| {
            let values: Vec<f64> = runs.iter().filter_map(of).collect();
            if values.is_empty() { None } else { Some(Mean::over(&values)) }
        };
        let time = |share: Option<f64>| {
            move |run: &Measurement| {
                let times = run.meter.answer(main_method(&run.meter)?, ResponseClass::Success)?;
                let time = share.map_or_else(|| times.mean(), |share| times.quantile(share));
                (times.count() > 0).then_some(time.as_secs_f64())
            }
        };
        let batches: Vec<_> = runs.iter().map(|run| batch_means(&run.in_time_per_s, LEVEL)).collect();
        let mut throughput = over(&|run| Some(run.throughput)).unwrap_or_default();
        if let [Some(only)] = batches.as_slice() {
            throughput.half_width = Some(only.half_width).filter(|_| !only.is_correlated());
        }
        Self {
            rate,
            offered: over(&|run| Some(per(run.meter.began.offered, run.elapsed.as_secs_f64()))).unwrap_or_default(),
            throughput,
            success: over(&|run| Metric::Success(Some(within)).of(&run.meter)),
            latency_mean: over(&time(None)),
            latency_p50: over(&time(Some(0.5))),
            latency_p99: over(&time(Some(0.99))),
            processors: over(&|run| run.processors),
            batches,
            runs,
        }
    }

    /// Returns why the generator was the bottleneck, if it was in any run.
    #[must_use]
    pub fn bottleneck(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.bottleneck.as_deref())
    }

    /// Returns the calls that limits of the generator refused, over all runs.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.runs.iter().map(|run| run.meter.began.refused).sum()
    }

    /// Returns the counts of all runs together.
    #[must_use]
    pub fn meter(&self) -> Meter {
        let mut sum = Meter::default();
        self.runs.iter().for_each(|run| sum.merge(&run.meter));
        sum
    }
}

/// The sweep. [`next_task`](Self::next_task) and [`handle_measurement`](Self::handle_measured) take turns until there is no
/// next one.
#[derive(Clone, Debug)]
pub struct Sweep {
    settings: Settings,
    points: Vec<Point>,
    /// Completed runs of the current rate.
    runs: Vec<Measurement>,
    number: u32,
    ended_by: Option<RuleCheck>,
}

impl Sweep {
    /// Starts a sweep.
    #[must_use]
    pub fn new(mut settings: Settings) -> Self {
        settings.repeats = settings.repeats.max(1);
        let within = settings.within;
        settings.until.iter_mut().for_each(|rule| *rule = rule.within(within));
        Self { settings, points: Vec::new(), runs: Vec::new(), number: 0, ended_by: None }
    }

    /// Returns the next run; `None` when the sweep is over.
    #[must_use]
    pub fn next_task(&self) -> Option<Task> {
        let rate = *self.settings.rates.0.get(self.points.len()).filter(|_| self.ended_by.is_none())?;
        let repeat = u32::try_from(self.runs.len()).unwrap_or(u32::MAX) + 1;
        Some(Task { rate, repeat, number: self.number + 1 })
    }

    /// Handles the result of [`next_task`](Self::next_task). Returns the rate's point after its last repeat.
    pub fn handle_measurement(&mut self, measured: Measurement) -> Option<&Point> {
        let task = self.next_task()?;
        self.number = task.number;
        self.runs.push(measured);
        if task.repeat < self.settings.repeats {
            return None;
        }
        self.finish(task.rate);
        let meter = self.points.last()?.meter();
        self.ended_by = self.settings.until.iter().map(|rule| rule.check(&meter)).find(|checked| checked.holds);
        self.points.last()
    }

    /// Ends the sweep early: the completed repeats of the current rate become its point.
    pub fn stop(&mut self) {
        if let Some(task) = self.next_task().filter(|_| !self.runs.is_empty()) {
            self.finish(task.rate);
        }
    }

    fn finish(&mut self, rate: f64) {
        let runs = std::mem::take(&mut self.runs);
        self.points.push(Point::new(rate, runs, self.settings.within));
    }

    /// Returns the points of all completed rates.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the parameters.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the condition that ended it.
    #[must_use]
    pub const fn ended_by(&self) -> Option<RuleCheck> {
        self.ended_by
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const fn float(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
