//! Highest rate that meets an objective: a model solved for its rate.

use std::fmt;

use serde::Serialize;

use crate::error::{PlanError, positive, share};
use crate::explain::{Explain, Explanation};
use crate::mg1::mg1;
use crate::mgck::mgck;
use crate::mmck::mmck;
use crate::service::ServiceTime;
use crate::units;

/// Service-level objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Highest drop probability.
    Drops(f64),
    /// Highest mean wait, s.
    WaitS(f64),
    /// Highest utilization, 0 to 1.
    Utilization(f64),
}

impl Objective {
    fn limit(self) -> Result<f64, PlanError> {
        match self {
            Self::Drops(limit) => share("drops at most", limit),
            Self::WaitS(limit) => positive("wait at most", limit),
            Self::Utilization(limit) => share("utilization at most", limit),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Drops(_) | Self::Utilization(_) => units::share(value),
            Self::WaitS(_) => units::time(value),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drops(limit) => write!(f, "drops of at most {}", units::share(*limit)),
            Self::WaitS(limit) => write!(f, "a mean wait of at most {}", units::time(*limit)),
            Self::Utilization(limit) => write!(f, "a utilization of at most {}", units::share(*limit)),
        }
    }
}

/// Highest rate that meets an objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Capacity {
    /// Highest rate, packets/s.
    pub rate_per_s: f64,
    /// Objective that the rate meets.
    #[serde(rename = "promise")]
    pub objective: Objective,
    /// Value of the objective's measure at that rate: at its limit, or as close as a rate of twelve digits gets.
    pub measure: f64,
}

impl Explain for Capacity {
    fn explain(&self) -> Explanation {
        let (measure, limit) = match self.objective {
            Objective::Drops(limit) => ("p_K(λ)", limit),
            Objective::WaitS(limit) => ("W(λ)", limit),
            Objective::Utilization(limit) => ("ρ(λ)", limit),
        };
        Explanation::new().step(
            ("λ_max", "the highest rate that meets the objective"),
            &format!("the first λ above which {measure} exceeds its limit, by bisection"),
            format!(
                "{measure} = {} at λ = {}, limit {}",
                self.objective.show(self.measure),
                units::rate(self.rate_per_s),
                self.objective.show(limit)
            ),
            units::rate(self.rate_per_s),
            "the model, solved for λ",
        )
    }
}

/// Returns the highest rate with M/G/1; `service_at` gives the service time at a rate of packets.
///
/// A drop objective has no meaning here: an infinite queue drops nothing, so the limit is ρ = 1.
///
/// # Errors
/// An invalid limit, an objective that no rate meets, and the errors of `service_at`.
pub fn mg1_capacity(
    promise: Objective,
    service_at: impl Fn(f64) -> Result<ServiceTime, PlanError>,
) -> Result<Capacity, PlanError> {
    highest_rate(promise, 1.0 / service_at(0.0)?.mean_s(), |rate| {
        let answer = match mg1(rate, service_at(rate)?) {
            Ok(answer) => answer,
            Err(PlanError::Unstable { .. }) => return Ok(f64::INFINITY),
            Err(error) => return Err(error),
        };
        Ok(match promise {
            Objective::Drops(_) => 0.0,
            Objective::WaitS(_) => answer.wait_s,
            Objective::Utilization(_) => answer.rho,
        })
    })
}

/// Returns the highest rate with M/M/c/K; `service_at` gives E\[X\] of one of the c servers at a rate of packets.
///
/// # Errors
/// As [`mg1_capacity`] and [`mmck()`].
pub fn mmck_capacity(
    promise: Objective,
    servers: u32,
    queue: u64,
    service_at: impl Fn(f64) -> Result<f64, PlanError>,
) -> Result<Capacity, PlanError> {
    highest_rate(promise, f64::from(servers) / service_at(0.0)?, |rate| {
        let answer = mmck(rate, service_at(rate)?, servers, queue)?;
        Ok(match promise {
            Objective::Drops(_) => answer.drop_probability,
            Objective::WaitS(_) => answer.wait_s,
            Objective::Utilization(_) => answer.utilization,
        })
    })
}

/// Returns the highest rate with M/G/c/K; `service_at` gives the service time of one of the c servers at a rate of
/// packets.
///
/// # Errors
/// As [`mg1_capacity`] and [`mgck()`].
pub fn mgck_capacity(
    promise: Objective,
    servers: u32,
    queue: u64,
    service_at: impl Fn(f64) -> Result<ServiceTime, PlanError>,
) -> Result<Capacity, PlanError> {
    highest_rate(promise, f64::from(servers) / service_at(0.0)?.mean_s(), |rate| {
        let answer = mgck(rate, service_at(rate)?, servers, queue)?;
        Ok(match promise {
            Objective::Drops(_) => answer.drop_probability,
            Objective::WaitS(_) => answer.wait_s,
            Objective::Utilization(_) => answer.utilization,
        })
    })
}

/// Returns the highest rate up to which `measure` always stays within the objective.
///
/// `measure` need not be monotonic (β may fall with the rate). The search therefore goes from low rates to high, and
/// the first rate that breaks the objective counts. `scale_per_s` is a rate of the right order of magnitude; it need
/// not meet the objective.
///
/// # Errors
/// An invalid limit, an objective that no rate meets, and the errors of `measure`.
pub fn highest_rate(
    promise: Objective,
    scale_per_s: f64,
    measure: impl Fn(f64) -> Result<f64, PlanError>,
) -> Result<Capacity, PlanError> {
    let limit = promise.limit()?;
    let scale = positive("scale of the rate", scale_per_s)?;
    let mut kept = scale * LEAST;
    let at_rest = measure(kept)?;
    if at_rest > limit {
        return Err(PlanError::Unreachable { promise: promise.to_string(), at_rest: promise.show(at_rest) });
    }
    let mut broken = kept;
    while measure(broken)? <= limit {
        kept = broken;
        broken *= STRIDE;
        if broken > scale * MOST {
            return Ok(Capacity { rate_per_s: kept, objective: promise, measure: measure(kept)? });
        }
    }
    while broken - kept > kept * PRECISION {
        let middle = f64::midpoint(kept, broken);
        if measure(middle)? <= limit {
            kept = middle;
        } else {
            broken = middle;
        }
    }
    Ok(Capacity { rate_per_s: kept, objective: promise, measure: measure(kept)? })
}

/// Start and end of the search as multiples of the scale, its step factor, and its precision.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e4;
const STRIDE: f64 = 1.02;
const PRECISION: f64 = 1e-12;
