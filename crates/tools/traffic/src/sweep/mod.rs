//! Throughput against load: rate after rate, each several times, until the server is past what it can do.
//!
//! [`Sweep`] says what to run next and is told what came of it; it runs nothing itself.

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

/// The level of confidence intervals.
pub const LEVEL: f64 = 0.95;
/// Rates at most.
const MAX_RATES: usize = 10_000;

/// The rates of a sweep, in rising order.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates(Vec<f64>);

impl Rates {
    /// Reads `100..2400/100`, both ends included, or single rates, `100,200,400`.
    ///
    /// # Errors
    /// What is wrong, and how it is written.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let wrong = |what: &str| {
            RuleError(format!(
                "'{text}' {what}; rates are FROM..TO/STEP, as 100..2400/100, or single ones, as 100,200,400"
            ))
        };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
        let Some((from, rest)) = text.split_once("..") else {
            let rates: Option<Vec<f64>> = text.split(',').map(number).collect();
            let rates = rates.ok_or_else(|| wrong("is no rate above 0"))?;
            let is_rising = rates.is_sorted_by(|a, b| a < b);
            return if is_rising { Ok(Self(rates)) } else { Err(wrong("does not rise")) };
        };
        let (to, step) = rest.split_once('/').ok_or_else(|| wrong("has no step"))?;
        let all = number(from).zip(number(to)).zip(number(step));
        let ((from, to), step) = all.ok_or_else(|| wrong("has something in it that is no number above 0"))?;
        if to < from {
            return Err(wrong("ends before it begins"));
        }
        // Ends are included although fractions are not exact.
        let steps = ((to - from) / step + 1e-9).floor();
        if steps >= float(MAX_RATES) {
            return Err(wrong("has more than 10000 rates"));
        }
        let rates = (0..MAX_RATES).map(float).take_while(|number| *number <= steps);
        // 0.30000000000000004 is nobody's rate.
        let exact = |rate: f64| format!("{rate:.11e}").parse().unwrap_or(rate);
        Ok(Self(rates.map(|number| exact(from + number * step)).collect()))
    }

    /// Them.
    #[must_use]
    pub fn all(&self) -> &[f64] {
        &self.0
    }
}

/// What is swept.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The rates.
    pub rates: Rates,
    /// How often each.
    pub repeats: u32,
    /// How long each request of a call may take for the call to be a success.
    pub within: Duration,
    /// What ends it, where any of them comes true over all runs of a rate.
    pub until: Vec<Rule>,
}

/// What to run next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// The rate.
    pub rate: f64,
    /// Which of the repeats, from 1.
    pub repeat: u32,
    /// Which of all runs, from 1.
    pub number: u32,
}

/// What one run showed.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// What was counted.
    pub meter: Meter,
    /// How long it was.
    pub elapsed: Duration,
    /// Calls a second that ended well and in time, slice by slice up to the last arrival; empty where the run was shorter than one.
    pub in_time_per_s: Vec<f64>,
    /// The mean of that.
    pub throughput: f64,
    /// Processors that the server kept busy, where it was watched.
    pub processors: Option<f64>,
    /// Why the generator was the bottleneck, where it was.
    pub bottleneck: Option<String>,
}

impl Measurement {
    /// What a report says of it, where each request of a call may take so long.
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
            // That calls were late may be the machine's doing; that they were kept back is not.
            bottleneck: (phase.links.exhaustion())
                .or_else(|| kept_back(meter.began.refused))
                .or_else(|| phase.bottleneck()),
        }
    }
}

/// The slices in which calls came: what ends behind the last arrival would count for too little time.
fn in_time_per_s(phase: &PhaseReport, within: Duration) -> Vec<f64> {
    let width = phase.series.width().as_secs_f64();
    let whole = whole(phase.elapsed.as_secs_f64() / width);
    // Before the shortest call is over, none can have ended.
    let shortest = phase.meter().durations.quantile(0.0).as_secs_f64();
    let empty = whole_above(shortest / width).min(whole / 2);
    let slices = phase.series.slices().iter().take(whole).skip(empty);
    slices.map(|slice| per(slice.ended.within(within), width)).collect()
}

/// So many whole ones; fractions are not exact.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, not negative, and saturating")]
fn whole(number: f64) -> usize {
    (number + 1e-6).floor() as usize
}

/// So many that it reaches into, but for little.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, not negative, and saturating")]
fn whole_above(number: f64) -> usize {
    (number - 0.02).ceil() as usize
}

/// A mean with what is known of its confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval around it; `None` where one cannot be told.
    pub half_width: Option<f64>,
}

impl Mean {
    /// Over repeated runs, by Student's t. Those that are not finite make the mean infinite.
    fn over(values: &[f64]) -> Self {
        let interval = of_independent(values, LEVEL);
        let mean = values.iter().sum::<f64>() / float(values.len().max(1));
        Self { mean, half_width: interval.map(|interval| interval.half_width) }
    }
}

/// What all runs of a rate showed.
#[derive(Clone, Debug)]
pub struct Point {
    /// The rate that was wanted.
    pub rate: f64,
    /// The runs.
    pub runs: Vec<Measurement>,
    /// Calls a second that were offered.
    pub offered: Mean,
    /// Calls a second that succeeded in time, up to the last arrival. Of several runs, the confidence is by Student's t over them; of a
    /// single one, by batch means of its seconds, where these do not depend on each other.
    pub throughput: Mean,
    /// The share of calls that succeeded in time, 0 to 1; `None` where none was sent.
    pub success: Option<Mean>,
    /// The mean time from the main request to its 2xx, in seconds; `None` where there was no 2xx.
    pub latency_mean: Option<Mean>,
    /// Its median.
    pub latency_p50: Option<Mean>,
    /// Its 99th percentile.
    pub latency_p99: Option<Mean>,
    /// Processors that the server kept busy.
    pub processors: Option<Mean>,
    /// The batch means of each run, where it was long enough for them.
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

    /// Why the generator was the bottleneck, where it was in any of the runs.
    #[must_use]
    pub fn bottleneck(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.bottleneck.as_deref())
    }

    /// Calls that limits of the generator kept back, in all runs.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.runs.iter().map(|run| run.meter.began.refused).sum()
    }

    /// Everything that its runs counted together.
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
    /// The runs of the rate that is being run.
    runs: Vec<Measurement>,
    number: u32,
    ended_by: Option<RuleCheck>,
}

impl Sweep {
    /// Begins.
    #[must_use]
    pub fn new(mut settings: Settings) -> Self {
        settings.repeats = settings.repeats.max(1);
        let within = settings.within;
        settings.until.iter_mut().for_each(|rule| *rule = rule.within(within));
        Self { settings, points: Vec::new(), runs: Vec::new(), number: 0, ended_by: None }
    }

    /// What to run; `None` when it is over.
    #[must_use]
    pub fn next_task(&self) -> Option<Task> {
        let rate = *self.settings.rates.0.get(self.points.len()).filter(|_| self.ended_by.is_none())?;
        let repeat = u32::try_from(self.runs.len()).unwrap_or(u32::MAX) + 1;
        Some(Task { rate, repeat, number: self.number + 1 })
    }

    /// What came of [`next_task`](Self::next_task). The rate's point, where this was the last of its repeats.
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

    /// Ends it early: a rate of which some repeats were run becomes a point of those.
    pub fn stop(&mut self) {
        if let Some(task) = self.next_task().filter(|_| !self.runs.is_empty()) {
            self.finish(task.rate);
        }
    }

    fn finish(&mut self, rate: f64) {
        let runs = std::mem::take(&mut self.runs);
        self.points.push(Point::new(rate, runs, self.settings.within));
    }

    /// The rates that were run.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// What is swept.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The condition that ended it.
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
