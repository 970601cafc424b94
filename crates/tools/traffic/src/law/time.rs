//! Parsing of times, and the longest time that a run can use.

use std::time::Duration;

/// Parses a number and its optional time unit: the value, in seconds if it has a unit, and whether it has one.
pub(super) fn parse_value(text: &str) -> Option<(f64, bool)> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
    let value: f64 = digits.trim().parse().ok()?;
    let scale = match text.get(digits.len()..)?.trim() {
        "" => return Some((value, false)),
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Some((value * scale, true))
}

/// Converts seconds to a `Duration`, limited to 136 years, longer than any run.
#[must_use]
pub(crate) fn time_of(seconds: f64) -> Duration {
    const MOST: Duration = Duration::from_secs(u32::MAX as u64);
    // NaN becomes zero.
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MOST).min(MOST)
}

/// Returns `time` divided by `times`, for a run that is `times` times faster.
#[must_use]
pub(crate) fn faster(time: Duration, times: f64) -> Duration {
    time_of(time.as_secs_f64() / times)
}

/// Parses a time with its unit, such as `250ms`.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    let (seconds, has_unit) = parse_value(text.trim())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|_| has_unit || seconds == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_times_are_clamped() {
        let most = Duration::from_secs(u64::from(u32::MAX));
        assert_eq!([1e300, f64::INFINITY, 5e9].map(time_of), [most; 3]);
        assert_eq!([0.0, -1.0, f64::NAN].map(time_of), [Duration::ZERO; 3]);
        assert_eq!(time_of(0.25), Duration::from_millis(250));
        assert_eq!(faster(Duration::from_secs(60), 1e-300), most);
        assert_eq!(faster(Duration::from_secs(60), 60.0), Duration::from_secs(1));
    }
}
