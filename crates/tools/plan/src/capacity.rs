//! The highest rate at which a promise is kept: a model turned round.

use std::fmt;

use serde::Serialize;

use crate::error::{PlanError, positive, share};
use crate::explain::{Explain, Explanation};
use crate::mg1::mg1;
use crate::mgck::mgck;
use crate::mmck::mmck;
use crate::service::ServiceTime;
use crate::units;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The probability of a drop is at most this.
    Drops(f64),
    /// The mean wait is at most this, s.
    WaitS(f64),
    /// The server works at most this share of its time.
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

/// The highest rate that keeps a promise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Capacity {
    /// Packets/s.
    pub rate_per_s: f64,
    /// What is promised.
    #[serde(rename = "promise")]
    pub objective: Objective,
    /// The promise's measure at that rate: at its limit, or as near as a rate of twelve digits comes.
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
            ("λ_max", "the highest rate that keeps the promise"),
            &format!("the first λ beyond which {measure} exceeds its limit, by halving intervals"),
            format!(
                "{measure} = {} at λ = {}, limit {}",
                self.objective.show(self.measure),
                units::rate(self.rate_per_s),
                self.objective.show(limit)
            ),
            units::rate(self.rate_per_s),
            "the model, turned round",
        )
    }
}

/// The highest rate with M/G/1; `service_at` gives the service time at a rate of packets. Drops cannot be asked for: an
/// endless queue has none, and then the limit is ρ = 1.
///
/// # Errors
/// A limit that is none, a promise that is kept at no rate, and what `service_at` refuses.
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

/// The highest rate with M/M/c/K; `service_at` gives E\[X\] of one of the c servers at a rate of packets.
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

/// The highest rate with M/G/c/K; `service_at` gives the service time of one of the c servers at a rate of packets.
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

/// The highest rate up to which `measure` stays within the promise, without exception: `measure` need not rise
/// everywhere (β may fall with the rate), so rates are walked from low to high, and the first that breaks the promise
/// counts. `scale_per_s` is a rate of the right order, at which the promise may be kept or not.
///
/// # Errors
/// A limit that is none, a promise that is kept at no rate, and what `measure` refuses.
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

/// Where the walk begins and where it ends, in parts of the scale, its stride, and how near it comes.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e4;
const STRIDE: f64 = 1.02;
const PRECISION: f64 = 1e-12;
