//! Parsing of numbers with units.

pub(super) mod commas;

/// Kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Time in seconds; a unit is required.
    Time,
    /// Rate per second.
    Rate,
    /// Share from 0 to 1, or in percent.
    Share,
    /// Whole number.
    Count,
    /// Number without a unit.
    Number,
    /// Calls in progress, in erlangs.
    Erlangs,
    /// Size in bytes; a unit is required.
    Bytes,
    /// Bandwidth in bits per second; a unit is required.
    Bits,
}

const TIMES: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    // The Greek letter, which looks the same as the micro sign.
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
    ("TiB", 1_099_511_627_776.0),
];
const BITS: &[(&str, f64)] = &[
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("Tbit/s", 1e12),
    ("bps", 1.0),
    ("kbps", 1e3),
    ("Mbps", 1e6),
    ("Gbps", 1e9),
    ("Tbps", 1e12),
];
const ERLANGS: &[(&str, f64)] =
    &[("E", 1.0), ("Erl", 1.0), ("erl", 1.0), ("erlang", 1.0), ("erlangs", 1.0), ("mE", 1e-3)];
const MULTIPLES: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)];

/// Unknown units that people write, and the units they may mean.
const MEANT: &[(Unit, &str, &str)] = &[
    (Unit::Count, "m", "M"),
    (Unit::Count, "mio", "M"),
    (Unit::Count, "mln", "M"),
    (Unit::Count, "million", "M"),
    (Unit::Rate, "m", "M or /min"),
    (Unit::Rate, "hz", "/s"),
    (Unit::Rate, "Hz", "/s"),
    (Unit::Rate, "/m", "/min"),
    (Unit::Rate, "/hour", "/h"),
    (Unit::Bytes, "G", "GiB or GB"),
    (Unit::Bytes, "g", "GiB or GB"),
    (Unit::Bytes, "Gi", "GiB"),
    (Unit::Bytes, "M", "MiB or MB"),
    (Unit::Bytes, "m", "MiB or MB"),
    (Unit::Bytes, "Mi", "MiB"),
    (Unit::Bytes, "K", "KiB or kB"),
    (Unit::Bytes, "k", "KiB or kB"),
    (Unit::Bytes, "KB", "KiB or kB"),
    (Unit::Bytes, "T", "TiB or TB"),
    (Unit::Bits, "G", "Gbit/s"),
    (Unit::Bits, "M", "Mbit/s"),
    (Unit::Bits, "k", "kbit/s"),
    (Unit::Bits, "Gb/s", "Gbit/s"),
    (Unit::Bits, "Mb/s", "Mbit/s"),
    (Unit::Bits, "Gbit", "Gbit/s"),
    (Unit::Bits, "Mbit", "Mbit/s"),
    (Unit::Time, "sec", "s"),
    (Unit::Time, "secs", "s"),
    (Unit::Time, "seconds", "s"),
    (Unit::Time, "mins", "min"),
    (Unit::Time, "minutes", "min"),
    (Unit::Time, "hr", "h"),
    (Unit::Time, "hours", "h"),
    (Unit::Time, "days", "d"),
];

/// Maximum length of a number as text.
const LONGEST: usize = 64;

impl Unit {
    /// Parses a number. An error's text names the remedy.
    pub(super) fn read(self, text: &str) -> Result<f64, String> {
        let (value, scale) = self.split(text)?;
        let scale = scale.or_else(|| (!self.needs_unit() || value == 0.0).then_some(1.0));
        let scale = scale.ok_or_else(|| self.without_unit(text.trim()))?;
        self.check(text, value * scale)
    }

    const fn needs_unit(self) -> bool {
        matches!(self, Self::Time | Self::Bits | Self::Bytes)
    }

    fn without_unit(self, text: &str) -> String {
        match self {
            Self::Bits => format!("'{text}' has no unit; write {text}Mbit/s or {text}Gbit/s"),
            Self::Bytes => format!("'{text}' has no unit; write {text}GiB, {text}GB or {text}MiB"),
            _ => format!("'{text}' has no unit; write {text}us, {text}ms, {text}s, {text}min or {text}h"),
        }
    }

    /// Like [`read`](Self::read), but a text without a unit uses the unit of `other`: `100..200us`.
    pub(super) fn read_as(self, text: &str, other: &str) -> Result<f64, String> {
        // In 1..2k the first value is 1, but in 100..200us it has the unit too.
        let is_shared = matches!(self, Self::Time | Self::Share | Self::Bytes | Self::Bits | Self::Erlangs);
        match (self.split(text)?, self.split(other)?.1) {
            ((value, None), Some(scale)) if is_shared => self.check(text, value * scale),
            _ => self.read(text),
        }
    }

    /// Splits off the unit and returns the number with the unit's factor, if it has a unit.
    fn split(self, text: &str) -> Result<(f64, Option<f64>), String> {
        let text = text.trim();
        if let Some(unclear) = commas::in_a_number(self, text) {
            return Err(unclear);
        }
        let wrong = || format!("'{text}' is not a {}; {}", self.name(), self.remedy());
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).take(LONGEST);
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || b"+-._eE".contains(&byte));
        let numbers = ends.filter_map(|end| {
            let (number, unit) = text.split_at_checked(end)?;
            let value = number.replace('_', "").parse::<f64>().ok().filter(|_| is_number(number))?;
            Some((value, number, unit.trim()))
        });
        let (value, number, unit) = numbers.last().ok_or_else(wrong)?;
        if unit.is_empty() {
            return Ok((value, None));
        }
        let scale = self.scale(unit).ok_or_else(|| {
            let what = format!("'{text}': {unit} is not a known unit of a {}", self.name());
            match self.meant(unit) {
                Some(meant) => {
                    let meant: Vec<String> = meant.split(" or ").map(|unit| format!("{number}{unit}")).collect();
                    format!("{what}; write {}", meant.join(" or "))
                }
                None => format!("{what}; {}", self.remedy()),
            }
        })?;
        Ok((value, Some(scale)))
    }

    /// Returns what an unknown unit may mean.
    fn meant(self, unit: &str) -> Option<&str> {
        let known = MEANT.iter().find(|(of, name, _)| *of == self && *name == unit).map(|(.., meant)| *meant);
        // In 1M/h the count is per whole hour.
        let of_an_hour = unit
            .split_once('/')
            .filter(|(multiple, _)| self == Self::Count && MULTIPLES.iter().any(|(name, _)| name == multiple));
        known.or(of_an_hour.map(|(multiple, _)| multiple))
    }

    fn scale(self, unit: &str) -> Option<f64> {
        let of =
            |table: &[(&str, f64)], unit: &str| table.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        match self {
            Self::Time => of(TIMES, unit),
            Self::Rate => {
                let (multiple, per) = unit.split_at_checked(unit.find('/').unwrap_or(unit.len()))?;
                // Calls per second, as in the paper.
                if multiple == "cps" && per.is_empty() {
                    return Some(1.0);
                }
                Some(of(MULTIPLES, multiple.trim())? * of(PER, per)?)
            }
            Self::Share => (unit == "%").then_some(0.01),
            Self::Count => of(MULTIPLES, unit),
            Self::Number => None,
            Self::Erlangs => of(ERLANGS, unit),
            Self::Bytes => of(BYTES, unit),
            Self::Bits => of(BITS, unit),
        }
    }

    fn check(self, text: &str, value: f64) -> Result<f64, String> {
        let (text, name, remedy) = (text.trim(), self.name(), self.remedy());
        if !value.is_finite() {
            return Err(format!("'{text}' is not a {name}; {remedy}"));
        }
        if value < 0.0 {
            return Err(format!("'{text}' is below zero, but a {name} cannot be; {remedy}"));
        }
        if self == Self::Share && value > 1.0 + 1e-12 {
            // 60 more likely means 60 % than a factor of 60.
            let is_percent = value <= 100.0 && !text.ends_with('%');
            let part = format!("{:.12}", value / 100.0);
            let meant = if is_percent {
                format!("{text} % is {text}% or {}", part.trim_end_matches('0'))
            } else {
                "99.9 % is 99.9% or 0.999".to_owned()
            };
            return Err(format!("'{text}' is above 100%; a share is 0 to 1, or 0% to 100%: {meant}"));
        }
        if self == Self::Count && (value.fract() != 0.0 || value > 1e15) {
            return Err(format!("'{text}' is not an integer; {remedy}"));
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
            Self::Erlangs => "number of erlangs",
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
            Self::Erlangs => "write it as 0.1, 0.1E or 100mE",
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
        close(Unit::Count, "300K", 3e5);
        close(Unit::Count, "300_000", 3e5);
        close(Unit::Erlangs, "0.15", 0.15);
        close(Unit::Erlangs, "0.15erl", 0.15);
        close(Unit::Erlangs, "0.15E", 0.15);
        close(Unit::Erlangs, "150 mE", 0.15);
        close(Unit::Bytes, "1.5kB", 1_500.0);
        close(Unit::Bytes, "0", 0.0);
        close(Unit::Bits, "10Gbit/s", 1e10);
        close(Unit::Bits, "1Gbps", 1e9);
    }

    #[test]
    fn invalid_numbers_are_refused_with_a_remedy() {
        for (unit, text, part) in [
            (Unit::Time, "181", "'181' has no unit; write 181us"),
            (Unit::Time, "5parsecs", "parsecs is not a known unit of a time; write it as 181.185us"),
            (Unit::Time, "fast", "'fast' is not a time"),
            (Unit::Time, "-3us", "'-3us' is below zero"),
            (Unit::Rate, "inf", "'inf' is not a rate"),
            (Unit::Rate, "NaN", "'NaN' is not a rate"),
            (Unit::Rate, "1e999", "'1e999' is not a rate"),
            (Unit::Rate, "10/fortnight", "/fortnight is not a known unit of a rate"),
            (Unit::Share, "99.9", "is above 100%; a share is 0 to 1"),
            (Unit::Share, "60", "60 % is 60% or 0.6"),
            (Unit::Share, "120%", "'120%' is above 100%"),
            (Unit::Count, "2.5", "'2.5' is not an integer"),
            (Unit::Number, "3us", "us is not a known unit of a number"),
            (Unit::Count, "", "'' is not a count"),
            (Unit::Count, "2m", "m is not a known unit of a count; write 2M"),
            (Unit::Count, "1M/h", "; write 1M"),
            (Unit::Count, "5000/h", "; write 5000"),
            (Unit::Bytes, "16", "'16' has no unit; write 16GiB"),
            (Unit::Bytes, "16G", "; write 16GiB or 16GB"),
            (Unit::Bits, "1G", "; write 1Gbit/s"),
            (Unit::Time, "5sec", "; write 5s"),
        ] {
            let error = unit.read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
