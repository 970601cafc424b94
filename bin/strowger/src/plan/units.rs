//! Numbers with their units, as a planner writes them.

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Seconds; a unit must be written.
    Time,
    /// A second.
    Rate,
    /// 0 to 1, or in percent.
    Share,
    /// Whole things.
    Count,
    /// A plain number.
    Number,
    /// Bytes.
    Bytes,
    /// Bits a second; a unit must be written.
    Bits,
}

const TIMES: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    // The Greek letter, which looks the same.
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];
const PER: &[(&str, f64)] =
    &[("", 1.0), ("/s", 1.0), ("/min", 1.0 / 60.0), ("/h", 1.0 / 3_600.0), ("/d", 1.0 / 86_400.0)];
const BYTES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1_024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
const BITS: &[(&str, f64)] = &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)];
const MULTIPLES: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];
/// The longest number that anybody writes.
const LONGEST: usize = 64;

impl Unit {
    /// Reads a number; the text of an error names the remedy.
    pub(super) fn read(self, text: &str) -> Result<f64, String> {
        let (value, scale) = self.split(text)?;
        let needs_unit = matches!(self, Self::Time | Self::Bits) && value != 0.0;
        let scale = scale.or_else(|| (!needs_unit).then_some(1.0));
        let scale = scale.ok_or_else(|| {
            let text = text.trim();
            match self {
                Self::Bits => format!("'{text}' has no unit; write {text}Mbit/s or {text}Gbit/s"),
                _ => format!("'{text}' has no unit; write {text}us, {text}ms, {text}s, {text}min or {text}h"),
            }
        })?;
        self.check(text, value * scale)
    }

    /// As [`read`](Self::read); where the text has no unit, that of `other` counts: `100..200us`.
    pub(super) fn read_as(self, text: &str, other: &str) -> Result<f64, String> {
        // 1..2k means one, and 100..200us hardly a hundred of nothing.
        let is_shared = matches!(self, Self::Time | Self::Share | Self::Bytes);
        match (self.split(text)?, self.split(other)?.1) {
            ((value, None), Some(scale)) if is_shared => self.check(text, value * scale),
            _ => self.read(text),
        }
    }

    /// The number, and what its unit makes of it, where it has one.
    fn split(self, text: &str) -> Result<(f64, Option<f64>), String> {
        let text = text.trim();
        let wrong = || format!("'{text}' is no {}; {}", self.name(), self.remedy());
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).take(LONGEST);
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || b"+-._eE".contains(&byte));
        let numbers = ends.filter_map(|end| {
            let (number, unit) = text.split_at_checked(end)?;
            let value = number.replace('_', "").parse::<f64>().ok().filter(|_| is_number(number))?;
            Some((value, unit.trim()))
        });
        let (value, unit) = numbers.last().ok_or_else(wrong)?;
        if unit.is_empty() {
            return Ok((value, None));
        }
        let scale = self.scale(unit).ok_or_else(|| {
            format!("'{text}': {unit} is no unit of a {} that is known here; {}", self.name(), self.remedy())
        })?;
        Ok((value, Some(scale)))
    }

    fn scale(self, unit: &str) -> Option<f64> {
        let of =
            |table: &[(&str, f64)], unit: &str| table.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        match self {
            Self::Time => of(TIMES, unit),
            Self::Rate => {
                let (multiple, per) = unit.split_at_checked(unit.find('/').unwrap_or(unit.len()))?;
                // The paper's name of calls a second.
                if multiple == "cps" && per.is_empty() {
                    return Some(1.0);
                }
                Some(of(MULTIPLES, multiple.trim())? * of(PER, per)?)
            }
            Self::Share => (unit == "%").then_some(0.01),
            Self::Count => of(MULTIPLES, unit),
            Self::Number => None,
            Self::Bytes => of(BYTES, unit),
            Self::Bits => of(BITS, unit),
        }
    }

    fn check(self, text: &str, value: f64) -> Result<f64, String> {
        let (text, name, remedy) = (text.trim(), self.name(), self.remedy());
        if !value.is_finite() {
            return Err(format!("'{text}' is no {name}; {remedy}"));
        }
        if value < 0.0 {
            return Err(format!("'{text}' is below zero, and no {name} is; {remedy}"));
        }
        if self == Self::Share && value > 1.0 + 1e-12 {
            return Err(format!(
                "'{text}' is more than all; a share is 0 to 1, or 0% to 100%: 99.9 % is 99.9% or 0.999"
            ));
        }
        if self == Self::Count && (value.fract() != 0.0 || value > 1e15) {
            return Err(format!("'{text}' is no whole number; {remedy}"));
        }
        Ok(value)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Rate => "rate",
            Self::Share => "share",
            Self::Count => "count",
            Self::Number => "number",
            Self::Bytes => "size",
            Self::Bits => "bandwidth",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Time => "write it as 181.185us, 300ms, 3s, 5min, 2h or 1d",
            Self::Rate => "write it as 4800, 4800/s, 2k/s, 100/min or 10k/h",
            Self::Share => "write it as 99.9% or 0.999",
            Self::Count => "write it as 200, 300k or 2M",
            Self::Number => "write it as 0.022",
            Self::Bytes => "write it as 250B, 4kB, 64MB or 16GiB",
            Self::Bits => "write it as 100Mbit/s or 1Gbit/s",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_their_units() {
        let close = |unit: Unit, text: &str, expected: f64| {
            let got = unit.read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!((got - expected).abs() <= 1e-12 * expected.abs(), "{text}: {got}");
        };
        close(Unit::Time, "181.185us", 181.185e-6);
        close(Unit::Time, "181.185 µs", 181.185e-6);
        close(Unit::Time, "1e3ms", 1.0);
        close(Unit::Time, "0", 0.0);
        close(Unit::Time, "5min", 300.0);
        close(Unit::Rate, "4800", 4_800.0);
        close(Unit::Rate, "2k/s", 2_000.0);
        close(Unit::Rate, "600/min", 10.0);
        close(Unit::Rate, "10M/h", 1e7 / 3_600.0);
        close(Unit::Rate, "800cps", 800.0);
        close(Unit::Share, "99.9%", 0.999);
        close(Unit::Share, "0.999", 0.999);
        close(Unit::Count, "2M", 2e6);
        close(Unit::Count, "300_000", 3e5);
        close(Unit::Bytes, "1.5kB", 1_500.0);
        close(Unit::Bits, "10Gbit/s", 1e10);
    }

    #[test]
    fn what_is_no_number_of_the_kind_is_refused_with_a_remedy() {
        for (unit, text, part) in [
            (Unit::Time, "181", "'181' has no unit; write 181us"),
            (Unit::Time, "5parsecs", "parsecs is no unit of a time that is known here; write it as 181.185us"),
            (Unit::Time, "fast", "'fast' is no time"),
            (Unit::Time, "-3us", "'-3us' is below zero"),
            (Unit::Rate, "inf", "'inf' is no rate"),
            (Unit::Rate, "NaN", "'NaN' is no rate"),
            (Unit::Rate, "1e999", "'1e999' is no rate"),
            (Unit::Rate, "10/fortnight", "/fortnight is no unit of a rate"),
            (Unit::Share, "99.9", "is more than all; a share is 0 to 1"),
            (Unit::Count, "2.5", "'2.5' is no whole number"),
            (Unit::Number, "3us", "us is no unit of a number"),
            (Unit::Count, "", "'' is no count"),
        ] {
            let error = unit.read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
