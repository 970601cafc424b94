//! Measured results as they are saved between runs. A run can start from such a file, so a long measurement can be
//! done in parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::peer::Peer;
use super::scenario::Scenario;
use super::steps::Load;
use crate::callgrind::Parts;

/// A figure of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// Successful calls or registrations per second.
    Rate,
    /// Share of started calls or registrations that failed, in percent.
    Lost,
    /// Median time from the request to the response that the scenario measures, in microseconds.
    P50,
    /// 99th percentile of that time, in microseconds.
    P99,
    /// Processor time of all server processes per call or registration, in microseconds.
    Processor,
    /// Share of that spent in the kernel, in percent.
    Kernel,
    /// Average number of cores that the server kept busy.
    Cores,
    /// Context switches per call or registration.
    Switches,
    /// Peak resident memory of its processes in MiB, shared memory counted once.
    Memory,
    /// Datagrams dropped by the server's sockets.
    Drops,
    /// 1 if the generator fell behind, so that the times include its own delay.
    Late,
}

/// Figures of a load. Those that could not be measured are missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures(BTreeMap<Key, f64>);

impl Figures {
    /// Stores a figure unless it is NaN.
    pub fn put(&mut self, key: Key, value: f64) {
        if value.is_finite() {
            self.0.insert(key, value);
        }
    }

    /// Returns a figure.
    #[must_use]
    pub fn of(&self, key: Key) -> Option<f64> {
        self.0.get(&key).copied()
    }
}

/// A server, started once, under all loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerRun {
    /// Scenario of the load.
    pub scenario: Scenario,
    /// Server under test.
    pub peer: Peer,
    /// Round, from 1.
    pub round: usize,
    /// Figures of one of the loads before the steady state.
    pub first: Option<(Load, Figures)>,
    /// Figures of each load, in order.
    pub loads: Vec<(Load, Figures)>,
    /// Processor time per call from the start: seconds, microseconds.
    pub course: Vec<(f64, f64)>,
    /// Bytes per answered call until its timers end.
    pub answered_bytes: Option<f64>,
    /// Private and shared memory at the end, in MiB.
    pub memory: (f64, f64),
}

impl ServerRun {
    /// Returns a figure under a load.
    #[must_use]
    pub fn figure(&self, load: Load, key: Key) -> Option<f64> {
        self.loads.iter().find(|(its, _)| *its == load).and_then(|(_, figures)| figures.of(key))
    }
}

/// The highest rate that a server sustains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Highest {
    /// Scenario of the load.
    pub scenario: Scenario,
    /// Server under test.
    pub peer: Peer,
    /// Rate per second.
    pub rate: f64,
    /// Whether the generator was the bottleneck.
    pub is_generators: bool,
}

/// A value for a scenario and a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Scenario of the load.
    pub scenario: Scenario,
    /// Server under test.
    pub peer: Peer,
    /// Measured value.
    pub value: f64,
}

/// All results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// All runs.
    pub turns: Vec<ServerRun>,
    /// Highest sustained rates of each round.
    pub highest: Vec<Highest>,
    /// User-mode instructions per unit of work.
    #[serde(default)]
    pub parts: Vec<(Scenario, Peer, Parts)>,
    /// Bytes per ringing call.
    pub ringing_bytes: Vec<Figure>,
}

impl Results {
    /// Returns the highest sustained rates of a server, one per round.
    pub fn highest(&self, scenario: Scenario, peer: Peer) -> impl Iterator<Item = &Highest> {
        self.highest.iter().filter(move |found| found.scenario == scenario && found.peer == peer)
    }

    /// Returns their median.
    #[must_use]
    pub fn highest_rate(&self, scenario: Scenario, peer: Peer) -> Option<f64> {
        middle(self.highest(scenario, peer).map(|found| found.rate).collect())
    }

    /// Returns the instructions of a server.
    #[must_use]
    pub fn parts(&self, scenario: Scenario, peer: Peer) -> Option<&Parts> {
        self.parts.iter().find(|(its, of, _)| (*its, *of) == (scenario, peer)).map(|(_, _, parts)| parts)
    }

    /// Returns the runs of a server.
    pub fn of(&self, scenario: Scenario, peer: Peer) -> impl Iterator<Item = &ServerRun> {
        self.turns.iter().filter(move |turn| turn.scenario == scenario && turn.peer == peer)
    }

    /// Returns whether a run is done.
    #[must_use]
    pub fn has(&self, scenario: Scenario, peer: Peer, round: usize) -> bool {
        self.of(scenario, peer).any(|turn| turn.round == round)
    }

    /// Returns the measured loads of a scenario, ascending.
    #[must_use]
    pub fn loads(&self, scenario: Scenario) -> Vec<Load> {
        let turns = self.turns.iter().filter(|turn| turn.scenario == scenario);
        let mut loads: Vec<Load> = turns.flat_map(|turn| turn.loads.iter().map(|(load, _)| *load)).collect();
        loads.sort_by_key(|load| match load {
            Load::Rate(rate) => (0, *rate),
            Load::Saturation(count) => (1, *count),
        });
        loads.dedup();
        loads
    }

    /// Returns the highest load if it is saturation.
    #[must_use]
    pub fn saturation(&self, scenario: Scenario) -> Option<Load> {
        self.loads(scenario).pop().filter(|load| matches!(load, Load::Saturation(_)))
    }

    /// Returns a figure of a server under a load for each of its runs.
    #[must_use]
    pub fn all(&self, scenario: Scenario, peer: Peer, load: Load, key: Key) -> Vec<f64> {
        self.of(scenario, peer).filter_map(|turn| turn.figure(load, key)).collect()
    }

    /// Returns the median of that figure.
    #[must_use]
    pub fn median(&self, scenario: Scenario, peer: Peer, load: Load, key: Key) -> Option<f64> {
        middle(self.all(scenario, peer, load, key))
    }

    /// Returns the ratio of two servers' figures: the median of the ratios per round, because the runs of a round
    /// follow each other directly and the machine may be slower in another round.
    #[must_use]
    pub fn ratio(&self, scenario: Scenario, (one, other): (Peer, Peer), load: Load, key: Key) -> Option<f64> {
        let ratios = self.of(scenario, one).filter_map(|turn| {
            let beside = self.of(scenario, other).find(|its| its.round == turn.round)?;
            Some(turn.figure(load, key)? / beside.figure(load, key)?).filter(|ratio| ratio.is_finite())
        });
        middle(ratios.collect())
    }

    /// Returns the ratio of the processor time per unit before the steady state to that in it, at the same load.
    #[must_use]
    pub fn first_by_warm(&self, scenario: Scenario, peer: Peer) -> Option<f64> {
        let ratios = self.of(scenario, peer).filter_map(|turn| {
            let (load, cold) = turn.first.as_ref()?;
            Some(cold.of(Key::Processor)? / turn.figure(*load, Key::Processor)?)
        });
        middle(ratios.collect())
    }
}

/// Returns the value of a scenario and a server.
#[must_use]
pub fn single(list: &[Figure], scenario: Scenario, peer: Peer) -> Option<f64> {
    list.iter().find(|one| one.scenario == scenario && one.peer == peer).map(|one| one.value)
}

/// Returns the median, if any; for an even number the mean of the middle two.
#[must_use]
pub fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(*values.get(low)?, *values.get(high)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(middle(Vec::new()), None);
        assert_eq!(middle(vec![5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(middle(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn nan_values_are_dropped() {
        let mut figures = Figures::default();
        figures.put(Key::P50, f64::NAN);
        figures.put(Key::Rate, 12.0);
        assert_eq!((figures.of(Key::P50), figures.of(Key::Rate)), (None, Some(12.0)));
    }
}
