//! Results as they are saved between runs and written as tables.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::capacity::{Capacity, SingleServer};
use super::layout::{Layout, Work};
use super::prediction::{Capacities, compare};
use super::sweep::Sweep;
use crate::quota::Quota;

/// All results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// CPU quota of each server.
    pub quota: Option<Quota>,
    /// Capacities of single servers.
    pub capacities: Vec<Capacity>,
    /// Layouts under increasing load.
    pub sweeps: Vec<Sweep>,
}

impl Results {
    /// Returns the capacity of one server.
    #[must_use]
    pub fn capacity(&self, alone: SingleServer, work: Work) -> Option<&Capacity> {
        self.capacities.iter().find(|one| (one.alone, one.work) == (alone, work))
    }

    /// Returns the capacities of a single server of each stage.
    #[must_use]
    pub fn both(&self, work: Work) -> Option<Capacities> {
        Capacities::of(&self.capacities, work)
    }

    /// Returns the sweep of a layout with equal weights.
    #[must_use]
    pub fn sweep(&self, layout: Layout, work: Work) -> Option<&Sweep> {
        self.weighted(layout, work, &[])
    }

    /// Returns the sweep of a layout with these weights.
    #[must_use]
    pub fn weighted(&self, layout: Layout, work: Work, weights: &[u16]) -> Option<&Sweep> {
        self.sweeps.iter().find(|one| (one.layout, one.work) == (layout, work) && one.weights == weights)
    }

    /// Sorts the results.
    pub fn sort(&mut self) {
        self.capacities.sort_by_key(|one| (one.work, one.alone));
        self.sweeps.sort_by(|one, other| {
            let key = |sweep: &Sweep| (sweep.work, sweep.layout, sweep.weights.clone());
            key(one).cmp(&key(other))
        });
    }

    /// Writes the results as tables into a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_csv(&self, folder: &Path) -> Result<(), csv::Error> {
        std::fs::create_dir_all(folder)?;
        let mut capacities = csv::Writer::from_path(folder.join("capacity.csv"))?;
        capacities.write_record(["capacity", "work", "closed_loop_per_s", "rate_per_s", "cost_us"])?;
        for one in &self.capacities {
            let numbers = [one.closed, one.rate, one.cost_us].map(|number| format!("{number:.2}"));
            capacities.write_record([one.alone.to_string(), one.work.to_string()].iter().chain(&numbers))?;
        }
        capacities.flush()?;
        let mut points = csv::Writer::from_path(folder.join("sweep.csv"))?;
        points.write_record(POINT_HEAD)?;
        for sweep in &self.sweeps {
            self.point_rows(sweep).into_iter().try_for_each(|row| points.write_record(row))?;
        }
        Ok(points.flush()?)
    }

    fn point_rows(&self, sweep: &Sweep) -> Vec<Vec<String>> {
        let compared = self.both(sweep.work).map(|both| compare(sweep, both)).unwrap_or_default();
        let words = |numbers: Vec<String>| numbers.join(" ");
        let shares = words(sweep.shares.iter().map(|share| format!("{share:.3}")).collect());
        let weights = words(sweep.weights.iter().map(u16::to_string).collect());
        let maybe = |value: Option<f64>| value.map(|value| format!("{value:.3}")).unwrap_or_default();
        let rows = sweep.points.iter().enumerate().map(|(at, point)| {
            let outcome = &point.outcome;
            let known = [sweep.work.to_string(), sweep.layout.to_string(), weights.clone(), shares.clone()];
            let numbers = [
                Some(point.asked),
                Some(outcome.offered),
                Some(outcome.goodput),
                compared.get(at).map(|one| one.predicted),
                Some(outcome.refused),
                outcome.p50_ms,
                outcome.p99_ms,
                Some(outcome.first_throttled),
                Some(outcome.second_throttled),
            ];
            known.into_iter().chain(numbers.map(maybe)).chain([outcome.is_late.to_string()]).collect()
        });
        rows.collect()
    }
}

const POINT_HEAD: [&str; 14] = [
    "work",
    "layout",
    "weights",
    "shares",
    "asked_per_s",
    "offered_per_s",
    "goodput_per_s",
    "predicted_per_s",
    "refused_per_s",
    "p50_ms",
    "p99_ms",
    "first_throttled_percent",
    "second_throttled_percent",
    "generator_late",
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::two_stage::load::Outcome;
    use crate::two_stage::paper;
    use crate::two_stage::sweep::Point;

    /// Returns results that match the plan exactly, except for a cluster of pairs that carries a fifth less.
    pub(crate) fn some() -> Results {
        let mut results = Results { quota: Some(Quota { quota_us: 1_000, period_us: 10_000 }), ..Results::default() };
        for (work, first, second) in [(Work::Calls, 1_050.0, 900.0), (Work::Registrations, 2_500.0, 2_400.0)] {
            for (alone, rate) in [(SingleServer::First, first), (SingleServer::Second, second)] {
                results.capacities.push(Capacity { alone, work, closed: rate, rate, cost_us: 1e5 / rate });
            }
            let layouts = Layout::PAPER.into_iter().chain([Layout::WIDE, Layout::PAIRS]);
            let mut all: Vec<Sweep> = layouts.map(|layout| sweep(&results, layout, work, &[])).collect();
            all.push(sweep(&results, Layout::new(2, 2, 1), work, &paper::WEIGHTS));
            results.sweeps.extend(all);
        }
        let mixed = sweep(&results, Layout::new(1, 1, 1), Work::Mixed(50), &[]);
        results.sweeps.push(mixed);
        results
    }

    fn sweep(results: &Results, layout: Layout, work: Work, weights: &[u16]) -> Sweep {
        let shares = match weights {
            [] => vec![1.0 / f64::from(layout.clusters); layout.clusters as usize],
            _ => vec![0.6, 0.4],
        };
        let plan = results.both(work).and_then(|both| both.plan(layout, &shares)).expect("capacities and shares");
        let part = if layout.servers > 1 { 0.8 } else { 1.0 };
        let points = [0.5, 1.0, 1.5].map(|times| {
            let offered = times * plan.capacity();
            let outcome = Outcome { offered, goodput: part * plan.throughput(offered), ..Outcome::default() };
            Point { asked: offered, outcome }
        });
        Sweep { layout, work, weights: weights.to_vec(), shares, points: points.to_vec() }
    }

    #[test]
    fn tables_are_saved_as_csv() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = serde_json::to_string(&some()).expect("JSON");
        let mut read: Results = serde_json::from_str(&text).expect("the same");
        read.sort();
        read.write_csv(folder.path()).expect("written");
        let table = std::fs::read_to_string(folder.path().join("sweep.csv")).expect("it is there");
        assert_eq!(table.lines().count(), 1 + 3 * 19);
        assert!(table.contains("calls,S2P2,60 40,0.600 0.400,870.000,870.000,870.000,870.000,"), "{table}");
        assert!(folder.path().join("capacity.csv").is_file());
    }
}
