//! Which script each session of a phase runs.

use std::sync::Arc;

use crate::driver::mix;
use crate::script::share;

/// Choice of the script of each session of a phase. It depends on the session's number only, so it is the same with
/// any number of threads.
#[derive(Clone, Debug)]
pub enum Mix {
    /// One script for all.
    One(u16),
    /// Random, by weight.
    Weighted(WeightedScripts),
    /// One after the other, from the beginning again after the last.
    Listed(Arc<[u16]>),
}

/// Scripts with weights.
#[derive(Clone, Debug)]
pub struct WeightedScripts {
    /// Scripts, with the upper end of the part of 2^32 that selects each.
    bounds: Arc<[(u32, u16)]>,
}

impl WeightedScripts {
    /// Creates a choice in the proportion of these weights; returns `None` if no weight is positive, or one is
    /// negative or not a number.
    #[must_use]
    pub fn new(weights: &[(u16, f64)]) -> Option<Self> {
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        if !(sum > 0.0 && sum.is_finite()) || weights.iter().any(|(_, weight)| *weight < 0.0) {
            return None;
        }
        let mut so_far = 0.0;
        let mut bounds: Vec<(u32, u16)> = Vec::with_capacity(weights.len());
        for (script, weight) in weights.iter().filter(|(_, weight)| *weight > 0.0) {
            so_far += weight;
            bounds.push((share(so_far / sum), *script));
        }
        // Rounding must leave no gap at the end.
        bounds.last_mut()?.0 = u32::MAX;
        Some(Self { bounds: bounds.into() })
    }
}

impl Mix {
    /// Returns the script of the session with this number, in a phase with this seed.
    #[must_use]
    pub fn pick(&self, seed: u64, number: u64) -> u16 {
        match self {
            Self::One(script) => *script,
            Self::Weighted(WeightedScripts { bounds }) => {
                let drawn = (mix(seed ^ mix(number)) >> 32) as u32;
                let place = bounds.partition_point(|(bound, _)| *bound < drawn);
                bounds.get(place).map_or(0, |(_, script)| *script)
            }
            Self::Listed(scripts) => {
                let place = usize::try_from(number).unwrap_or(usize::MAX).checked_rem(scripts.len());
                place.and_then(|place| scripts.get(place)).copied().unwrap_or(0)
            }
        }
    }

    /// Returns all possible scripts, with the share of sessions of each.
    #[must_use]
    pub fn weights(&self) -> Vec<(u16, f64)> {
        match self {
            Self::One(script) => vec![(*script, 1.0)],
            Self::Weighted(WeightedScripts { bounds }) => {
                let mut before = 0;
                let part = |(bound, script): &(u32, u16)| {
                    let part = f64::from(*bound - std::mem::replace(&mut before, *bound)) / f64::from(u32::MAX);
                    (*script, part)
                };
                bounds.iter().map(part).collect()
            }
            Self::Listed(scripts) => {
                let part = 1.0 / f64::from(u32::try_from(scripts.len()).unwrap_or(u32::MAX).max(1));
                scripts.iter().map(|script| (*script, part)).collect()
            }
        }
    }

    /// Returns whether a script may run.
    #[must_use]
    pub fn runs(&self, script: u16) -> bool {
        match self {
            Self::One(one) => *one == script,
            Self::Weighted(WeightedScripts { bounds }) => bounds.iter().any(|(_, one)| *one == script),
            Self::Listed(scripts) => scripts.contains(&script),
        }
    }

    /// Returns all possible scripts.
    pub fn scripts(&self) -> Vec<u16> {
        match self {
            Self::One(script) => vec![*script],
            Self::Weighted(WeightedScripts { bounds }) => bounds.iter().map(|(_, script)| *script).collect(),
            Self::Listed(scripts) => scripts.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_met() {
        let mix = Mix::Weighted(WeightedScripts::new(&[(3, 65.0), (1, 30.0), (7, 5.0), (9, 0.0)]).expect("weights"));
        let mut counts = [0_u32; 10];
        for number in 0..100_000 {
            counts[usize::from(mix.pick(42, number))] += 1;
        }
        assert!(counts[3].abs_diff(65_000) < 600 && counts[1].abs_diff(30_000) < 600, "{counts:?}");
        assert!(counts[7].abs_diff(5_000) < 300, "{counts:?}");
        assert_eq!(counts[9], 0, "no weight, no session");
    }

    #[test]
    fn a_list_repeats() {
        let mix = Mix::Listed([4, 5, 6].into());
        assert_eq!((0..5).map(|number| mix.pick(1, number)).collect::<Vec<_>>(), [4, 5, 6, 4, 5]);
    }

    #[test]
    fn invalid_weights_are_rejected() {
        for weights in [&[][..], &[(0, 0.0)], &[(0, -1.0), (1, 2.0)], &[(0, f64::NAN)]] {
            assert!(WeightedScripts::new(weights).is_none(), "{weights:?}");
        }
    }
}
