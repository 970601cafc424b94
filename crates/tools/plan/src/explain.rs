//! Explanations: how an answer was computed.

use serde::Serialize;

/// Answer that can explain how it was computed.
pub trait Explain {
    /// Returns the formulas in the order of use.
    fn explain(&self) -> Explanation;
}

/// Derivation of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Formulas in the order of use.
    pub steps: Vec<Step>,
}

/// Formula with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Symbol: `ρ`.
    pub symbol: String,
    /// Meaning of the symbol, in words.
    pub meaning: String,
    /// Formula: `λ·E[X]`.
    pub formula: String,
    /// Formula with numbers inserted: `4,800/s × 181.185 µs`.
    pub numbers: String,
    /// Result with its unit: `0.869688`.
    pub value: String,
    /// Source: `Krishnamurthy, thesis, section 4.3`.
    pub source: String,
}

impl Explanation {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn step(
        mut self,
        (symbol, meaning): (&str, &str),
        formula: &str,
        numbers: impl Into<String>,
        value: impl Into<String>,
        source: &str,
    ) -> Self {
        self.steps.push(Step {
            symbol: symbol.into(),
            meaning: meaning.into(),
            formula: formula.into(),
            numbers: numbers.into(),
            value: value.into(),
            source: source.into(),
        });
        self
    }

    pub(crate) fn then(mut self, more: Self) -> Self {
        self.steps.extend(more.steps);
        self
    }
}
