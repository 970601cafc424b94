//! Weights that give each cluster its intended share of the load, as closely as weights can.

use crate::partition::{SLOTS, Slot, distance, seed};

/// Mean of the computed weights: fine enough for one percent.
const MEAN: f64 = 100.0;
/// Number of corrections. Each reduces the error by a factor, until the next slot to move is larger than the error.
const STEPS: usize = 24;
/// Steps by which single weights are changed.
const STRIDES: [i16; 7] = [31, 19, 11, 7, 4, 2, 1];
/// Maximum number of weight combinations tried in this way; each takes a few milliseconds with many clusters.
const MAX_TRIALS: usize = 400;
/// Fraction of the error that one step corrects; a full correction would overshoot, because slots differ in load.
const GAIN: f64 = 0.7;

/// A cluster with its current weight and its intended share.
#[derive(Clone, Copy, Debug)]
pub struct WeightedCluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its current weight. Weight zero gets no load.
    pub weight: u16,
    /// Its intended share of the load in any unit, for example the capacity of its members.
    pub share: f64,
}

/// Returns weights for `clusters` that bring the load of each as close as possible to its share. `load` returns the
/// load of each slot; a slot cannot be divided.
#[must_use]
pub fn solve_weights(clusters: &[WeightedCluster<'_>], load: impl Fn(Slot) -> u64) -> Vec<u16> {
    let context = Problem::new(clusters, load);
    let best = correct(&context);
    refine(&context, best)
}

/// The inputs for evaluating weights, computed once.
struct Problem<'a> {
    clusters: &'a [WeightedCluster<'a>],
    /// Distance of each slot from each cluster, by cluster.
    distances: Vec<Vec<u64>>,
    loads: Vec<u64>,
}

impl<'a> Problem<'a> {
    fn new(clusters: &'a [WeightedCluster<'a>], load: impl Fn(Slot) -> u64) -> Self {
        let slots = || (0..=u16::MAX).map(Slot);
        let distances =
            |cluster: &WeightedCluster<'_>| slots().map(|slot| distance(seed(cluster.name), slot)).collect();
        Self { clusters, distances: clusters.iter().map(distances).collect(), loads: slots().map(load).collect() }
    }

    /// Returns the load of each cluster.
    fn sums(&self, weights: &[u16]) -> Vec<u64> {
        let mut nearest = vec![(u64::MAX, 0_usize); SLOTS];
        for (at, (distances, weight)) in self.distances.iter().zip(weights).enumerate() {
            let Some(inverse) = (1_u64 << 32).checked_div(u64::from(*weight)) else { continue };
            for (best, distance) in nearest.iter_mut().zip(distances) {
                *best = (*best).min((distance.saturating_mul(inverse), at));
            }
        }
        let mut sums = vec![0_u64; weights.len()];
        for ((_, at), load) in nearest.iter().zip(&self.loads) {
            if let Some(sum) = sums.get_mut(*at) {
                *sum = sum.saturating_add(*load);
            }
        }
        sums
    }

    /// Returns the load of each cluster relative to its share; 1 for clusters without a share, and if there is no
    /// load.
    fn errors(&self, weights: &[u16]) -> Vec<f64> {
        let sums = self.sums(weights);
        let all: u64 = sums.iter().sum();
        let parts: f64 = self.clusters.iter().filter(|cluster| cluster.weight > 0).map(|cluster| cluster.share).sum();
        let error = |(cluster, sum): (&WeightedCluster<'_>, &u64)| {
            let wanted = all as f64 * cluster.share / parts;
            if cluster.weight > 0 && wanted > 0.0 { *sum as f64 / wanted } else { 1.0 }
        };
        self.clusters.iter().zip(&sums).map(error).collect()
    }
}

/// Corrects the weights by the error of each cluster, in proportion, and returns the best weights found.
fn correct(context: &Problem<'_>) -> Vec<u16> {
    let mut weights: Vec<f64> = context.clusters.iter().map(|cluster| f64::from(cluster.weight)).collect();
    scale(&mut weights);
    let mut best = round_weights(&weights);
    let mut least = f64::INFINITY;
    for _ in 0..STEPS {
        let tried = round_weights(&weights);
        let errors = context.errors(&tried);
        let bad = total_error(&errors);
        if bad < least {
            (least, best) = (bad, tried);
        }
        for (weight, error) in weights.iter_mut().zip(&errors) {
            // A cluster without any load must not get everything at once.
            *weight *= error.max(0.25).powf(-GAIN);
        }
        scale(&mut weights);
    }
    best
}

/// Tries higher and lower weights one by one, because proportional correction fails when few users cause most of the
/// load.
fn refine(context: &Problem<'_>, mut best: Vec<u16>) -> Vec<u16> {
    let clusters = context.clusters;
    let rounds = (3 * STRIDES.len()).min(MAX_TRIALS / (2 * clusters.len()).max(1));
    let mut least = total_error(&context.errors(&best));
    for step in STRIDES.into_iter().cycle().take(rounds) {
        for at in clusters.iter().enumerate().filter(|(_, cluster)| cluster.weight > 0).map(|(at, _)| at) {
            for change in [step, -step] {
                let mut tried = best.clone();
                if let Some(weight) = tried.get_mut(at) {
                    *weight = weight.saturating_add_signed(change).max(1);
                }
                let bad = total_error(&context.errors(&tried));
                if bad < least {
                    (least, best) = (bad, tried);
                }
            }
        }
    }
    best
}

/// Returns the total error; larger errors count more.
fn total_error(errors: &[f64]) -> f64 {
    errors.iter().map(|error| (error - 1.0).powi(4)).sum()
}

fn scale(weights: &mut [f64]) {
    let count = weights.iter().filter(|weight| **weight > 0.0).count();
    let sum: f64 = weights.iter().sum();
    if sum > 0.0 {
        weights.iter_mut().for_each(|weight| *weight *= MEAN * count as f64 / sum);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped to what fits")]
fn round_weights(weights: &[f64]) -> Vec<u16> {
    let round = |weight: &f64| if *weight > 0.0 { weight.round().clamp(1.0, f64::from(u16::MAX)) as u16 } else { 0 };
    weights.iter().map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Partition;

    fn shares(names: &[&str], weights: &[u16], load: impl Fn(Slot) -> u64) -> Vec<f64> {
        let sums = Partition::new(names.iter().copied().zip(weights.iter().copied())).sums(load);
        let all: u64 = sums.iter().sum();
        sums.iter().map(|sum| *sum as f64 / all as f64).collect()
    }

    fn wishes<'a>(names: &[&'a str]) -> Vec<WeightedCluster<'a>> {
        names.iter().map(|name| WeightedCluster { name, weight: 100, share: 1.0 }).collect()
    }

    /// The paper's population: equal weights give three clusters 40, 40 and 20 % of the load.
    #[test]
    fn a_load_skewed_40_40_20_is_balanced() {
        let names = ["a", "b", "c"];
        let even = Partition::new(names.map(|name| (name, 100)));
        let load = |slot: Slot| if even.owner(slot) == Some(2) { 1 } else { 2 };
        let before = shares(&names, &[100; 3], load);
        assert!((before[0] - 0.4).abs() < 0.01 && (before[2] - 0.2).abs() < 0.01, "{before:?}");
        let weights = solve_weights(&wishes(&names), load);
        let after = shares(&names, &weights, load);
        assert!(after.iter().all(|share| (share - 1.0 / 3.0).abs() < 0.01), "{weights:?}: {after:?}");
    }

    /// A few users make most of the calls: the n-th has a share of 1/n.
    #[test]
    fn a_zipf_distributed_load_is_balanced() {
        let names = ["a", "b", "c", "d"];
        let mut loads = vec![0_u64; SLOTS];
        for user in 1..=100_000_u64 {
            let slot = Slot::of(format!("u{user}@example.com").as_bytes());
            loads[usize::from(slot.0)] += 10_000_000 / user;
        }
        let load = |slot: Slot| loads[usize::from(slot.0)];
        let before = shares(&names, &[100; 4], load);
        let weights = solve_weights(&wishes(&names), load);
        let after = shares(&names, &weights, load);
        let worst = |shares: &[f64]| shares.iter().map(|share| (share - 0.25).abs()).fold(0.0, f64::max);
        assert!(worst(&before) > 0.05, "it is skewed: {before:?}");
        assert!(worst(&after) < 0.02, "{weights:?}: {after:?}");
    }

    #[test]
    fn two_members_get_twice_the_load_and_weight_zero_gets_none() {
        let clusters = [
            WeightedCluster { name: "a", weight: 100, share: 1.0 },
            WeightedCluster { name: "b", weight: 100, share: 2.0 },
            WeightedCluster { name: "c", weight: 0, share: 1.0 },
        ];
        let weights = solve_weights(&clusters, |_| 1);
        let shares = shares(&["a", "b", "c"], &weights, |_| 1);
        assert!((shares[0] - 1.0 / 3.0).abs() < 0.01 && shares[2] == 0.0, "{weights:?}: {shares:?}");
    }

    #[test]
    fn no_load_changes_no_weights() {
        assert_eq!(solve_weights(&wishes(&["a", "b"]), |_| 0), [100, 100]);
        assert_eq!(solve_weights(&[], |_| 0), Vec::<u16>::new());
    }
}
