//! The results of all runs.

use serde::{Deserialize, Serialize};

use crate::balancer::contender::{Contender, Layout};
use crate::balancer::disturbance::Disturbance;
use crate::balancer::figures::{Cost, Figures, LoadRun, ModelResult, Rule, Sessions};
use crate::callgrind::Parts;
use crate::proxy::figures::middle;

/// All results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// Contenders under load.
    pub turns: Vec<LoadRun>,
    /// Results of the model.
    pub models: Vec<ModelResult>,
    /// Costs by contender and round.
    pub costs: Vec<(Contender, usize, Cost)>,
    /// Instructions by part.
    pub parts: Vec<(Contender, Parts)>,
    /// Memory of established calls.
    pub sessions: Vec<Sessions>,
    /// Stopped targets.
    pub disturbances: Vec<Disturbance>,
}

impl Results {
    /// Returns the runs of a contender with this layout.
    pub fn of(&self, contender: Contender, layout: Layout) -> impl Iterator<Item = &LoadRun> {
        self.turns.iter().filter(move |turn| turn.contender == contender && turn.layout == layout)
    }

    /// Returns whether this run is done.
    #[must_use]
    pub fn has(&self, contender: Contender, layout: Layout, round: usize) -> bool {
        self.of(contender, layout).any(|turn| turn.round == round)
    }

    /// Returns the contenders measured with this layout.
    #[must_use]
    pub fn contenders(&self, layout: Layout) -> Vec<Contender> {
        Contender::all().filter(|contender| self.of(*contender, layout).next().is_some()).collect()
    }

    /// Returns all measured layouts, in order.
    #[must_use]
    pub fn layouts(&self) -> Vec<Layout> {
        let mut all: Vec<_> = self.turns.iter().map(|turn| turn.layout).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the loads with this layout, in percent, ascending.
    #[must_use]
    pub fn loads(&self, layout: Layout) -> Vec<u32> {
        let turns = self.turns.iter().filter(|turn| turn.layout == layout);
        let mut all: Vec<_> = turns.flat_map(|turn| turn.loads.iter().map(|(percent, _)| *percent)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the median of a figure over the rounds.
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

    /// Returns the highest load up to which a rule held without exception: the offered calls per second, and whether
    /// it was the highest load tried.
    #[must_use]
    pub fn highest(&self, contender: Contender, layout: Layout, rule: Rule) -> Option<(f64, bool)> {
        // Later rounds do not cover all loads.
        let turn = self.of(contender, layout).max_by_key(|turn| turn.loads.len())?;
        let held = turn.loads.iter().take_while(|(_, figures)| figures.holds(rule)).count();
        let (percent, _) = turn.loads.get(held.checked_sub(1)?)?;
        Some((f64::from(*percent) / 100.0 * layout.capacity(), held == turn.loads.len()))
    }

    /// Returns the model's result for a contender.
    #[must_use]
    pub fn modelled(&self, contender: Contender, layout: Layout) -> Option<&ModelResult> {
        self.models.iter().find(|one| one.contender == contender && one.layout == layout)
    }

    /// Returns the median of a cost over the rounds.
    #[must_use]
    pub fn cost(&self, contender: Contender, of: impl Fn(&Cost) -> f64) -> Option<f64> {
        let own = self.costs.iter().filter(|(its, ..)| *its == contender);
        middle(own.map(|(.., cost)| of(cost)).collect())
    }
}
