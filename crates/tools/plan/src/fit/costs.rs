//! Costs of units of work, from runs of the load generator, for `size`.

use super::CostFit;
use super::linear::{Estimate, count, least_squares};
use super::observation::{Kind, Observation, Work};
use crate::size::Profile;

/// Lowest load relative to the busiest run. Less busy runs measure a server that sleeps between packets.
const BUSY: f64 = 0.5;

/// Returns the cost of each measured kind of work: the mean of the runs near the highest load.
pub(super) fn costs(observations: &[Observation]) -> Vec<CostFit> {
    let kinds = [Kind::Call, Kind::StatelessCall, Kind::Register, Kind::ChallengedRegister];
    kinds.into_iter().filter_map(|kind| cost(kind, observations)).collect()
}

fn cost(kind: Kind, observations: &[Observation]) -> Option<CostFit> {
    let load = |work: &Work| work.carried_per_s * work.cost_s;
    let works: Vec<&Work> =
        observations.iter().filter_map(|one| one.work.as_ref()).filter(|work| work.kind == kind).collect();
    let busiest = works.iter().map(|work| load(work)).fold(0.0, f64::max);
    let near: Vec<&&Work> = works.iter().filter(|work| load(work) >= BUSY * busiest).collect();
    let costs: Vec<f64> = near.iter().map(|work| work.cost_s).collect();
    let ones: Vec<Vec<f64>> = costs.iter().map(|_| vec![1.0]).collect();
    let mean = least_squares(&ones, &costs)?.coefficients.into_iter().next()?;
    let messages = near.iter().map(|work| work.messages_in).sum::<f64>() / count(near.len());
    Some(CostFit {
        kind: kind.name().to_owned(),
        cost_s: mean,
        runs: near.len(),
        busiest_load: busiest,
        messages_in: messages,
    })
}

/// Replaces a profile's default costs by measured ones and names the replaced ones.
///
/// If REGISTERs were measured only with or only without a challenge, the other cost is scaled by the same factor.
/// Otherwise the two costs could come from different machines.
pub(super) fn apply(profile: &mut Profile, fits: &[CostFit]) -> Vec<&'static str> {
    let (plain, challenged) = (profile.costs.register_s, profile.costs.challenged_register_s);
    let mut measured = Vec::new();
    let mut put = |fit: &CostFit, kind: Kind, place: &mut f64| {
        if fit.kind == kind.name() {
            *place = fit.cost_s.value;
            measured.push(kind.name());
        }
    };
    for fit in fits {
        put(fit, Kind::Call, &mut profile.costs.stateful_call_s);
        put(fit, Kind::StatelessCall, &mut profile.costs.stateless_call_s);
        put(fit, Kind::Register, &mut profile.costs.register_s);
        put(fit, Kind::ChallengedRegister, &mut profile.costs.challenged_register_s);
        if fit.kind == Kind::Call.name() {
            profile.messages.call_in = fit.messages_in;
        }
    }
    let costs = &mut profile.costs;
    match [Kind::Register, Kind::ChallengedRegister].map(|kind| measured.contains(&kind.name())) {
        [true, false] => costs.challenged_register_s *= costs.register_s / plain,
        [false, true] => costs.register_s *= costs.challenged_register_s / challenged,
        [true, true] | [false, false] => {}
    }
    measured
}

/// Returns the incoming messages per call: measured, or those of the thesis's calls if no run has them. The flag says
/// whether they were measured.
pub(super) fn packets_per_call(observations: &[Observation]) -> (f64, bool) {
    let known: Vec<f64> = observations
        .iter()
        .filter_map(|one| Some(one.rate_per_s / one.calls_per_s?))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    if known.is_empty() { (THESIS, false) } else { (known.iter().sum::<f64>() / count(known.len()), true) }
}

/// INVITE, 180, 200, ACK, BYE, 200.
const THESIS: f64 = 6.0;

impl CostFit {
    /// Returns the cost with its interval.
    #[must_use]
    pub const fn estimate(&self) -> &Estimate {
        &self.cost_s
    }
}
