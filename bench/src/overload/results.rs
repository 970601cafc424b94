//! Results as they are saved between runs and written as tables.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::avalanche::Avalanche;
use super::contender::{Contender, Mode};
use super::cost::Cost;
use super::flood_impact::{FloodResult, ReflectionResult};
use super::load::Outcome;
use super::step::StepResult;
use crate::quota::Quota;
use crate::register::rounds::median;

/// Highest rate that a server carried in one search.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// Contender under test.
    pub contender: Contender,
    /// Transport and authentication.
    pub mode: Mode,
    /// Round, from 1.
    pub round: usize,
    /// Calls per second.
    pub rate: f64,
    /// Throughput in a closed loop.
    pub closed: f64,
    /// 99th percentile from INVITE to 200 at the rate, in milliseconds.
    pub p99_ms: f64,
}

/// Results of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LoadResult {
    /// Contender under test.
    pub contender: Contender,
    /// Transport and authentication.
    pub mode: Mode,
    /// Load as a multiple of the capacity.
    pub times: f64,
    /// Capacity in calls per second.
    pub capacity: f64,
    /// Counted seconds.
    pub seconds: u64,
    /// Results at this load.
    pub outcome: Outcome,
}

impl LoadResult {
    /// Returns the goodput in percent of the capacity.
    #[must_use]
    pub fn goodput_percent(&self) -> f64 {
        100.0 * self.outcome.goodput / self.capacity
    }

    /// Returns the goodput in percent of the possible one: the capacity, or the offered load if that is less.
    #[must_use]
    pub fn possible_percent(&self) -> f64 {
        self.goodput_percent() / self.times.min(1.0)
    }
}

/// All results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// CPU quota of each server.
    pub quota: Option<Quota>,
    /// Searches.
    pub capacities: Vec<Capacity>,
    /// Loads.
    pub loads: Vec<LoadResult>,
    /// Steps.
    pub steps: Vec<StepResult>,
    /// Floods.
    pub floods: Vec<FloodResult>,
    /// Datagrams sent to spoofed addresses.
    pub reflections: Vec<ReflectionResult>,
    /// Simultaneous registrations.
    pub avalanches: Vec<Avalanche>,
    /// Costs of control below the capacity.
    pub costs: Vec<Cost>,
}

impl Results {
    /// Returns the median of the searches of one contender.
    #[must_use]
    pub fn own_capacity(&self, contender: Contender, mode: Mode) -> Option<f64> {
        let found = self.capacities.iter().filter(|found| found.contender == contender && found.mode == mode);
        let rates: Vec<f64> = found.map(|found| found.rate).collect();
        (!rates.is_empty()).then(|| median(rates))
    }

    /// Returns 1× of a contender: the higher of its program's capacities with and without control.
    #[must_use]
    pub fn capacity(&self, contender: Contender, mode: Mode) -> Option<f64> {
        contender.family().into_iter().filter_map(|one| self.own_capacity(one, mode)).max_by(f64::total_cmp)
    }

    /// Returns the results of a load.
    #[must_use]
    pub fn load(&self, contender: Contender, mode: Mode, times: f64) -> Option<&LoadResult> {
        self.loads.iter().find(|one| one.contender == contender && one.mode == mode && one.times == times)
    }

    /// Returns all measured loads, ascending.
    #[must_use]
    pub fn times(&self, mode: Mode) -> Vec<f64> {
        let mut all: Vec<f64> = self.loads.iter().filter(|one| one.mode == mode).map(|one| one.times).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    /// Writes a table of each part into a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_csv(&self, folder: &Path) -> Result<(), csv::Error> {
        std::fs::create_dir_all(folder)?;
        if !self.capacities.is_empty() {
            let head = ["contender", "mode", "round", "calls_per_s", "closed_loop_per_s", "p99_ms"];
            let rows = self.capacities.iter().map(|one| {
                let Capacity { contender, mode, round, rate, closed, p99_ms } = one;
                [contender.to_string(), mode.name().to_owned(), round.to_string()]
                    .into_iter()
                    .chain([*rate, *closed, *p99_ms].map(|value| format!("{value:.1}")))
                    .collect()
            });
            write(&folder.join("capacity.csv"), &head, rows)?;
        }
        if !self.loads.is_empty() {
            write(&folder.join("load.csv"), &LOAD_HEAD, self.loads.iter().map(load_row))?;
        }
        if !self.steps.is_empty() {
            let head = ["contender", "times", "capacity", "at_s", "offered_per_s", "carried_per_s"];
            let rows = self.steps.iter().flat_map(|one| {
                one.seconds().into_iter().map(|(at, offered, carried)| {
                    let first = [one.contender.to_string(), one.times.to_string(), format!("{:.1}", one.capacity)];
                    let rest = [at, offered, carried].map(|value| format!("{value:.1}"));
                    first.into_iter().chain(rest).collect()
                })
            });
            write(&folder.join("step.csv"), &head, rows)?;
        }
        if !self.floods.is_empty() {
            write(&folder.join("flood.csv"), &FLOOD_HEAD, self.floods.iter().map(flood_row))?;
        }
        if !self.reflections.is_empty() {
            let head = ["contender", "flood", "sent", "sent_bytes", "answers", "answer_bytes"];
            let rows = self.reflections.iter().flat_map(|one| {
                one.kinds.iter().map(|(kind, tally)| {
                    let counts = [tally.sent, tally.sent_bytes, tally.answers, tally.answer_bytes];
                    let first = [one.contender.to_string(), kind.to_string()];
                    first.into_iter().chain(counts.map(|count| count.to_string())).collect()
                })
            });
            write(&folder.join("reflection.csv"), &head, rows)?;
        }
        if !self.avalanches.is_empty() {
            let head = ["contender", "phones", "registered", "recovery_s", "refused"];
            let rows = self.avalanches.iter().map(|one| {
                let recovery = one.recovery_s.map(|value| format!("{value:.1}")).unwrap_or_default();
                vec![
                    one.contender.to_string(),
                    one.phones.to_string(),
                    one.registered.to_string(),
                    recovery,
                    one.refused.to_string(),
                ]
            });
            write(&folder.join("avalanche.csv"), &head, rows)?;
        }
        Ok(())
    }
}

const LOAD_HEAD: [&str; 17] = [
    "contender",
    "mode",
    "times",
    "capacity",
    "seconds",
    "offered_per_s",
    "goodput_per_s",
    "carried_percent",
    "byes_percent",
    "p50_ms",
    "p99_ms",
    "refused_per_s",
    "repeats_per_s",
    "processors",
    "throttled_percent",
    "drops_per_s",
    "generator_late",
];
const FLOOD_HEAD: [&str; 11] = [
    "contender",
    "flood",
    "flood_per_s",
    "calls_per_s",
    "carried_percent",
    "p50_ms",
    "p99_ms",
    "sent_bytes",
    "answer_bytes",
    "processors",
    "generator_late",
];

fn maybe(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

fn load_row(one: &LoadResult) -> Vec<String> {
    let Outcome {
        offered,
        goodput,
        carried,
        byes,
        p50_ms,
        p99_ms,
        refused,
        repeats,
        processors,
        throttled,
        drops,
        is_late,
    } = one.outcome;
    let number = |value: f64| format!("{value:.3}");
    vec![
        one.contender.to_string(),
        one.mode.name().to_owned(),
        one.times.to_string(),
        number(one.capacity),
        one.seconds.to_string(),
        number(offered),
        number(goodput),
        number(carried),
        maybe(byes),
        maybe(p50_ms),
        maybe(p99_ms),
        number(refused),
        number(repeats),
        number(processors),
        number(throttled),
        number(drops),
        is_late.to_string(),
    ]
}

fn flood_row(one: &FloodResult) -> Vec<String> {
    let number = |value: f64| format!("{value:.3}");
    let calls = &one.calls;
    vec![
        one.contender.to_string(),
        one.kind.map_or_else(|| "none".to_owned(), |kind| kind.to_string()),
        number(one.rate),
        number(calls.offered),
        number(calls.carried),
        maybe(calls.p50_ms),
        maybe(calls.p99_ms),
        one.tally.sent_bytes.to_string(),
        one.tally.answer_bytes.to_string(),
        number(calls.processors),
        calls.is_late.to_string(),
    ]
}

fn write(file: &Path, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_path(file)?;
    writer.write_record(head)?;
    for row in rows {
        writer.write_record(row)?;
    }
    Ok(writer.flush()?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::overload::flood::{Kind, Tally};
    use crate::overload::step::Point;

    /// Returns sample results of every part.
    pub(crate) fn some() -> Results {
        let mut results = Results { quota: Some(Quota { quota_us: 2_000, period_us: 25_000 }), ..Results::default() };
        for (contender, rate) in
            [(Contender::Control, 1_000.0), (Contender::Plain, 1_040.0), (Contender::Kamailio, 900.0)]
        {
            for (round, factor) in [(1, 0.9), (2, 1.0), (3, 1.2)] {
                let mode = Mode::Udp;
                let one = Capacity { contender, mode, round, rate: rate * factor, closed: 1_100.0, p99_ms: 40.0 };
                results.capacities.push(one);
            }
        }
        for contender in Contender::ALL {
            let capacity = results.capacity(contender, Mode::Udp).unwrap_or(1.0);
            for times in [0.5, 1.0, 10.0] {
                let outcome = Outcome {
                    offered: times * capacity,
                    goodput: 0.9 * capacity * f64::min(times, 1.0),
                    carried: 90.0,
                    byes: Some(99.95),
                    p50_ms: Some(3.0),
                    p99_ms: (times < 2.0).then_some(40.0),
                    ..Outcome::default()
                };
                results.loads.push(LoadResult { contender, mode: Mode::Udp, times, capacity, seconds: 60, outcome });
            }
            let tally = Tally { sent: 10, sent_bytes: 5_000, answers: 5, answer_bytes: 2_000 };
            let calls = Outcome { carried: 97.0, p99_ms: Some(80.0), ..Outcome::default() };
            for kind in [None].into_iter().chain(Kind::ALL.map(Some)) {
                results.floods.push(FloodResult { contender, kind, calls, tally, rate: 5_000.0 });
            }
            results
                .reflections
                .push(ReflectionResult { contender, kinds: Kind::ALL.map(|kind| (kind, tally)).to_vec() });
            let points = (0..500_u64).map(|tenth| {
                let carried = tenth * 50;
                Point { at_s: tenth as f64 / 10.0, offered: tenth * 50, carried, ..Point::default() }
            });
            let points = points.collect();
            results.steps.push(StepResult { contender, times: 10.0, capacity, step_s: 30.0, points });
        }
        results
    }

    #[test]
    fn capacity_is_the_best_of_the_program() {
        let results = some();
        assert_eq!(results.own_capacity(Contender::Control, Mode::Udp), Some(1_000.0));
        assert_eq!(results.capacity(Contender::Control, Mode::Udp), Some(1_040.0));
        assert_eq!(results.capacity(Contender::Limits, Mode::Udp), Some(900.0));
        assert_eq!(results.capacity(Contender::Control, Mode::Tcp), None);
        assert_eq!(results.times(Mode::Udp), [0.5, 1.0, 10.0]);
    }

    #[test]
    fn tables_are_saved_as_csv() {
        let folder = tempfile::tempdir().expect("a folder");
        let results = some();
        let text = serde_json::to_string(&results).expect("JSON");
        let read: Results = serde_json::from_str(&text).expect("the same");
        read.write_csv(folder.path()).expect("written");
        let table = std::fs::read_to_string(folder.path().join("load.csv")).expect("it is there");
        assert_eq!(table.lines().count(), 13);
        assert!(table.contains("Strowger,UDP,10,1040.000,60,10400.000,936.000,90.000,99.950,3.000,,"), "{table}");
        assert!(folder.path().join("flood.csv").is_file() && !folder.path().join("avalanche.csv").exists());
    }
}
