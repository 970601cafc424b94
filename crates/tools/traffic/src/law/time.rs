//! Times as they are written, and times that no run reaches.

use std::time::Duration;

/// A number, in seconds where it has a unit, and whether it has.
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

/// So many seconds as a time, and at most 136 years: what is longer never comes within a run.
#[must_use]
pub(crate) fn time_of(seconds: f64) -> Duration {
    const MOST: Duration = Duration::from_secs(u32::MAX as u64);
    // What is not a number is no time.
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MOST).min(MOST)
}

/// What a time becomes where all passes `times` times faster.
#[must_use]
pub(crate) fn faster(time: Duration, times: f64) -> Duration {
    time_of(time.as_secs_f64() / times)
}

/// A time with its unit, as `250ms`.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    let (seconds, has_unit) = parse_value(text.trim())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|_| has_unit || seconds == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_any_run_is_a_time_still() {
        let most = Duration::from_secs(u64::from(u32::MAX));
        assert_eq!([1e300, f64::INFINITY, 5e9].map(time_of), [most; 3]);
        assert_eq!([0.0, -1.0, f64::NAN].map(time_of), [Duration::ZERO; 3]);
        assert_eq!(time_of(0.25), Duration::from_millis(250));
        assert_eq!(faster(Duration::from_secs(60), 1e-300), most);
        assert_eq!(faster(Duration::from_secs(60), 60.0), Duration::from_secs(1));
    }
}
