//! Units of numbers on axes and in tables.

use serde_json::{Value, json};
use strowger_plan::units;

/// Display unit of a number. In JSON the unit is part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisplayUnit {
    /// Seconds; microseconds in JSON.
    Micros,
    /// Seconds.
    Seconds,
    /// Per second.
    Rate,
    /// A share from 0 to 1, displayed in percent.
    Share,
    /// A count.
    Count,
    /// A number without a unit.
    Number,
    /// Bytes.
    Bytes,
    /// Bits per second.
    Bits,
    /// A truth value, 1 or 0.
    Truth,
}

impl DisplayUnit {
    /// Formats for people, to four digits. JSON has full precision.
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Self::Rate if value >= 1_000.0 => self.exact(value.round()),
            // All nines are significant.
            Self::Share if value > 0.99 && value < 1.0 => self.exact(value),
            Self::Share if value < NOTHING => self.exact(0.0),
            Self::Micros | Self::Seconds if value > 0.0 && value < 1e-9 => "under 1 ns".to_owned(),
            Self::Count => self.exact(value),
            Self::Micros | Self::Seconds => shortened(&self.exact(value)),
            _ => self.exact(rounded(value)),
        }
    }

    /// Formats for people without rounding, as a person would write it.
    pub(crate) fn exact(self, value: f64) -> String {
        match self {
            Self::Micros | Self::Seconds => units::time(value),
            Self::Rate => units::rate(value),
            Self::Share => units::share(value),
            Self::Count | Self::Number => units::number(value),
            Self::Bytes => units::bytes(value),
            Self::Bits => units::bandwidth(value),
            Self::Truth => String::from(if value > 0.5 { "yes" } else { "no" }),
        }
    }

    /// Returns the JSON value.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and fits")]
    pub(crate) fn json(self, value: f64) -> Value {
        if self == Self::Truth {
            return json!(value > 0.5);
        }
        let value = if self == Self::Micros { value * 1e6 } else { value };
        // Removes binary rounding: 0.30000000000000004 becomes 0.3.
        let value = format!("{value:.11e}").parse().unwrap_or(value);
        if self == Self::Count && (0.0..1e15).contains(&value) && value.fract() == 0.0 {
            return json!(value as u64);
        }
        json!(value)
    }
}

/// Share below which a value counts as zero.
const NOTHING: f64 = 1e-12;

/// Rounds to four digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Rounds the number in a text to four digits, keeping its unit.
fn shortened(text: &str) -> String {
    let parts = text.split_once(' ').and_then(|(number, unit)| Some((number.replace(',', "").parse().ok()?, unit)));
    parts.map_or_else(|| text.to_owned(), |(number, unit)| format!("{} {unit}", units::number(rounded(number))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_shows_four_digits_and_all_nines() {
        let shown = [
            DisplayUnit::Micros.text(617.906e-6),
            DisplayUnit::Seconds.text(600.5),
            DisplayUnit::Rate.text(5_519.22),
            DisplayUnit::Rate.text(83.333_3),
            DisplayUnit::Share.text(0.869_688),
            DisplayUnit::Share.text(0.999_996),
            DisplayUnit::Share.text(1e-40),
            DisplayUnit::Micros.text(1.9e-13),
            DisplayUnit::Number.text(2.965_95),
            DisplayUnit::Count.text(1_234_567.0),
        ];
        assert_eq!(
            shown,
            [
                "617.9 µs",
                "10.01 min",
                "5,519/s",
                "83.33/s",
                "86.97 %",
                "99.9996 %",
                "0 %",
                "under 1 ns",
                "2.966",
                "1,234,567"
            ]
        );
        assert_eq!(DisplayUnit::Micros.exact(181.185e-6), "181.185 µs");
    }
}
