//! One or several numbers: the values of a sweep.

use super::units::Unit;
use super::units::commas;

/// Maximum number of values per option.
const MOST: usize = 10_000;

/// The values of an option.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Numbers {
    values: Vec<f64>,
}

impl Numbers {
    /// Parses `4800`, `1000,2000,4000` or `100..2000/100`.
    fn parse(unit: Unit, text: &str) -> Result<Self, String> {
        if let Some((from, rest)) = text.split_once("..") {
            return Self::range(unit, text, from, rest);
        }
        let values: Result<Vec<f64>, String> =
            commas::values(unit, text)?.into_iter().map(|one| unit.read(one)).collect();
        Ok(Self { values: values? })
    }

    fn range(unit: Unit, text: &str, from: &str, rest: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("'{text}' {what}; a sweep is FROM..TO/STEP, such as 100..2000/100");
        // Units of rates contain a slash, as in 1k/s..2k/s/100.
        let stroke = rest.rmatch_indices('/').map(|(at, _)| at).find(|at| {
            rest.get(at + 1..)
                .is_some_and(|step| step.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        });
        let stroke = stroke.ok_or_else(|| wrong("has no step"))?;
        let (to, step) = (rest.get(..stroke).unwrap_or_default(), rest.get(stroke + 1..).unwrap_or_default());
        let (low, high, by) = (unit.read_as(from, to)?, unit.read(to)?, unit.read_as(step, to)?);
        if high < low {
            return Err(wrong("ends before it begins"));
        }
        if by <= 0.0 {
            return Err(wrong("has a step that is not above zero"));
        }
        // Ends are included although fractions are inexact.
        let steps = ((high - low) / by + 1e-9).floor();
        if steps >= float(MOST) {
            return Err(wrong("has more than 10,000 values"));
        }
        // Avoids values such as 0.30000000000000004.
        let exact = |value: f64| format!("{value:.11e}").parse().unwrap_or(value);
        let values = (0..MOST).map(float).take_while(|number| *number <= steps);
        Ok(Self { values: values.map(|number| exact(low + number * by)).collect() })
    }

    /// Creates a single value.
    pub(super) fn one(value: f64) -> Self {
        Self { values: vec![value] }
    }

    /// Returns all values.
    pub(super) fn all(&self) -> &[f64] {
        &self.values
    }

    /// Returns the first or only value.
    pub(super) fn first(&self) -> f64 {
        self.values.first().copied().unwrap_or(0.0)
    }

    /// Whether there are several values.
    pub(super) fn is_swept(&self) -> bool {
        self.values.len() > 1
    }
}

fn above_zero(numbers: Numbers, text: &str, what: &str) -> Result<Numbers, String> {
    if numbers.values.iter().all(|value| *value > 0.0) {
        return Ok(numbers);
    }
    Err(format!("'{text}': {what} must be above zero"))
}

/// Parses rates above zero.
pub(super) fn rates(text: &str) -> Result<Numbers, String> {
    above_zero(Numbers::parse(Unit::Rate, text)?, text, "a rate")
}

/// Parses rates, including zero.
pub(super) fn rates_or_none(text: &str) -> Result<Numbers, String> {
    Numbers::parse(Unit::Rate, text)
}

/// Parses times above zero.
pub(super) fn times(text: &str) -> Result<Numbers, String> {
    above_zero(Numbers::parse(Unit::Time, text)?, text, "a time")
}

/// Parses times, including zero.
pub(super) fn times_or_none(text: &str) -> Result<Numbers, String> {
    Numbers::parse(Unit::Time, text)
}

/// Parses whole numbers from one.
pub(super) fn counts(text: &str) -> Result<Numbers, String> {
    above_zero(Numbers::parse(Unit::Count, text)?, text, "a count")
}

/// Parses whole numbers, including zero.
pub(super) fn counts_or_none(text: &str) -> Result<Numbers, String> {
    Numbers::parse(Unit::Count, text)
}

/// Parses shares.
pub(super) fn shares(text: &str) -> Result<Numbers, String> {
    Numbers::parse(Unit::Share, text)
}

/// Parses offered traffic in erlangs, not negative.
pub(super) fn erlangs(text: &str) -> Result<Numbers, String> {
    Numbers::parse(Unit::Erlangs, text)
}

/// Parses numbers without a unit, not negative.
pub(super) fn plain(text: &str) -> Result<Numbers, String> {
    Numbers::parse(Unit::Number, text)
}

/// Parses sizes in bytes, above zero.
pub(super) fn sizes(text: &str) -> Result<Numbers, String> {
    above_zero(Numbers::parse(Unit::Bytes, text)?, text, "a size")
}

/// Parses bandwidths in bits per second, above zero.
pub(super) fn bandwidths(text: &str) -> Result<Numbers, String> {
    above_zero(Numbers::parse(Unit::Bits, text)?, text, "a bandwidth")
}

/// Parses a single share.
pub(super) fn share(text: &str) -> Result<f64, String> {
    Unit::Share.read(text)
}

#[expect(clippy::cast_precision_loss, reason = "at most ten thousand")]
const fn float(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_include_their_ends() {
        assert_eq!(rates("4800").map(|numbers| numbers.values), Ok(vec![4_800.0]));
        assert_eq!(rates("100..400/100").map(|numbers| numbers.values), Ok(vec![100.0, 200.0, 300.0, 400.0]));
        assert_eq!(rates("1k/s..2k/s/500/s").map(|numbers| numbers.values), Ok(vec![1_000.0, 1_500.0, 2_000.0]));
        assert_eq!(shares("10%..30%/10%").map(|numbers| numbers.values), Ok(vec![0.1, 0.2, 0.3]));
        assert_eq!(counts("1,2,4").map(|numbers| numbers.values), Ok(vec![1.0, 2.0, 4.0]));
        let times = times("100..300us/100").expect("a unit counts for all").values;
        assert!(times.iter().zip([1e-4, 2e-4, 3e-4]).all(|(got, wanted)| (got - wanted).abs() < 1e-15), "{times:?}");
    }

    #[test]
    fn invalid_sweeps_are_refused() {
        for (text, part) in [
            ("100..2000", "has no step; a sweep is FROM..TO/STEP"),
            ("2000..100/100", "ends before it begins"),
            ("1..2/0", "has a step that is not above zero"),
            ("1..2/0.0000001", "has more than 10,000 values"),
            ("0", "a rate must be above zero"),
            ("1,x", "'x' is not a rate"),
            ("4,800", "'4;800' for a list"),
            ("1,000..5,000/500", "write 1000 or 1_000 for one number"),
        ] {
            let error = rates(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(times("100..200/10").expect_err("no unit").contains("has no unit"));
    }
}
