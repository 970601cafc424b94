//! What is refused, and what to do about it.

use std::borrow::Cow;
use std::fmt;

use crate::units;

/// An input that no model can answer. [`PlanError::input`] names it, the text says what is wrong with it,
/// [`PlanError::remedy`] what to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// A number is missing or infinite: NaN, ∞.
    NotFinite {
        /// What it is called.
        input: Cow<'static, str>,
        /// As it was given.
        value: f64,
    },
    /// A number that must be above zero is not.
    NotPositive {
        /// What it is called.
        input: Cow<'static, str>,
        /// As it was given.
        value: f64,
    },
    /// A number that must not be negative is.
    Negative {
        /// What it is called.
        input: Cow<'static, str>,
        /// As it was given.
        value: f64,
    },
    /// A share or a probability is not between 0 and 1.
    NotAShare {
        /// What it is called.
        input: Cow<'static, str>,
        /// As it was given.
        value: f64,
    },
    /// Shares of a whole do not add up to it.
    SharesDoNotSumToOne {
        /// What they are called.
        input: Cow<'static, str>,
        /// What they add up to.
        sum: f64,
    },
    /// As many shares are needed as there are things to share among.
    WrongNumber {
        /// What they are called.
        input: Cow<'static, str>,
        /// How many were given.
        given: usize,
        /// How many are needed.
        needed: usize,
    },
    /// There must be at least one.
    None {
        /// What there must be one of.
        input: Cow<'static, str>,
    },
    /// More than a model computes with.
    TooMany {
        /// What it is called.
        input: Cow<'static, str>,
        /// As it was given.
        value: f64,
        /// The most that is taken.
        limit: f64,
    },
    /// A system of c servers holds at least those c.
    SmallerThanServers {
        /// K, as it was given.
        queue: u64,
        /// c, as it was given.
        servers: u32,
    },
    /// More work comes than is done: the queue grows without end, and no mean wait exists.
    Unstable {
        /// λ·E\[X\], 1 or more.
        rho: f64,
        /// λ, as it was given.
        rate_per_s: f64,
        /// The rate at which ρ is 1, 1/s.
        highest_per_s: f64,
    },
    /// No random variable has these moments: E\[X²\] is below E\[X\]².
    Moments {
        /// E\[X\], s.
        mean_s: f64,
        /// E\[X²\], s².
        second_moment_s2: f64,
    },
    /// The points of a curve do not go up in x.
    NotIncreasing {
        /// What the curve is called.
        input: Cow<'static, str>,
        /// The x that is not above the one before it.
        x: f64,
    },
    /// A promise that is not kept even at next to no load.
    Unreachable {
        /// The promise.
        promise: String,
        /// Its measure at a rate of next to nothing.
        at_rest: String,
    },
    /// Inputs that do not go together.
    Contradiction {
        /// Which.
        input: Cow<'static, str>,
        /// Why not.
        reason: String,
        /// What to give instead.
        remedy: &'static str,
    },
    /// Nothing within the limits of the search meets the needs.
    NoPlan {
        /// The need that cannot be met.
        need: Cow<'static, str>,
        /// Why: numbers.
        reason: String,
        /// What to change.
        remedy: String,
    },
}

impl PlanError {
    /// Which input is at fault.
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

    /// What to do about it.
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
                format!("give a queue of at least {servers}: K counts who is served as well as who waits")
            }
            Self::Unstable { highest_per_s, .. } => format!(
                "stay below {}, make the service faster, or share the load among more servers; \
                 a finite queue (mmck) has an answer above it, with its drops",
                units::rate(*highest_per_s)
            ),
            Self::Moments { mean_s, .. } => format!(
                "give E[X²] of at least E[X]² = {} s², or the squared coefficient of variation instead",
                units::number(mean_s * mean_s)
            ),
            Self::NotIncreasing { .. } => "give the points by rising x, each x once".into(),
            Self::Unreachable { .. } => "promise less, or make the service faster".into(),
            Self::Contradiction { remedy, .. } => (*remedy).into(),
            Self::NoPlan { remedy, .. } => remedy.clone(),
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { input, value } => write!(f, "{input} is {value}, which is no finite number"),
            Self::NotPositive { input, value } => write!(f, "{input} is {value}, but must be above 0"),
            Self::Negative { input, value } => write!(f, "{input} is {value}, but must not be negative"),
            Self::NotAShare { input, value } => write!(f, "{input} is {value}, but must be between 0 and 1"),
            Self::SharesDoNotSumToOne { input, sum } => {
                write!(f, "{input} add up to {}, not to 1", units::number(*sum))
            }
            Self::WrongNumber { input, given, needed } => write!(f, "{given} {input} for {needed}"),
            Self::None { input } => write!(f, "there are no {input}"),
            Self::TooMany { input, value, limit } => {
                write!(f, "{input}: {value} is more than the {limit} that the model computes with")
            }
            Self::SmallerThanServers { queue, servers } => {
                write!(f, "a queue of K = {queue} has no room for its {servers} servers' packets")
            }
            Self::Unstable { rho, rate_per_s, .. } => write!(
                f,
                "at {} the server has ρ = {} of its time to work: the queue grows without end",
                units::rate(*rate_per_s),
                units::number(*rho)
            ),
            Self::Moments { mean_s, second_moment_s2 } => write!(
                f,
                "no service time has a mean of {} and a second moment of {} s²",
                units::time(*mean_s),
                units::number(*second_moment_s2)
            ),
            Self::NotIncreasing { input, x } => write!(f, "{input}: x = {x} is not above the x before it"),
            Self::Unreachable { promise, at_rest } => {
                write!(f, "{promise} is not kept even at next to no load, where it is {at_rest}")
            }
            Self::Contradiction { input, reason, .. } => write!(f, "{input}: {reason}"),
            Self::NoPlan { need, reason, .. } => write!(f, "{need} cannot be met: {reason}"),
        }
    }
}

impl std::error::Error for PlanError {}

/// A number that is finite.
pub(crate) fn finite(input: &'static str, value: f64) -> Result<f64, PlanError> {
    if value.is_finite() { Ok(value) } else { Err(PlanError::NotFinite { input: input.into(), value }) }
}

/// A finite number above 0.
pub(crate) fn positive(input: &'static str, value: f64) -> Result<f64, PlanError> {
    let value = finite(input, value)?;
    if value > 0.0 { Ok(value) } else { Err(PlanError::NotPositive { input: input.into(), value }) }
}

/// A finite number, 0 or above.
pub(crate) fn not_negative(input: &'static str, value: f64) -> Result<f64, PlanError> {
    let value = finite(input, value)?;
    if value >= 0.0 { Ok(value) } else { Err(PlanError::Negative { input: input.into(), value }) }
}

/// A number from 0 to 1.
pub(crate) fn share(input: &'static str, value: f64) -> Result<f64, PlanError> {
    let value = finite(input, value)?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(PlanError::NotAShare { input: input.into(), value }) }
}

/// A count from 1 to `limit`.
pub(crate) fn count(input: &'static str, value: u32, limit: u32) -> Result<u32, PlanError> {
    if value == 0 {
        return Err(PlanError::None { input: input.into() });
    }
    at_most(input, value, limit)
}

/// A count from 0 to `limit`.
pub(crate) fn at_most(input: &'static str, value: u32, limit: u32) -> Result<u32, PlanError> {
    if value <= limit {
        return Ok(value);
    }
    Err(PlanError::TooMany { input: input.into(), value: f64::from(value), limit: f64::from(limit) })
}

/// Shares of a whole: each from 0 to 1, together 1 but for rounding; comes back so that the sum is 1 exactly.
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

/// By how much shares may miss 1: what is written with six digits.
const SHARES_MAY_MISS: f64 = 1e-5;
