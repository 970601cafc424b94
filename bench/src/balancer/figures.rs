//! What was measured, as it is kept between runs: a file that a run can begin with, so that a long one may be done in parts.

use serde::{Deserialize, Serialize};

use super::contender::{Contender, Layout};
use super::disturbance::Disturbance;
use crate::callgrind::Parts;
use crate::proxy::figures::middle;

/// Times from a request to its 2xx, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is what its name says")]
pub struct Times {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

/// What came of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Calls a second that began.
    pub offered: f64,
    /// That ended well, until the last began.
    pub carried: f64,
    /// Calls that began.
    #[serde(default)]
    pub sent: u64,
    /// Of these, those that did not end well.
    pub not_carried: u64,
    /// INVITE to 200.
    pub invite: Times,
    /// BYE to 200.
    pub bye: Times,
    /// The share of INVITEs and BYEs that had their 200 before they would have been sent again.
    pub before_t1: f64,
    /// That had it soon, so that hardly anybody notices.
    pub soon: f64,
    /// Processor time of the balancer for each call, in microseconds.
    pub processor: f64,
    /// Whether the generator was late, so that times are its own.
    pub is_late: bool,
}

/// What a load needs of each request to count as held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 99.99 % have their 200 before they would be sent again.
    BeforeT1,
    /// 99.99 % have it soon.
    Soon,
}

/// The share of requests that must be answered in time.
pub const SUCCESS: f64 = 0.999_9;

impl Figures {
    /// Of the calls that began those that ended well, in percent; not a number where nobody counted.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn carried_percent(&self) -> f64 {
        100.0 * (1.0 - self.not_carried as f64 / self.sent as f64)
    }

    /// Whether the rule holds.
    #[must_use]
    pub fn holds(&self, rule: Rule) -> bool {
        SUCCESS
            <= match rule {
                Rule::BeforeT1 => self.before_t1,
                Rule::Soon => self.soon,
            }
    }
}

/// A contender under loads, from the lowest on; in percent of what the targets can serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadRun {
    /// Who.
    pub contender: Contender,
    /// Between which targets.
    pub layout: Layout,
    /// Counts from 1.
    pub round: usize,
    /// Each load, and what came of it.
    pub loads: Vec<(u32, Figures)>,
}

/// What a policy does between ideal queues, at the load that policies are compared at.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ModelResult {
    /// Whose.
    pub contender: Contender,
    /// Between which targets.
    pub layout: Layout,
    /// INVITE to 200.
    pub invite: Times,
    /// BYE to 200.
    pub bye: Times,
}

/// What a balancer used at saturation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Calls a second.
    pub rate: f64,
    /// Processor time of all its processes for each, in microseconds.
    pub processor: f64,
    /// The kernel's part of that, in percent.
    pub kernel: f64,
    /// Cores that it kept busy.
    pub cores: f64,
    /// The share of its core that the generator used.
    pub generator: f64,
}

/// Memory of calls that stay.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sessions {
    /// Whose.
    pub contender: Contender,
    /// How many there were at the end.
    pub count: u64,
    /// Bytes that each of them added, once as many transactions ended as began.
    pub each: f64,
    /// All memory at the end, in MiB.
    pub all_mib: f64,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// Contenders under loads.
    pub turns: Vec<LoadRun>,
    /// The same without processes.
    pub models: Vec<ModelResult>,
    /// Each round's, by turns.
    pub costs: Vec<(Contender, usize, Cost)>,
    /// Instructions by part.
    pub parts: Vec<(Contender, Parts)>,
    /// Calls that stay.
    pub sessions: Vec<Sessions>,
    /// Targets that stopped.
    pub disturbances: Vec<Disturbance>,
}

impl Results {
    /// The turns of a contender between these targets.
    pub fn of(&self, contender: Contender, layout: Layout) -> impl Iterator<Item = &LoadRun> {
        self.turns.iter().filter(move |turn| turn.contender == contender && turn.layout == layout)
    }

    /// Whether it has had its turn.
    #[must_use]
    pub fn has(&self, contender: Contender, layout: Layout, round: usize) -> bool {
        self.of(contender, layout).any(|turn| turn.round == round)
    }

    /// Who was measured between these targets.
    #[must_use]
    pub fn contenders(&self, layout: Layout) -> Vec<Contender> {
        Contender::all().filter(|contender| self.of(*contender, layout).next().is_some()).collect()
    }

    /// All layouts that were measured, in their order.
    #[must_use]
    pub fn layouts(&self) -> Vec<Layout> {
        let mut all: Vec<_> = self.turns.iter().map(|turn| turn.layout).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The loads between these targets, in percent, in rising order.
    #[must_use]
    pub fn loads(&self, layout: Layout) -> Vec<u32> {
        let turns = self.turns.iter().filter(|turn| turn.layout == layout);
        let mut all: Vec<_> = turns.flat_map(|turn| turn.loads.iter().map(|(percent, _)| *percent)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The median of something over the rounds.
    #[must_use]
    pub fn median(
        &self,
        contender: Contender,
        layout: Layout,
        percent: u32,
        of: impl Fn(&Figures) -> f64,
    ) -> Option<f64> {
        let figures = self.of(contender, layout).flat_map(|turn| turn.loads.iter());
        middle(figures.filter(|(its, _)| *its == percent).map(|(_, figures)| of(figures)).collect())
    }

    /// The highest load at which a rule held, and at all lower ones: calls a second that were offered, and whether it was the
    /// highest that was tried.
    #[must_use]
    pub fn highest(&self, contender: Contender, layout: Layout, rule: Rule) -> Option<(f64, bool)> {
        // Later rounds have not all loads.
        let turn = self.of(contender, layout).max_by_key(|turn| turn.loads.len())?;
        let held = turn.loads.iter().take_while(|(_, figures)| figures.holds(rule)).count();
        let (percent, _) = turn.loads.get(held.checked_sub(1)?)?;
        Some((f64::from(*percent) / 100.0 * layout.capacity(), held == turn.loads.len()))
    }

    /// What the model says of a contender.
    #[must_use]
    pub fn modelled(&self, contender: Contender, layout: Layout) -> Option<&ModelResult> {
        self.models.iter().find(|one| one.contender == contender && one.layout == layout)
    }

    /// The median of a cost over the rounds.
    #[must_use]
    pub fn cost(&self, contender: Contender, of: impl Fn(&Cost) -> f64) -> Option<f64> {
        let own = self.costs.iter().filter(|(its, ..)| *its == contender);
        middle(own.map(|(.., cost)| of(cost)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved_results::{self, Conditions};

    #[test]
    fn the_highest_load_is_the_last_before_the_first_that_failed() {
        let layout = Layout::equal(8);
        let held = |share: f64| Figures { before_t1: share, soon: 0.5, ..Figures::default() };
        let loads = vec![(80, held(1.0)), (90, held(0.999_95)), (95, held(0.999)), (97, held(1.0))];
        let turn = LoadRun { contender: Contender::Hash, layout, round: 1, loads };
        let results = Results { turns: vec![turn], ..Results::default() };
        let (rate, is_last) = results.highest(Contender::Hash, layout, Rule::BeforeT1).expect("two hold");
        assert!((rate - 2_160.0).abs() < 1e-6 && !is_last, "{rate}");
        assert_eq!(results.highest(Contender::Hash, layout, Rule::Soon), None);
        assert_eq!(results.loads(layout), [80, 90, 95, 97]);
        assert_eq!(results.layouts(), [layout]);
    }

    #[test]
    fn results_survive_their_file() {
        let layout = Layout::equal(2);
        let turn = LoadRun { contender: Contender::Fnv, layout, round: 2, loads: vec![(80, Figures::default())] };
        let costs = vec![(Contender::KamailioHash, 1, Cost { rate: 9.0, ..Cost::default() })];
        let results = Results { turns: vec![turn], costs, ..Results::default() };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("balancer.json");
        saved_results::write(&file, &Conditions::default(), &results).expect("it can be written");
        let again: Results = saved_results::read(&file, &Conditions::default()).expect("it can be read");
        assert!(again.has(Contender::Fnv, layout, 2) && !again.has(Contender::Fnv, layout, 1));
        assert_eq!(again.cost(Contender::KamailioHash, |cost| cost.rate), Some(9.0));
    }
}
