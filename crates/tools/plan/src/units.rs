//! Numbers formatted with units.

/// Formats a duration: `181.185 µs`, `28 ms`, `1 h`.
pub fn time(seconds: f64) -> String {
    time_to(SIGNIFICANT, seconds)
}

/// Formats a rate: `4,800/s`.
pub fn rate(per_s: f64) -> String {
    format!("{}/s", number(per_s))
}

/// Formats a share or a probability: `1.19 %`, or `99.9996 %` with all its nines.
pub fn share(of_one: f64) -> String {
    share_to(SIGNIFICANT, of_one)
}

/// Formats 1 − `missing` as a share, with at most nine nines. Beyond that, failures that no formula covers dominate.
pub fn all_but(missing: f64) -> String {
    all_but_to(SIGNIFICANT, missing)
}

/// Formats a yearly downtime with four digits: `31.56 s`, `2.104 min`. Downtime too short to notice is shown as an
/// upper bound.
pub fn outage(seconds: f64) -> String {
    match seconds {
        _ if seconds > 0.0 && seconds < UNSEEN * SECONDS_PER_YEAR => "under 32 ms".into(),
        _ if (60.0..600.0).contains(&seconds) => format!("{} min", number_to(OUTAGE, seconds / 60.0)),
        _ => time_to(OUTAGE, seconds),
    }
}

/// Seconds in a year of 365.25 days.
pub(crate) const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;

/// Unavailability too small to notice: nine nines are 32 ms in a year.
pub const UNSEEN: f64 = 1e-9;

/// Shorter formats for sentences: three significant digits, and large counts in millions.
pub mod brief {
    /// Formats a duration: `181 µs`.
    pub fn time(seconds: f64) -> String {
        super::time_to(super::BRIEF, seconds)
    }

    /// Formats a rate: `4,800/s`.
    pub fn rate(per_s: f64) -> String {
        format!("{}/s", number(per_s))
    }

    /// Formats a share or a probability: `7.31 %`, `99.9996 %`.
    pub fn share(of_one: f64) -> String {
        super::share_to(super::BRIEF, of_one)
    }

    /// Formats 1 − `missing`: `99.9996 %`, at most `above 99.9999999 %`.
    pub fn all_but(missing: f64) -> String {
        super::all_but_to(super::BRIEF, missing)
    }

    /// Formats a number: `0.0786`, `12,346`.
    pub fn number(value: f64) -> String {
        super::number_to(super::BRIEF, value)
    }

    /// Formats a count: `750`, `20.1 million`.
    pub fn count(value: f64) -> String {
        parts(value.round())
    }

    /// Formats a count that need not be an integer: `2.5`, `20.1 million`.
    pub fn parts(value: f64) -> String {
        if value.abs() < 1e6 { number(value) } else { format!("{} million", number(value / 1e6)) }
    }
}

fn time_to(digits: i32, seconds: f64) -> String {
    let size = seconds.abs();
    let (scale, unit) = match size {
        _ if size == 0.0 || !size.is_finite() => (1.0, "s"),
        _ if size < 1e-6 => (1e9, "ns"),
        _ if size < 1e-3 => (1e6, "µs"),
        _ if size < 1.0 => (1e3, "ms"),
        _ if size < 600.0 => (1.0, "s"),
        _ if size < 7_200.0 => (1.0 / 60.0, "min"),
        _ if size < 172_800.0 => (1.0 / 3_600.0, "h"),
        _ => (1.0 / 86_400.0, "d"),
    };
    format!("{} {unit}", number_to(digits, seconds * scale))
}

fn share_to(digits: i32, of_one: f64) -> String {
    let missing = 1.0 - of_one;
    if missing > 0.0 && missing < 1e-3 {
        // Two digits after the nines.
        let decimals = (-(missing * 100.0).log10()).ceil().clamp(0.0, 12.0) as usize + 1;
        let text = format!("{:.decimals$}", of_one * 100.0);
        return format!("{} %", text.trim_end_matches('0').trim_end_matches('.'));
    }
    format!("{} %", number_to(digits, of_one * 100.0))
}

fn all_but_to(digits: i32, missing: f64) -> String {
    if missing > 0.0 && missing < UNSEEN {
        return "above 99.9999999 %".into();
    }
    share_to(digits, 1.0 - missing)
}

/// Formats an amount of memory: `250 B`, `1.2 GiB`.
pub fn bytes(amount: f64) -> String {
    scaled(amount, 1_024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Formats a bandwidth: `94.2 Mbit/s`.
pub fn bandwidth(bits_per_s: f64) -> String {
    scaled(bits_per_s, 1_000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Formats a number with at most six significant digits and thousands separators: `12,345.6`, `0.0119`, `3.2e-12`.
pub fn number(value: f64) -> String {
    number_to(SIGNIFICANT, value)
}

const SIGNIFICANT: i32 = 6;
const BRIEF: i32 = 3;
const OUTAGE: i32 = 4;

fn number_to(digits: i32, value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    if value == 0.0 {
        return "0".into();
    }
    let size = value.abs();
    if !(1e-5..1e15).contains(&size) {
        let text = format!("{value:.*e}", usize::try_from(digits - 1).unwrap_or(0));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trimmed(mantissa));
    }
    let before = size.log10().floor() as i32 + 1;
    let decimals = usize::try_from(digits - before).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    parted(trimmed(&text))
}

fn scaled(amount: f64, step: f64, units: &[&str]) -> String {
    let mut amount = amount;
    let mut left = units;
    while let [_, rest @ ..] = left
        && amount.abs() >= step
        && !rest.is_empty()
    {
        amount /= step;
        left = rest;
    }
    format!("{} {}", short(amount), left.first().unwrap_or(&""))
}

/// Formats a number with three significant digits, for reading only.
fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    parted(trimmed(&text))
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Inserts thousands separators.
fn parted(text: &str) -> String {
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut out = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_six_digits() {
        assert_eq!(number(181.185), "181.185");
        assert_eq!(number(12_345.678), "12,345.7");
        assert_eq!(number(-1_234_567.0), "-1,234,567");
        assert_eq!(number(0.011_912_34), "0.0119123");
        assert_eq!(number(3.2e-12), "3.2e-12");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(999_999.96), "1,000,000");
        assert_eq!(number(f64::INFINITY), "inf");
    }

    #[test]
    fn brief_uses_three_digits() {
        assert_eq!(brief::number(0.078_611_1), "0.0786");
        assert_eq!(brief::number(16_666.7), "16,667");
        assert_eq!(brief::number(2.805_84e-7), "2.81e-7");
        assert_eq!(brief::time(3_600.5), "60 min");
        assert_eq!(brief::share(0.073_122), "7.31 %");
        assert_eq!(brief::share(0.999_996), "99.9996 %");
        assert_eq!(brief::count(20_113_734.4), "20.1 million");
        assert_eq!(brief::count(300_000.0), "300,000");
    }

    #[test]
    fn units_fit_the_value() {
        assert_eq!(time(181.185e-6), "181.185 µs");
        assert_eq!(time(0.0), "0 s");
        assert_eq!(time(250e-9), "250 ns");
        assert_eq!(time(0.028), "28 ms");
        assert_eq!(time(3_600.0), "60 min");
        assert_eq!(time(86_400.0), "24 h");
        assert_eq!(time(31_557_600.0), "365.25 d");
        assert_eq!(rate(4_800.0), "4,800/s");
        assert_eq!(bytes(250.0), "250 B");
        assert_eq!(bytes(1_288_490_188.8), "1.2 GiB");
        assert_eq!(bandwidth(94_200_000.0), "94.2 Mbit/s");
    }

    #[test]
    fn tiny_outages_are_shown_as_a_bound() {
        assert_eq!(outage(0.0), "0 s");
        assert_eq!(outage(3e-17), "under 32 ms");
        assert_eq!(outage(31.557_6), "31.56 s");
        assert_eq!(outage(126.23), "2.104 min");
        assert_eq!(outage(3_155.76), "52.6 min");
        assert_eq!(outage(316_000.0), "3.657 d");
        assert_eq!(all_but(4e-6), "99.9996 %");
        assert_eq!(all_but(1e-24), "above 99.9999999 %");
        assert_eq!(all_but(0.0), "100 %");
        assert_eq!(brief::all_but(0.012_345), "98.8 %");
    }

    #[test]
    fn nines_are_not_rounded_away() {
        assert_eq!(share(0.999_996), "99.9996 %");
        assert_eq!(share(0.99), "99 %");
        assert_eq!(share(1.0), "100 %");
        assert_eq!(share(0.0119), "1.19 %");
        assert_eq!(share(0.999_99), "99.999 %");
        assert_eq!(share(0.999_999_999_9), "99.99999999 %");
    }
}
