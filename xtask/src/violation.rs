//! Violation of a rule, with what to do about it.

use std::fmt;

/// Location, description and remedy of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    rule: &'static str,
    place: String,
    what: String,
    remedy: Option<&'static str>,
}

impl Violation {
    /// Creates a violation of `rule` at `place`, a path from the root with an optional line number.
    pub(crate) fn new(rule: &'static str, place: &str, what: impl Into<String>) -> Self {
        Self { rule, place: place.to_owned(), what: what.into(), remedy: None }
    }

    /// Adds what to do about it.
    pub(crate) fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.rule, self.what)?;
        self.remedy.map_or(Ok(()), |remedy| write!(f, "\n    help: {remedy}"))
    }
}

/// Returns all violations, one below the other.
pub(crate) fn report(found: &[Violation]) -> String {
    found.iter().map(|violation| format!("{violation}\n")).collect()
}
