//! What was measured, as it is kept between runs: a file that a run can begin with, so that a long one may be done in parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::peer::Peer;
use super::scenario::{Load, Scenario};
use crate::callgrind::Parts;

/// A figure of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// Calls or registrations a second that ended well.
    Rate,
    /// Of those that began, the share that did not, in percent.
    Lost,
    /// From the request to the answer that the scenario is about, at the median, in microseconds.
    P50,
    /// The same, of which one in a hundred takes longer.
    P99,
    /// Processor time of all the server's processes for each, in microseconds.
    Processor,
    /// The kernel's part of that, in percent.
    Kernel,
    /// Cores that the server kept busy.
    Cores,
    /// Context switches for each.
    Switches,
    /// The most memory that its processes had resident, in MiB, what they share once.
    Memory,
    /// Datagrams that found no room in the server's sockets.
    Drops,
    /// 1 where the generator was late, so that the times are its own.
    Late,
}

/// The figures of a load; what could not be measured is not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures(BTreeMap<Key, f64>);

impl Figures {
    /// Notes a figure; one that is no number is none.
    pub fn put(&mut self, key: Key, value: f64) {
        if value.is_finite() {
            self.0.insert(key, value);
        }
    }

    /// One of them.
    #[must_use]
    pub fn of(&self, key: Key) -> Option<f64> {
        self.0.get(&key).copied()
    }
}

/// A server, started once, under all loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerRun {
    /// What was done.
    pub scenario: Scenario,
    /// By whom.
    pub peer: Peer,
    /// Counts from 1.
    pub round: usize,
    /// Before it was warm, under one of the loads.
    pub first: Option<(Load, Figures)>,
    /// Each load, in its order.
    pub loads: Vec<(Load, Figures)>,
    /// Processor time a call from the start on: seconds, microseconds.
    pub course: Vec<(f64, f64)>,
    /// Bytes for each call that was answered, until its timers end.
    pub answered_bytes: Option<f64>,
    /// Memory at the end in MiB: private, and shared.
    pub memory: (f64, f64),
}

impl ServerRun {
    /// A figure under a load.
    #[must_use]
    pub fn figure(&self, load: Load, key: Key) -> Option<f64> {
        self.loads.iter().find(|(its, _)| *its == load).and_then(|(_, figures)| figures.of(key))
    }
}

/// The highest rate that a server holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Highest {
    /// What was done.
    pub scenario: Scenario,
    /// By whom.
    pub peer: Peer,
    /// The rate, a second.
    pub rate: f64,
    /// Whether it was the generator that could do no more.
    pub is_generators: bool,
}

/// A figure for a scenario and a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What was done.
    pub scenario: Scenario,
    /// By whom.
    pub peer: Peer,
    /// The figure.
    pub value: f64,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// All turns.
    pub turns: Vec<ServerRun>,
    /// The highest rates that were found, in each round.
    pub highest: Vec<Highest>,
    /// User instructions for each unit of work.
    #[serde(default)]
    pub parts: Vec<(Scenario, Peer, Parts)>,
    /// Bytes for each call that rings.
    pub ringing_bytes: Vec<Figure>,
}

impl Results {
    /// The highest rates of a server that were found, a round each.
    pub fn highest(&self, scenario: Scenario, peer: Peer) -> impl Iterator<Item = &Highest> {
        self.highest.iter().filter(move |found| found.scenario == scenario && found.peer == peer)
    }

    /// The median of them.
    #[must_use]
    pub fn highest_rate(&self, scenario: Scenario, peer: Peer) -> Option<f64> {
        middle(self.highest(scenario, peer).map(|found| found.rate).collect())
    }

    /// The instructions of a server.
    #[must_use]
    pub fn parts(&self, scenario: Scenario, peer: Peer) -> Option<&Parts> {
        self.parts.iter().find(|(its, of, _)| (*its, *of) == (scenario, peer)).map(|(_, _, parts)| parts)
    }

    /// The turns of a server.
    pub fn of(&self, scenario: Scenario, peer: Peer) -> impl Iterator<Item = &ServerRun> {
        self.turns.iter().filter(move |turn| turn.scenario == scenario && turn.peer == peer)
    }

    /// Whether a server has had its turn.
    #[must_use]
    pub fn has(&self, scenario: Scenario, peer: Peer, round: usize) -> bool {
        self.of(scenario, peer).any(|turn| turn.round == round)
    }

    /// The loads that a scenario was measured under, the lowest first.
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

    /// The highest of them, where it is saturation.
    #[must_use]
    pub fn saturation(&self, scenario: Scenario) -> Option<Load> {
        self.loads(scenario).pop().filter(|load| matches!(load, Load::Saturation(_)))
    }

    /// A figure of a server under a load, in each of its turns.
    #[must_use]
    pub fn all(&self, scenario: Scenario, peer: Peer, load: Load, key: Key) -> Vec<f64> {
        self.of(scenario, peer).filter_map(|turn| turn.figure(load, key)).collect()
    }

    /// The median of that.
    #[must_use]
    pub fn median(&self, scenario: Scenario, peer: Peer, load: Load, key: Key) -> Option<f64> {
        middle(self.all(scenario, peer, load, key))
    }

    /// A figure of one server beside that of another: the median of the rounds' ratios, since they had their turns of a round one
    /// after the other, and the machine may be slower in another round.
    #[must_use]
    pub fn ratio(&self, scenario: Scenario, (one, other): (Peer, Peer), load: Load, key: Key) -> Option<f64> {
        let ratios = self.of(scenario, one).filter_map(|turn| {
            let beside = self.of(scenario, other).find(|its| its.round == turn.round)?;
            Some(turn.figure(load, key)? / beside.figure(load, key)?).filter(|ratio| ratio.is_finite())
        });
        middle(ratios.collect())
    }

    /// Processor time for each before a server is warm, beside that of the same load when it is.
    #[must_use]
    pub fn first_by_warm(&self, scenario: Scenario, peer: Peer) -> Option<f64> {
        let ratios = self.of(scenario, peer).filter_map(|turn| {
            let (load, cold) = turn.first.as_ref()?;
            Some(cold.of(Key::Processor)? / turn.figure(*load, Key::Processor)?)
        });
        middle(ratios.collect())
    }
}

/// The one of a scenario and a server.
#[must_use]
pub fn single(list: &[Figure], scenario: Scenario, peer: Peer) -> Option<f64> {
    list.iter().find(|one| one.scenario == scenario && one.peer == peer).map(|one| one.value)
}

/// The median, where there is one; of an even number the mean of the two in the middle.
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
    fn what_is_no_number_is_not_kept() {
        let mut figures = Figures::default();
        figures.put(Key::P50, f64::NAN);
        figures.put(Key::Rate, 12.0);
        assert_eq!((figures.of(Key::P50), figures.of(Key::Rate)), (None, Some(12.0)));
    }
}
