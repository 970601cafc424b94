//! Status codes: single codes, classes and ranges.

use std::fmt;
use std::str::FromStr;

/// Status codes of final responses: `200`, `4xx` or `200-299`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange(pub strowger_balancer::StatusRange);

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            format!("{text:?} is not a final status; write a code, a class or a range, such as \"200\", \"4xx\" or \"200-299\"")
        })
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
