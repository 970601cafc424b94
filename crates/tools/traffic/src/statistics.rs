//! Statistics of measured series: means with confidence intervals from batches, and tests whether a sample follows a
//! law.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Number of batches of a series: few, so that neighbours are nearly independent (A. M. Law, "Simulation Modeling and
/// Analysis", §9.5.3, advises 10 to 30).
pub const BATCHES: usize = 20;
/// Minimum number of values in a batch.
const MIN_BATCH: usize = 2;

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// The mean of all values.
    pub mean: f64,
    /// Half the width of the interval.
    pub half_width: f64,
    /// The confidence level: the share of such intervals that contain the true mean, 0 to 1.
    pub level: f64,
    /// Number of batches that it was computed from.
    pub batches: usize,
    /// Correlation of neighbouring batches (-1 to 1). If it is far above 0, the run was too short and the interval is
    /// too narrow.
    pub correlation: f64,
}

impl ConfidenceInterval {
    /// Returns half the width divided by the mean.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { (self.half_width / self.mean).abs() }
    }

    /// Returns whether neighbouring batches are correlated significantly, so that the interval is too narrow.
    #[must_use]
    pub fn is_correlated(&self) -> bool {
        // With independent batches, the probability of exceeding this is 1/40.
        self.correlation > 2.0 / (count(self.batches)).sqrt()
    }
}

/// Computes the mean of an autocorrelated series by batch means: the series is cut into [`BATCHES`] equal batches
/// (fewer if it is short), whose means are treated as independent. Values that do not fill a batch are left out at
/// the beginning, where a run is least settled. Returns `None` for fewer than four values.
#[must_use]
pub fn batch_means(values: &[f64], level: f64) -> Option<ConfidenceInterval> {
    let batches = BATCHES.min(values.len() / MIN_BATCH);
    if batches < 2 {
        return None;
    }
    let length = values.len() / batches;
    let used = values.get(values.len() - length * batches..)?;
    let means: Vec<f64> = used.chunks(length).map(mean).collect();
    let mut interval = of_independent(&means, level)?;
    interval.correlation = neighbours(&means);
    Some(interval)
}

/// Computes the mean of independent values, such as those of repeated runs. Returns `None` for fewer than two.
#[must_use]
pub fn of_independent(values: &[f64], level: f64) -> Option<ConfidenceInterval> {
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let n = count(values.len());
    let mean = mean(values);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half_width = student(values.len() - 1, level) * (variance / n).sqrt();
    Some(ConfidenceInterval { mean, half_width, level, batches: values.len(), correlation: 0.0 })
}

/// Returns the half-width of an interval of `level` in standard errors, from Student's t with this many degrees of
/// freedom.
#[must_use]
pub fn student(freedom: usize, level: f64) -> f64 {
    let level = level.clamp(0.0, 0.999_999);
    StudentsT::new(0.0, 1.0, count(freedom.max(1))).map_or(f64::NAN, |law| law.inverse_cdf(0.5 + level / 2.0))
}

/// Returns the Kolmogorov–Smirnov distance of a sample from a law: the largest difference of their distribution
/// functions.
#[must_use]
pub fn ks_distance(sample: &mut [f64], law: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = count(sample.len());
    let distances = sample.iter().enumerate().map(|(index, value)| {
        let at = law(*value);
        (at - count(index) / n).abs().max((count(index + 1) / n - at).abs())
    });
    distances.fold(0.0, f64::max)
}

/// Returns the probability of at least this distance if the sample follows the law (M. A. Stephens's approximation,
/// good from five values on).
#[must_use]
pub fn ks_probability(distance: f64, n: usize) -> f64 {
    let root = count(n).sqrt();
    let z = distance * (root + 0.12 + 0.11 / root);
    if z < 0.2 {
        return 1.0;
    }
    let terms = (1..=100).map(|k| {
        let k = f64::from(k);
        let sign = if k % 2.0 == 0.0 { -1.0 } else { 1.0 };
        sign * (-2.0 * k * k * z * z).exp()
    });
    (2.0 * terms.sum::<f64>()).clamp(0.0, 1.0)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values.len().max(1))
}

/// Returns the correlation of each value with the next.
fn neighbours(values: &[f64]) -> f64 {
    let mean = mean(values);
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let together: f64 = values.iter().zip(values.iter().skip(1)).map(|(a, b)| (a - mean) * (b - mean)).sum();
    if variance > 0.0 { together / variance } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;
    use crate::law::Rng;

    fn close(got: f64, expected: f64, within: f64) {
        assert!((got - expected).abs() <= within, "{got}, not {expected}");
    }

    #[test]
    fn students_t_matches_the_tables() {
        for (freedom, level, expected) in [
            (1, 0.95, 12.706),
            (2, 0.95, 4.303),
            (9, 0.95, 2.262),
            (19, 0.95, 2.093),
            (19, 0.99, 2.861),
            (1_000, 0.95, 1.962),
        ] {
            close(student(freedom, level), expected, 0.001);
        }
    }

    #[test]
    fn a_known_series_has_the_known_interval() {
        // Twenty batches of two, with means 1 to 20: mean 10.5, variance 35, t(19) = 2.093.
        let values: Vec<f64> = (1..=20).flat_map(|n| [f64::from(n) - 0.5, f64::from(n) + 0.5]).collect();
        let interval = batch_means(&values, 0.95).expect("forty values");
        close(interval.mean, 10.5, 1e-9);
        close(interval.half_width, 2.093 * (35.0_f64 / 20.0).sqrt(), 0.001);
        assert_eq!(interval.batches, 20);
        assert!(interval.is_correlated(), "a trend is no steady state");
        close(interval.relative(), interval.half_width / 10.5, 1e-12);
    }

    #[test]
    fn leftover_samples_are_dropped_at_the_beginning() {
        let mut values = vec![1e9; 5];
        values.extend((0..40).map(|n| if n % 4 < 2 { 1.0 } else { 3.0 }));
        let interval = batch_means(&values, 0.95).expect("enough");
        close(interval.mean, 2.0, 1e-12);
        assert!(!interval.is_correlated());
    }

    #[test]
    fn too_few_samples_give_none() {
        assert_eq!(batch_means(&[1.0, 2.0, 3.0], 0.95), None);
        assert_eq!(of_independent(&[1.0], 0.95), None);
        assert_eq!(of_independent(&[1.0, f64::NAN], 0.95), None);
        let three = of_independent(&[9.0, 10.0, 11.0], 0.95).expect("three runs");
        close(three.half_width, 4.303 / 3.0_f64.sqrt(), 0.001);
    }

    #[test]
    fn intervals_of_correlated_samples_contain_the_mean_at_95_percent() {
        let mut rng = Rng::seed_from_u64(3);
        let inside = (0..400)
            .filter(|_| {
                // An autoregressive series around 5.
                let mut state = 0.0;
                let values: Vec<f64> = (0..4_000)
                    .map(|_| {
                        state = 0.8 * state + rng.random::<f64>() - 0.5;
                        5.0 + state
                    })
                    .collect();
                let interval = batch_means(&values, 0.95).expect("enough");
                (interval.mean - 5.0).abs() <= interval.half_width
            })
            .count();
        assert!((365..=395).contains(&inside), "{inside} of 400");
    }

    #[test]
    fn the_ks_test_rejects_a_wrong_law() {
        let mut rng = Rng::seed_from_u64(5);
        let mut gaps: Vec<f64> = (0..2_000).map(|_| -(1.0 - rng.random::<f64>()).ln()).collect();
        let exponential = |x: f64| 1.0 - (-x).exp();
        let distance = ks_distance(&mut gaps, exponential);
        assert!(ks_probability(distance, 2_000) > 0.05, "{distance}");
        let distance = ks_distance(&mut gaps, |x| 1.0 - (-1.1 * x).exp());
        assert!(ks_probability(distance, 2_000) < 0.01, "{distance}");
        // The 5 % point of the asymptotic distribution is 1.358.
        close(ks_probability(1.358 / 1e3, 1_000_000), 0.05, 0.001);
    }
}
