//! Errors of the models, each with a remedy.

use std::borrow::Cow;
use std::fmt;

use crate::units;

/// Input that a model cannot compute with.
///
/// [`PlanError::input`] names the input, the text says what is wrong with it, and [`PlanError::remedy`] says what to
/// do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// Number that is NaN or infinite.
    NotFinite {
        /// Name of the input.
        input: Cow<'static, str>,
        /// Given value.
        value: f64,
    },
    /// Number that must be above zero and is not.
    NotPositive {
        /// Name of the input.
        input: Cow<'static, str>,
        /// Given value.
        value: f64,
    },
    /// Negative number that must not be negative.
    Negative {
        /// Name of the input.
        input: Cow<'static, str>,
        /// Given value.
        value: f64,
    },
    /// Share or probability that is not between 0 and 1.
    NotAShare {
        /// Name of the input.
        input: Cow<'static, str>,
        /// Given value.
        value: f64,
    },
    /// Shares that do not sum to one.
    SharesDoNotSumToOne {
        /// Name of the input.
        input: Cow<'static, str>,
        /// Sum of the given shares.
        sum: f64,
    },
    /// Wrong number of shares: one is needed for each part.
    WrongNumber {
        /// Name of the input.
        input: Cow<'static, str>,
        /// Number of given shares.
        given: usize,
        /// Number of required shares.
        needed: usize,
    },
    /// Count of zero where at least one is needed.
    None {
        /// Name of the input.
        input: Cow<'static, str>,
    },
    /// Value above the limit of a model.
    TooMany {
        /// Name of the input.
        input: Cow<'static, str>,
        /// Given value.
        value: f64,
        /// Highest accepted value.
        limit: f64,
    },
    /// System size K below its number of servers c.
    SmallerThanServers {
        /// K: given system size.
        queue: u64,
        /// c: given number of servers.
        servers: u32,
    },
    /// Utilization of 1 or more: the queue grows without bound, and no mean wait exists.
    Unstable {
        /// λ·E\[X\], 1 or more.
        rho: f64,
        /// λ: given rate, 1/s.
        rate_per_s: f64,
        /// Rate at which ρ is 1, 1/s.
        highest_per_s: f64,
    },
    /// Impossible moments: E\[X²\] is below E\[X\]².
    Moments {
        /// E\[X\], s.
        mean_s: f64,
        /// E\[X²\], s².
        second_moment_s2: f64,
    },
    /// Curve whose points do not rise in x.
    NotIncreasing {
        /// Name of the curve.
        input: Cow<'static, str>,
        /// x that is not above the previous one.
        x: f64,
    },
    /// Objective that is not met even at a rate near zero.
    Unreachable {
        /// Objective.
        promise: String,
        /// Its measure at a rate near zero.
        at_rest: String,
    },
    /// Inputs that contradict each other.
    Contradiction {
        /// Names of the inputs.
        input: Cow<'static, str>,
        /// Reason why they contradict each other.
        reason: String,
        /// What to give instead.
        remedy: &'static str,
    },
    /// No configuration within the limits of the search meets the requirements.
    NoPlan {
        /// Requirement that cannot be met.
        need: Cow<'static, str>,
        /// Reason, with numbers.
        reason: String,
        /// What to change.
        remedy: String,
    },
}

impl PlanError {
    /// Returns the name of the input at fault.
    pub fn input(&self) -> &str {
        match self {
            Self::NotFinite { input, .. }
            | Self::NotPositive { input, .. }
            | Self::Negative { input, .. }
            | Self::NotAShare { input, .. }
            | Self::SharesDoNotSumToOne { input, .. }
            | Self::WrongNumber { input, .. }
            | Self::None { input }
            | Self::TooMany { input, .. }
            | Self::Contradiction { input, .. }
            | Self::NotIncreasing { input, .. } => input,
            Self::SmallerThanServers { .. } => "queue",
            Self::Unstable { .. } => "rate",
            Self::Moments { .. } => "second moment",
            Self::Unreachable { .. } => "promise",
            Self::NoPlan { need, .. } => need,
        }
    }

    /// Returns what to do about the error.
    pub fn remedy(&self) -> String {
        match self {
            Self::NotFinite { .. } => "give a finite number".into(),
            Self::NotPositive { .. } => "give a number above 0".into(),
            Self::Negative { .. } => "give 0 or more".into(),
            Self::NotAShare { .. } => "give a number from 0 to 1: 99 % is 0.99".into(),
            Self::SharesDoNotSumToOne { sum, .. } => {
                format!("divide each by {} so that they add up to 1", units::number(*sum))
            }
            Self::WrongNumber { needed, .. } => format!("give {needed} of them"),
            Self::None { .. } => "give at least 1".into(),
            Self::TooMany { limit, .. } => format!("give at most {}", units::number(*limit)),
            Self::SmallerThanServers { servers, .. } => {
                format!("give a queue of at least {servers}: K includes the packets in service")
            }
            Self::Unstable { highest_per_s, .. } => format!(
                "stay below {}, make the service faster, or distribute the load over more servers; \
                 a finite queue (mmck) can be computed above it, with its drops",
                units::rate(*highest_per_s)
            ),
            Self::Moments { mean_s, .. } => format!(
                "give E[X²] of at least E[X]² = {} s², or the squared coefficient of variation instead",
                units::number(mean_s * mean_s)
            ),
            Self::NotIncreasing { .. } => "give the points in ascending order of x, each x once".into(),
            Self::Unreachable { .. } => "relax the objective, or make the service faster".into(),
            Self::Contradiction { remedy, .. } => (*remedy).into(),
            Self::NoPlan { remedy, .. } => remedy.clone(),
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { input, value } => write!(f, "{input} is {value}, which is not a finite number"),
            Self::NotPositive { input, value } => write!(f, "{input} is {value}, but must be above 0"),
            Self::Negative { input, value } => write!(f, "{input} is {value}, but must not be negative"),
            Self::NotAShare { input, value } => write!(f, "{input} is {value}, but must be between 0 and 1"),
            Self::SharesDoNotSumToOne { input, sum } => {
                write!(f, "{input} add up to {}, not to 1", units::number(*sum))
            }
            Self::WrongNumber { input, given, needed } => write!(f, "{given} {input} for {needed}"),
            Self::None { input } => write!(f, "there are no {input}"),
            Self::TooMany { input, value, limit } => {
                write!(f, "{input}: {value} is more than the model's limit of {limit}")
            }
            Self::SmallerThanServers { queue, servers } => {
                write!(f, "a queue of K = {queue} has no room for its {servers} servers' packets")
            }
            Self::Unstable { rho, rate_per_s, .. } => write!(
                f,
                "at {} the server's utilization is ρ = {}: the queue grows without bound",
                units::rate(*rate_per_s),
                units::number(*rho)
            ),
            Self::Moments { mean_s, second_moment_s2 } => write!(
                f,
                "no service time has a mean of {} and a second moment of {} s²",
                units::time(*mean_s),
                units::number(*second_moment_s2)
            ),
            Self::NotIncreasing { input, x } => write!(f, "{input}: x = {x} is not above the previous x"),
            Self::Unreachable { promise, at_rest } => {
                write!(f, "{promise} is not met even at almost no load, where it is {at_rest}")
            }
            Self::Contradiction { input, reason, .. } => write!(f, "{input}: {reason}"),
            Self::NoPlan { need, reason, .. } => write!(f, "{need} cannot be met: {reason}"),
        }
    }
}

impl std::error::Error for PlanError {}

/// Returns `value` if it is finite.
pub(crate) fn finite(input: &'static str, value: f64) -> Result<f64, PlanError> {
    if value.is_finite() { Ok(value) } else { Err(PlanError::NotFinite { input: input.into(), value }) }
}

/// Returns `value` if it is finite and above 0.
pub(crate) fn positive(input: &'static str, value: f64) -> Result<f64, PlanError> {
    let value = finite(input, value)?;
    if value > 0.0 { Ok(value) } else { Err(PlanError::NotPositive { input: input.into(), value }) }
}

/// Returns `value` if it is finite and at least 0.
pub(crate) fn not_negative(input: &'static str, value: f64) -> Result<f64, PlanError> {
    let value = finite(input, value)?;
    if value >= 0.0 { Ok(value) } else { Err(PlanError::Negative { input: input.into(), value }) }
}

/// Returns `value` if it is between 0 and 1.
pub(crate) fn share(input: &'static str, value: f64) -> Result<f64, PlanError> {
    let value = finite(input, value)?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(PlanError::NotAShare { input: input.into(), value }) }
}

/// Returns `value` if it is between 1 and `limit`.
pub(crate) fn count(input: &'static str, value: u32, limit: u32) -> Result<u32, PlanError> {
    if value == 0 {
        return Err(PlanError::None { input: input.into() });
    }
    at_most(input, value, limit)
}

/// Returns `value` if it is at most `limit`.
pub(crate) fn at_most(input: &'static str, value: u32, limit: u32) -> Result<u32, PlanError> {
    if value <= limit {
        return Ok(value);
    }
    Err(PlanError::TooMany { input: input.into(), value: f64::from(value), limit: f64::from(limit) })
}

/// Returns shares normalized to a sum of exactly 1. Each must be between 0 and 1, and their sum 1 within rounding.
pub(crate) fn shares(input: &'static str, given: &[f64]) -> Result<Vec<f64>, PlanError> {
    if given.is_empty() {
        return Err(PlanError::None { input: input.into() });
    }
    for value in given {
        share(input, *value)?;
    }
    let sum: f64 = given.iter().sum();
    if (sum - 1.0).abs() > SHARES_MAY_MISS {
        return Err(PlanError::SharesDoNotSumToOne { input: input.into(), sum });
    }
    Ok(given.iter().map(|value| value / sum).collect())
}

/// Highest accepted deviation of a sum of shares from 1, for shares written with six digits.
const SHARES_MAY_MISS: f64 = 1e-5;
