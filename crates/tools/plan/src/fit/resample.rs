//! Bootstrap: the variation of a fit over resampled measurements.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::linear::{LEVEL, count};

/// Number of resamples.
const TIMES: usize = 2_000;
/// Lowest number of measurements for a bootstrap.
const LEAST: usize = 3;

/// Bootstrap with a seed, so that a fit can be repeated.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap {
    /// Seed.
    pub seed: u64,
}

impl Bootstrap {
    /// Returns a description of the method.
    pub(super) fn method(&self) -> String {
        format!("{TIMES} draws, seed {}", self.seed)
    }

    /// Returns the confidence interval of a fit at [`LEVEL`].
    ///
    /// The limits are percentiles of fits to as many measurements, drawn with replacement. Returns `None` for too few
    /// measurements and if most draws determine no fit.
    pub(super) fn interval<T: Clone>(&self, from: &[T], fit: impl Fn(&[T]) -> Option<f64>) -> Option<(f64, f64)> {
        if from.len() < LEAST {
            return None;
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut fits: Vec<f64> = (0..TIMES)
            .filter_map(|_| {
                let sample: Vec<T> = from
                    .iter()
                    .filter_map(|_| {
                        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
                        let at = (rng.random::<f64>() * count(from.len())) as usize;
                        from.get(at).cloned()
                    })
                    .collect();
                fit(&sample).filter(|value| value.is_finite())
            })
            .collect();
        if fits.len() < TIMES / 2 {
            return None;
        }
        fits.sort_by(f64::total_cmp);
        let at = |share: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
            let place = (share * count(fits.len() - 1)).round() as usize;
            fits.get(place).copied()
        };
        let tail = (1.0 - LEVEL) / 2.0;
        at(tail).zip(at(1.0 - tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_contains_the_mean_and_depends_on_the_seed() {
        let values: Vec<f64> = (0_u32..40).map(|n| 10.0 + f64::from(n % 5) - 2.0).collect();
        let mean = |values: &[f64]| Some(values.iter().sum::<f64>() / count(values.len()));
        let one = Bootstrap { seed: 1 }.interval(&values, mean).expect("forty values");
        assert!(one.0 < 10.0 && 10.0 < one.1, "{one:?}");
        // The standard error is √2/√40 = 0.224.
        assert!((one.1 - one.0 - 2.0 * 1.96 * 0.224).abs() < 0.1, "{one:?}");
        assert_eq!(Bootstrap { seed: 1 }.interval(&values, mean), Some(one));
        assert_ne!(Bootstrap { seed: 2 }.interval(&values, mean), Some(one));
        assert_eq!(Bootstrap { seed: 1 }.interval(&[1.0, 2.0], mean), None);
    }
}
