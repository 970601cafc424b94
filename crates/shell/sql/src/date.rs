//! Dates and times as the databases write them: `2026-11-25 21:09:55`, optionally with six fractional digits.

/// Reading of the database's clock, whose dates are in its own time zone, and of this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockReading {
    /// Local time of the database's clock, in seconds since 1970-01-01 00:00:00 in its time zone.
    pub database_s: f64,
    /// UTC of this machine's clock, in seconds since 1970-01-01 00:00:00.
    pub utc_s: f64,
}

/// Parses a date with or without a time, into seconds since 1970-01-01 00:00:00 in its time zone.
#[must_use]
pub fn seconds_of_text(text: &str) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a moment is rounded to less than a millisecond")]
    micros_of_text(text).map(|micros| micros as f64 / 1e6)
}

const MICROS_A_DAY: i64 = 86_400_000_000;

/// Formats microseconds since 1970-01-01 00:00:00.
pub(crate) fn text_of_micros(micros: i64) -> String {
    let (year, month, day) = civil(micros.div_euclid(MICROS_A_DAY));
    let of_day = micros.rem_euclid(MICROS_A_DAY);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let time = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let date = format!("{year:04}-{month:02}-{day:02}");
    if fraction == 0 { format!("{date} {time}") } else { format!("{date} {time}.{fraction:06}") }
}

/// Parses a date and time into microseconds since 1970-01-01 00:00:00. A date alone means its midnight.
pub(crate) fn micros_of_text(text: &str) -> Option<i64> {
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    if !in_range || fraction.len() > 6 || !(-4_713..=9_999).contains(&year) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
    let seconds = (days(year, month, day) * 24 + hour) * 3_600 + minute * 60 + second;
    Some(seconds * 1_000_000 + fraction)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let parts: Vec<i64> = text.split(between).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

/// Converts days since 1970-01-01 to year, month and day of the Gregorian calendar.
const fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let next = if month <= 2 { 1 } else { 0 };
    (year + era * 400 + next, month, day)
}

/// Inverse of [`civil`].
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = if month > 2 { month - 3 } else { month + 9 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for (text, micros) in [
            ("1970-01-01 00:00:00", 0),
            ("2000-02-29 23:59:59.000001", 951_868_799_000_001),
            ("1969-12-31 23:59:59.500000", -500_000),
            ("2030-05-28 21:32:15", 1_906_234_335_000_000),
        ] {
            assert_eq!(text_of_micros(micros), text);
            assert_eq!(micros_of_text(text), Some(micros));
        }
    }

    #[test]
    fn bad_timestamps_are_rejected() {
        for text in ["", "2026-13-01", "2026-01-01 25:00:00", "2026-01", "x", "2026-01-01 00:00:00.1234567"] {
            assert_eq!(micros_of_text(text), None, "{text}");
        }
        assert_eq!(micros_of_text("2026-11-25"), Some(1_795_564_800_000_000));
    }
}
