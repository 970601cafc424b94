//! Piecewise-linear functions.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, finite};

/// Piecewise-linear function, constant before its first point and after its last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct Curve {
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Creates a curve through the points (x, y), sorted by x.
    ///
    /// # Errors
    /// No point, a number that is not finite, an x that is not above the previous one.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, PlanError> {
        if points.is_empty() {
            return Err(PlanError::None { input: "points of a curve".into() });
        }
        let mut before: Option<f64> = None;
        for &(x, y) in &points {
            finite("x of a curve", x)?;
            finite("y of a curve", y)?;
            if before.is_some_and(|before| x <= before) {
                return Err(PlanError::NotIncreasing { input: "curve".into(), x });
            }
            before = Some(x);
        }
        Ok(Self { points })
    }

    /// Creates a constant function.
    pub fn constant(y: f64) -> Self {
        Self { points: vec![(0.0, y)] }
    }

    /// Returns α of the thesis for exponential inter-arrival times, over packets/s (section 4.3.1).
    pub fn alpha_exponential() -> Self {
        Self { points: vec![(0.0, 1.0), (600.0, 3.0), (1_200.0, 5.0), (2_400.0, 8.0)] }
    }

    /// Returns α of the thesis for deterministic inter-arrival times, over packets/s (section 4.3.1).
    pub fn alpha_deterministic() -> Self {
        Self { points: vec![(0.0, 1.0), (600.0, 1.5), (1_200.0, 3.0), (2_400.0, 6.0)] }
    }

    /// Returns α of the thesis for its second machine, over packets/s (table 5.1).
    pub fn alpha_second_machine() -> Self {
        Self { points: vec![(0.0, 1.0), (1_200.0, 1.3), (3_600.0, 2.0), (6_000.0, 2.5), (7_200.0, 3.2)] }
    }

    /// Returns the value at x.
    pub fn at(&self, x: f64) -> f64 {
        let next = self.points.partition_point(|point| point.0 < x);
        let after = self.points.get(next).or(self.points.last());
        let before = next.checked_sub(1).and_then(|at| self.points.get(at)).or(after);
        let (Some(&(x0, y0)), Some(&(x1, y1))) = (before, after) else { return f64::NAN };
        if x1 <= x0 { y1 } else { y0 + (y1 - y0) * ((x - x0) / (x1 - x0)) }
    }

    /// Returns the points.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Returns the lowest value.
    pub fn lowest(&self) -> f64 {
        self.points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min)
    }
}

impl TryFrom<Vec<(f64, f64)>> for Curve {
    type Error = PlanError;

    fn try_from(points: Vec<(f64, f64)>) -> Result<Self, PlanError> {
        Self::new(points)
    }
}

impl From<Curve> for Vec<(f64, f64)> {
    fn from(curve: Curve) -> Self {
        curve.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_join_the_points_and_are_flat_outside() {
        let alpha = Curve::alpha_exponential();
        for (x, y) in [(0.0, 1.0), (300.0, 2.0), (600.0, 3.0), (1_200.0, 5.0), (1_800.0, 6.5), (2_400.0, 8.0)] {
            assert!((alpha.at(x) - y).abs() < 1e-12, "{x}");
        }
        assert_eq!(alpha.at(7_200.0), 8.0);
        assert_eq!(alpha.at(-1.0), 1.0);
        assert_eq!(Curve::constant(1.0).at(5.0), 1.0);
        assert_eq!(Curve::constant(1.0).at(-5.0), 1.0);
    }

    #[test]
    fn unordered_points_are_rejected() {
        assert!(Curve::new(Vec::new()).is_err());
        let error = Curve::new(vec![(1.0, 1.0), (1.0, 2.0)]).unwrap_err();
        assert_eq!(error, PlanError::NotIncreasing { input: "curve".into(), x: 1.0 });
        assert!(Curve::new(vec![(1.0, f64::NAN)]).is_err());
    }
}
