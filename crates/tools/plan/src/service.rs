//! Service times as the models need them: two moments.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, finite, not_negative, positive, shares};

/// Service time X with its mean E\[X\] and its second moment E\[X²\].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MeanAndScv", into = "MeanAndScv")]
pub struct ServiceTime {
    mean_s: f64,
    second_moment_s2: f64,
}

impl ServiceTime {
    /// Creates a service time from the mean and the squared coefficient of variation, Var\[X\]/E\[X\]²: 0 for a
    /// constant, 1 for the exponential distribution.
    ///
    /// # Errors
    /// A mean that is not above 0, an `scv` below 0.
    pub fn with_scv(mean_s: f64, scv: f64) -> Result<Self, PlanError> {
        let mean_s = positive("service time", mean_s)?;
        let scv = not_negative("squared coefficient of variation", scv)?;
        Ok(Self { mean_s, second_moment_s2: mean_s * mean_s * (1.0 + scv) })
    }

    /// Creates a service time from E\[X\] and E\[X²\].
    ///
    /// # Errors
    /// A mean that is not above 0, a second moment below the square of the mean (except for rounding).
    pub fn from_moments(mean_s: f64, second_moment_s2: f64) -> Result<Self, PlanError> {
        let mean_s = positive("service time", mean_s)?;
        finite("second moment", second_moment_s2)?;
        let least = mean_s * mean_s;
        if second_moment_s2 < least * (1.0 - 1e-9) {
            return Err(PlanError::Moments { mean_s, second_moment_s2 });
        }
        Ok(Self { mean_s, second_moment_s2: second_moment_s2.max(least) })
    }

    /// Creates a constant service time.
    ///
    /// # Errors
    /// A time that is not above 0.
    pub fn constant(mean_s: f64) -> Result<Self, PlanError> {
        Self::with_scv(mean_s, 0.0)
    }

    /// Creates an exponentially distributed service time.
    ///
    /// # Errors
    /// A mean that is not above 0.
    pub fn exponential(mean_s: f64) -> Result<Self, PlanError> {
        Self::with_scv(mean_s, 1.0)
    }

    /// Creates the service time of a mix of packet types, each with its share (thesis, eq. 4.3, with shares of a
    /// sixth each).
    ///
    /// # Errors
    /// Shares that are invalid or do not sum to 1.
    pub fn mixture(types: &[(f64, Self)]) -> Result<Self, PlanError> {
        let given: Vec<f64> = types.iter().map(|part| part.0).collect();
        let given = shares("shares of the message types", &given)?;
        let mut mixed = Self { mean_s: 0.0, second_moment_s2: 0.0 };
        for (share, (_, part)) in given.iter().zip(types) {
            mixed.mean_s += share * part.mean_s;
            mixed.second_moment_s2 += share * part.second_moment_s2;
        }
        Ok(mixed)
    }

    /// Returns the service time scaled by `factor`.
    ///
    /// # Errors
    /// A factor that is not above 0.
    pub fn times(&self, factor: f64) -> Result<Self, PlanError> {
        let factor = positive("factor of the service time", factor)?;
        Ok(Self { mean_s: self.mean_s * factor, second_moment_s2: self.second_moment_s2 * factor * factor })
    }

    /// Returns E\[X\], s.
    pub fn mean_s(&self) -> f64 {
        self.mean_s
    }

    /// Returns E\[X²\], s².
    pub fn second_moment_s2(&self) -> f64 {
        self.second_moment_s2
    }

    /// Returns Var\[X\]/E\[X\]².
    pub fn scv(&self) -> f64 {
        (self.second_moment_s2 / (self.mean_s * self.mean_s) - 1.0).max(0.0)
    }
}

/// Service time as written in files.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeanAndScv {
    mean_s: f64,
    scv: f64,
}

impl TryFrom<MeanAndScv> for ServiceTime {
    type Error = PlanError;

    fn try_from(written: MeanAndScv) -> Result<Self, PlanError> {
        Self::with_scv(written.mean_s, written.scv)
    }
}

impl From<ServiceTime> for MeanAndScv {
    fn from(service: ServiceTime) -> Self {
        Self { mean_s: service.mean_s, scv: service.scv() }
    }
}
