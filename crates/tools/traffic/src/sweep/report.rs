//! Output of a sweep for people and programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{LEVEL, Mean, Point, Sweep};
use crate::output::percent;

/// A sweep and its description.
#[derive(Clone, Debug)]
pub struct SweepReport {
    /// Workload.
    pub workload: String,
    /// Destination of calls.
    pub to: String,
    /// Arrival law.
    pub arrivals: String,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Command that restarted the server before each run.
    pub restart: Option<String>,
    /// Length of each run, for people.
    pub length: String,
    /// Whether it was stopped early.
    pub was_stopped: bool,
    /// Sweep.
    pub sweep: Sweep,
}

/// A rate as a line of a table.
#[derive(Clone, Copy, Debug)]
pub struct PointReport<'a>(pub &'a Point);

impl PointReport<'_> {
    /// Returns the column heads.
    #[must_use]
    pub fn head() -> String {
        format!(
            "{:>10}  {:>20}  {:>9}  {:>12}  {:>12}  {:>12}  {:>7}",
            "offered/s", "in time/s", "success", "mean", "p50", "p99", "server"
        )
    }
}

impl std::fmt::Display for PointReport<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let point = self.0;
        let half = point.throughput.half_width.map(|half| format!(" ± {half:.1}")).unwrap_or_default();
        let throughput = format!("{:.1}{half}", point.throughput.mean);
        let time = |mean: Option<Mean>| {
            let time = mean.and_then(|mean| std::time::Duration::try_from_secs_f64(mean.mean).ok());
            time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1?}"))
        };
        let busy = point.processors.map_or_else(|| "-".to_owned(), |busy| format!("{:.2}", busy.mean));
        write!(
            f,
            "{:>10.1}  {throughput:>20}  {:>9}  {:>12}  {:>12}  {:>12}  {busy:>7}",
            point.offered.mean,
            point.success.map_or_else(|| "-".to_owned(), |success| format!("{}%", percent(100.0 * success.mean))),
            time(point.latency_mean),
            time(point.latency_p50),
            time(point.latency_p99),
        )?;
        if point.bottleneck().is_some() { f.write_str("  THE GENERATOR WAS THE BOTTLENECK") } else { Ok(()) }
    }
}

impl SweepReport {
    /// Returns why it ended, in a sentence.
    #[must_use]
    pub fn ending(&self) -> String {
        match (self.was_stopped, self.sweep.ended_by()) {
            (true, _) => "stopped early".to_owned(),
            (false, Some(checked)) => format!("ended by {}: {}", checked.rule, {
                let metric = checked.rule.metric();
                checked.measured.map(|value| format!("{metric} {}", metric.show(value))).unwrap_or_default()
            }),
            (false, None) => "all rates were run".to_owned(),
        }
    }

    /// Returns the lowest rate with the highest throughput; above it, differences of a hundredth are noise.
    #[must_use]
    pub fn peak(&self) -> Option<&Point> {
        let highest = self.sweep.points().iter().map(|point| point.throughput.mean).fold(0.0, f64::max);
        self.sweep.points().iter().find(|point| point.throughput.mean >= 0.99 * highest)
    }

    /// Returns the lowest rate at which the generator was the bottleneck, and why.
    #[must_use]
    pub fn bottleneck(&self) -> Option<(f64, &str)> {
        self.sweep.points().iter().find_map(|point| Some((point.rate, point.bottleneck()?)))
    }

    /// Returns everything for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let settings = self.sweep.settings();
        json!({
            "sweep": "rate", "workload": self.workload, "to": self.to, "arrivals": self.arrivals, "seed": self.seed,
            "restart": self.restart, "length": self.length, "was_stopped": self.was_stopped, "ending": self.ending(),
            "repeats": settings.repeats, "within_s": settings.within.as_secs_f64(), "confidence_level": LEVEL,
            "until": settings.until.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "points": self.sweep.points().iter().map(|point| self.point_json(point)).collect::<Vec<_>>(),
        })
    }

    fn point_json(&self, point: &Point) -> Value {
        let within = self.sweep.settings().within;
        let runs = point.runs.iter().zip(&point.batches).map(|(run, batches)| {
            let began = run.meter.began;
            json!({
                "elapsed_s": run.elapsed.as_secs_f64(), "offered": began.offered, "refused": began.refused, "sent": began.sent,
                "carried": began.carried, "lost": began.lost, "failed": began.failed, "unfinished": began.unfinished,
                "in_time": run.meter.slowest.within(within), "in_time_per_s": run.throughput,
                "server_processors": run.processors, "bottleneck": run.bottleneck,
                "in_time_per_s_batches": batches.map(|interval| json!({ "mean": interval.mean, "half_width": interval.half_width,
                    "batches": interval.batches, "is_correlated": interval.is_correlated() })),
            })
        });
        json!({
            "rate": point.rate, "offered_per_s": mean_json(Some(point.offered), 1.0),
            "throughput_per_s": mean_json(Some(point.throughput), 1.0), "success": mean_json(point.success, 1.0),
            "latency_us": { "mean": mean_json(point.latency_mean, 1e6), "p50": mean_json(point.latency_p50, 1e6),
                "p99": mean_json(point.latency_p99, 1e6) },
            "server_processors": mean_json(point.processors, 1.0), "refused": point.refused(), "bottleneck": point.bottleneck(),
            "runs": runs.collect::<Vec<_>>(),
        })
    }

    /// Returns one line per rate; unknown values are empty.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = "rate,runs,offered_per_s,throughput_per_s,throughput_half_width,success,mean_us,mean_half_width_us,p50_us,p99_us,\
            p99_half_width_us,server_processors,refused,was_bottleneck\n"
            .to_owned();
        let cell = |value: Option<f64>| value.map(|value| format!("{value:.3}")).unwrap_or_default();
        for point in self.sweep.points() {
            let us = |mean: Option<Mean>| cell(mean.map(|mean| 1e6 * mean.mean));
            let half_us = |mean: Option<Mean>| cell(mean.and_then(|mean| mean.half_width).map(|half| 1e6 * half));
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{},{},{:.3},{:.3},{},{},{},{},{},{},{},{},{},{}",
                point.rate,
                point.runs.len(),
                point.offered.mean,
                point.throughput.mean,
                cell(point.throughput.half_width),
                point.success.map(|success| format!("{:.6}", success.mean)).unwrap_or_default(),
                us(point.latency_mean),
                half_us(point.latency_mean),
                us(point.latency_p50),
                us(point.latency_p99),
                half_us(point.latency_p99),
                cell(point.processors.map(|busy| busy.mean)),
                point.refused(),
                point.bottleneck().is_some()
            );
        }
        text
    }
}

fn mean_json(mean: Option<Mean>, by: f64) -> Value {
    mean.map_or(
        Value::Null,
        |mean| json!({ "mean": by * mean.mean, "half_width": mean.half_width.map(|half| by * half) }),
    )
}
