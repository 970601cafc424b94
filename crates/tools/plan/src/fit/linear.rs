//! Least squares with a few coefficients and their confidence intervals.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Confidence level of intervals.
pub const LEVEL: f64 = 0.95;

/// Fitted number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Value.
    pub value: f64,
    /// Confidence interval at [`LEVEL`]; `None` if the data do not determine one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Method that determined the interval.
    pub method: String,
}

impl Estimate {
    /// Creates an estimate without an interval.
    pub(super) fn without_interval(value: f64, why: &str) -> Self {
        Self { value, interval: None, method: why.to_owned() }
    }

    /// Creates an estimate with a symmetric interval, by Student's t.
    pub(super) fn by_student(value: f64, standard_error: f64, freedom: usize) -> Self {
        if freedom == 0 || !standard_error.is_finite() {
            return Self::without_interval(
                value,
                "no interval: there are as many coefficients as measurements; repeat the runs",
            );
        }
        let half = student(freedom) * standard_error;
        Self {
            value,
            interval: Some((value - half, value + half)),
            method: format!("Student's t with {freedom} degrees of freedom"),
        }
    }

    /// Converts to another unit.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.value *= factor;
        self.interval = self.interval.map(|(low, high)| (low * factor, high * factor));
        self
    }
}

/// Returns the half-width of an interval at [`LEVEL`], in standard errors.
pub(super) fn student(freedom: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of measurements")]
    let freedom = freedom.max(1) as f64;
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |law| law.inverse_cdf(f64::midpoint(1.0, LEVEL)))
}

/// Result of a least-squares fit.
#[derive(Clone, Debug)]
pub(super) struct Regression {
    pub coefficients: Vec<Estimate>,
    /// Share of the variance that the fit explains.
    pub r_squared: f64,
}

/// Returns the least-squares coefficients for `y`. Each row of `rows` has a value for each coefficient. Returns
/// `None` if the rows do not determine them.
pub(super) fn least_squares(rows: &[Vec<f64>], y: &[f64]) -> Option<Regression> {
    let columns = rows.first()?.len();
    if rows.len() < columns || rows.len() != y.len() || columns == 0 {
        return None;
    }
    // Scale the columns: thread counts are small, packet rates are ten thousands.
    let column = |at: usize| rows.iter().map(move |row| row.get(at).copied().unwrap_or(0.0));
    let scales: Vec<f64> = (0..columns).map(|at| column(at).map(f64::abs).fold(0.0, f64::max)).collect();
    if scales.iter().any(|scale| !scale.is_finite() || *scale == 0.0) {
        return None;
    }
    let scaled: Vec<Vec<f64>> =
        rows.iter().map(|row| row.iter().zip(&scales).map(|(value, scale)| value / scale).collect()).collect();
    let product = |a: usize, b: usize| -> f64 {
        scaled.iter().map(|row| row.get(a).copied().unwrap_or(0.0) * row.get(b).copied().unwrap_or(0.0)).sum()
    };
    let normal: Vec<Vec<f64>> = (0..columns).map(|a| (0..columns).map(|b| product(a, b)).collect()).collect();
    let inverse = inverse(normal)?;
    let right: Vec<f64> = (0..columns)
        .map(|at| scaled.iter().zip(y).map(|(row, y)| row.get(at).copied().unwrap_or(0.0) * y).sum())
        .collect();
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let solution: Vec<f64> = inverse.iter().map(|row| dot(row, &right)).collect();
    let residual: f64 = scaled.iter().zip(y).map(|(row, y)| (y - dot(row, &solution)).powi(2)).sum();
    let freedom = rows.len() - columns;
    let variance = residual / count(freedom);
    let coefficients = solution.iter().zip(&inverse).zip(&scales).enumerate().map(|(at, ((value, row), scale))| {
        let error = (variance * row.get(at).copied().unwrap_or(f64::NAN).max(0.0)).sqrt();
        Estimate::by_student(value / scale, error / scale, freedom)
    });
    let mean = y.iter().sum::<f64>() / count(y.len());
    let all: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
    let r_squared = if all > 0.0 { 1.0 - residual / all } else { 1.0 };
    Some(Regression { coefficients: coefficients.collect(), r_squared })
}

/// Inverts a small symmetric matrix by elimination with the largest pivot; returns `None` if it is singular.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let mut inverse: Vec<Vec<f64>> =
        (0..size).map(|row| (0..size).map(|column| if row == column { 1.0 } else { 0.0 }).collect()).collect();
    let largest = matrix.iter().flatten().fold(0.0, |most: f64, value| most.max(value.abs()));
    for pivot in 0..size {
        let at = |row: &usize| matrix.get(*row).and_then(|row| row.get(pivot)).map_or(0.0, |value| value.abs());
        let best = (pivot..size).max_by(|a, b| at(a).total_cmp(&at(b)))?;
        if at(&best) <= 1e-12 * largest {
            return None;
        }
        matrix.swap(pivot, best);
        inverse.swap(pivot, best);
        let divisor = *matrix.get(pivot)?.get(pivot)?;
        for row in [matrix.get_mut(pivot)?, inverse.get_mut(pivot)?] {
            row.iter_mut().for_each(|value| *value /= divisor);
        }
        let (pivot_row, pivot_inverse) = (matrix.get(pivot)?.clone(), inverse.get(pivot)?.clone());
        for row in (0..size).filter(|row| *row != pivot) {
            let factor = *matrix.get(row)?.get(pivot)?;
            let minus = |target: &mut Vec<f64>, source: &[f64]| {
                target.iter_mut().zip(source).for_each(|(value, other)| *value -= factor * other);
            };
            minus(matrix.get_mut(row)?, &pivot_row);
            minus(inverse.get_mut(row)?, &pivot_inverse);
        }
    }
    Some(inverse)
}

#[expect(clippy::cast_precision_loss, reason = "a count of measurements")]
pub(super) const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, wanted: f64) {
        assert!((got - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{got}, not {wanted}");
    }

    #[test]
    fn a_plane_is_recovered() {
        let rows: Vec<Vec<f64>> =
            (1_u32..=12).map(|n| vec![f64::from(n % 4), 1e4 * f64::from(n * n % 7), 1.0]).collect();
        let y: Vec<f64> = rows.iter().map(|row| 0.174 * row[0] + 0.923e-4 * row[1] - 0.6).collect();
        let found = least_squares(&rows, &y).expect("twelve points, three coefficients");
        for (found, wanted) in found.coefficients.iter().zip([0.174, 0.923e-4, -0.6]) {
            assert!((found.value - wanted).abs() < 1e-9 * wanted.abs(), "{found:?}");
        }
        close(found.r_squared, 1.0);
    }

    /// Five points computed by hand: slope 0.6, intercept 2.2, standard error of the slope √(2.4/3/10), t(3) = 3.182.
    #[test]
    fn intervals_match_the_textbook() {
        let rows: Vec<Vec<f64>> = (1_u32..=5).map(|x| vec![f64::from(x), 1.0]).collect();
        let found = least_squares(&rows, &[2.0, 4.0, 5.0, 4.0, 5.0]).expect("five points");
        let [slope, intercept] = found.coefficients.as_slice() else { panic!("two coefficients") };
        close(slope.value, 0.6);
        close(intercept.value, 2.2);
        close(found.r_squared, 0.6);
        let (low, high) = slope.interval.expect("three degrees of freedom");
        let half = 3.182_446 * (2.4_f64 / 3.0 / 10.0).sqrt();
        assert!((low - (0.6 - half)).abs() < 1e-5 && (high - (0.6 + half)).abs() < 1e-5, "{low} to {high}");
    }

    #[test]
    fn an_underdetermined_fit_gives_none() {
        assert!(least_squares(&[vec![1.0, 2.0], vec![2.0, 4.0], vec![3.0, 6.0]], &[1.0, 2.0, 3.0]).is_none());
        assert!(least_squares(&[vec![1.0, 0.0], vec![2.0, 0.0]], &[1.0, 2.0]).is_none());
        assert!(least_squares(&[vec![1.0, 2.0]], &[1.0]).is_none());
        let exact = least_squares(&[vec![1.0, 0.0], vec![1.0, 1.0]], &[3.0, 5.0]).expect("a line through two points");
        assert!(exact.coefficients.iter().all(|estimate| estimate.interval.is_none()));
    }
}
