//! Errors of measurements, with a remedy.

use std::fmt;

use crate::PlanError;

/// Reason why measurements cannot be used; the text names the location and the remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct FitError(pub String);

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FitError {}

impl From<PlanError> for FitError {
    fn from(error: PlanError) -> Self {
        Self(format!("{error}; {}", error.remedy()))
    }
}
