//! How an answer came about.

use serde::Serialize;

/// What can say how it was computed.
pub trait Explain {
    /// The formulas in the order in which they were used.
    fn explain(&self) -> Explanation;
}

/// The way to an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Each one formula.
    pub steps: Vec<Step>,
}

/// One formula with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The symbol: `ρ`.
    pub symbol: String,
    /// What it stands for, in words.
    pub meaning: String,
    /// The formula: `λ·E[X]`.
    pub formula: String,
    /// The formula with numbers in it: `4,800/s × 181.185 µs`.
    pub numbers: String,
    /// What it gives, with its unit: `0.869688`.
    pub value: String,
    /// Where it is from: `Krishnamurthy, thesis, section 4.3`.
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
