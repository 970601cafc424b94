//! Durations written as numbers with units.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The units with their length in ns, the largest first.
const UNITS: [(&str, u64); 8] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// A duration written with its unit: `1h`, `1h30m`, `30s`, `133.4us`. The resolution is 1 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    pub(crate) const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = |what: &str| {
            format!("{text:?} is not a duration: {what}; write a number and a unit, such as 30s, 500ms or 1h")
        };
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(fault("it is empty"));
        }
        let mut nanos = 0_u64;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, tail) = rest.split_at(end);
            let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            if number.is_empty() {
                return Err(fault("a number is missing"));
            }
            if unit.is_empty() {
                return Err(fault("the unit is missing"));
            }
            let Some((_, length)) = UNITS.iter().find(|(name, _)| *name == unit.trim()) else {
                return Err(fault(&format!("{:?} is not a unit (d, h, m, s, ms, us, ns)", unit.trim())));
            };
            let part =
                part_nanos(number, *length).ok_or_else(|| fault("the number cannot be read, or is too large"))?;
            nanos = nanos.checked_add(part).ok_or_else(|| fault("it is too long"))?;
            rest = tail;
        }
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

/// Returns `number` units of `length` nanoseconds, without floating point.
fn part_nanos(number: &str, length: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: u64 = fraction.parse().ok()?;
    let part = u64::try_from(u128::from(fraction) * u128::from(length) / scale).ok()?;
    whole.checked_mul(length)?.checked_add(part)
}

impl fmt::Display for Span {
    /// Writes the exact value in the largest units: `1h`, `1h30m`, `133us400ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, length) in UNITS.into_iter().filter(|(unit, _)| *unit != "µs") {
            if rest >= length {
                write!(f, "{}{unit}", rest / length)?;
                rest %= length;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_fractions_are_exact() {
        for (text, nanos) in [
            ("133.4us", 133_400),
            ("133.4µs", 133_400),
            ("500ms", 500_000_000),
            ("30s", 30_000_000_000),
            ("0.5 s", 500_000_000),
            ("1m", 60_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("2d", 172_800_000_000_000),
            ("7ns", 7),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_nanos(nanos))), "{text}");
        }
    }

    #[test]
    fn bad_durations_are_rejected_with_hints() {
        for (text, what) in [
            ("30", "the unit is missing"),
            ("", "it is empty"),
            ("s", "a number is missing"),
            ("-1s", "a number is missing"),
            ("1 week", "\"week\" is not a unit"),
            ("1.s", "cannot be read"),
            ("1.2.3s", "cannot be read"),
            ("99999999999999999999s", "too large"),
            ("300000d300000d", "too l"),
        ] {
            let error = text.parse::<Span>().expect_err(text);
            assert!(error.contains(what) && error.ends_with("as 30s, 500ms or 1h"), "{text}: {error}");
        }
    }

    #[test]
    fn display_output_parses_back() {
        for text in ["1h", "1h30m", "500ms", "133us400ns", "0s", "2d1ns"] {
            assert_eq!(text.parse::<Span>().expect("a duration").to_string(), text);
        }
    }
}
