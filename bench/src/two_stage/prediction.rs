//! Predictions of `strowger plan two-stage` for a layout, from the capacities of single servers and the measured
//! share of the load of each cluster.

use strowger_plan::TwoStage;

use super::capacity::{Capacity, SingleServer};
use super::layout::{Layout, Work};
use super::paper;
use super::sweep::{Point, Sweep};

/// Capacities of a single server of each stage, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacities {
    /// C_s.
    pub first: f64,
    /// C_p.
    pub second: f64,
}

impl Capacities {
    /// Returns the measured capacities for this kind of work. For a mix, the capacity is the harmonic mean of those
    /// for calls and for registrations, weighted by their shares.
    #[must_use]
    pub fn of(all: &[Capacity], work: Work) -> Option<Self> {
        let measured = |alone, work| all.iter().find(|one| (one.alone, one.work) == (alone, work)).map(|one| one.rate);
        let registrations = work.registrations();
        let mixed = |alone| match work {
            Work::Calls | Work::Registrations => measured(alone, work),
            Work::ControlledRegistrations => measured(alone, Work::Registrations),
            Work::Mixed(_) => {
                let (calls, registers) = (measured(alone, Work::Calls)?, measured(alone, Work::Registrations)?);
                Some(1.0 / ((1.0 - registrations) / calls + registrations / registers))
            }
        };
        Some(Self { first: mixed(SingleServer::First)?, second: mixed(SingleServer::Second)? })
    }

    /// Returns the plan of a layout whose clusters have these shares, each divided evenly among the cluster's
    /// servers.
    #[must_use]
    pub fn plan(self, layout: Layout, shares: &[f64]) -> Option<TwoStage> {
        let parts = shares.iter().flat_map(|share| vec![share / f64::from(layout.servers); layout.servers as usize]);
        let parts: Vec<f64> = parts.collect();
        TwoStage::new(layout.first, self.first, self.second, &parts).ok()
    }

    /// Returns the plan with equal shares.
    #[must_use]
    pub fn even(self, layout: Layout) -> Option<TwoStage> {
        self.plan(layout, &vec![1.0 / f64::from(layout.clusters); layout.clusters as usize])
    }
}

/// Returns the plan of a layout from the paper's own figures.
#[must_use]
pub fn of_paper(test: paper::Test, layout: Layout) -> Option<TwoStage> {
    Capacities { first: test.first, second: test.second }.plan(layout, paper::shares(layout))
}

/// A measured point beside the plan at the load actually offered.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Offered load per second.
    pub offered: f64,
    /// τ(λ) per second.
    pub predicted: f64,
    /// Measured throughput per second.
    pub measured: f64,
}

impl Comparison {
    /// Returns the deviation of the measured from the predicted throughput, in percent of the latter.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        100.0 * (self.measured / self.predicted - 1.0)
    }
}

/// Returns the points of a sweep beside the plan.
#[must_use]
pub fn compare(sweep: &Sweep, capacities: Capacities) -> Vec<Comparison> {
    let Some(plan) = capacities.plan(sweep.layout, &sweep.shares) else { return Vec::new() };
    let compare = |point: &Point| Comparison {
        offered: point.outcome.offered,
        predicted: plan.throughput(point.outcome.offered),
        measured: point.outcome.goodput,
    };
    sweep.points.iter().map(compare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_plan_matches_figure_16() {
        let capacities: Vec<f64> = Layout::PAPER
            .iter()
            .map(|layout| of_paper(paper::STATELESS, *layout).expect("shares that sum to 1").capacity())
            .collect();
        for (found, paper) in capacities.iter().zip([900.0, 900.0, 1_050.0, 1_740.0, 2_100.0, 2_700.0]) {
            assert!((found - paper).abs() < 31.0, "{capacities:?}");
        }
    }

    #[test]
    fn a_mix_takes_the_time_of_both() {
        let capacity = |alone, work, rate| Capacity { alone, work, closed: rate, rate, cost_us: 1.0 };
        let all: Vec<Capacity> = SingleServer::ALL
            .into_iter()
            .flat_map(|alone| [capacity(alone, Work::Calls, 1_000.0), capacity(alone, Work::Registrations, 4_000.0)])
            .collect();
        let mixed = Capacities::of(&all, Work::Mixed(50)).expect("both are known");
        assert!((mixed.second - 1_600.0).abs() < 1e-9, "{mixed:?}");
        assert_eq!(Capacities::of(&all[..1], Work::Calls), None);
        let pairs = mixed.plan(Layout::PAIRS, &[0.5, 0.5]).expect("shares");
        assert_eq!(pairs.shares(), [0.25; 4]);
    }
}
