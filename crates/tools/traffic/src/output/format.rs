//! Formatting of figures for people.

/// Formats microseconds in a suitable unit.
pub(crate) fn micros(us: f64) -> String {
    match us {
        us if us <= 0.0 => "0".to_owned(),
        us if us < 999.5 => format!("{} µs", number(us)),
        us if us < 999_500.0 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

/// Formats seconds in a suitable unit.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{} s", number(s)),
        s if s < 7_200.0 => format!("{} min", number(s / 60.0)),
        s => format!("{} h", number(s / 3_600.0)),
    }
}

/// Formats bytes in a suitable unit.
pub(crate) fn bytes(count: f64) -> String {
    match count / 1_048_576.0 {
        mib if mib <= 0.0 => "0".to_owned(),
        mib if mib < 0.1 => format!("{} KiB", number(mib * 1_024.0)),
        mib if mib < 10_000.0 => format!("{} MiB", number(mib)),
        mib => format!("{} GiB", number(mib / 1_024.0)),
    }
}

/// Formats a number with three significant digits, or with all digits before the point.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), grouped);
    if part.is_empty() { whole } else { format!("{whole}.{part}") }
}

/// Formats a percentage with four digits, rounded down, so that a value slightly below a limit or 100 never shows as
/// that.
pub(crate) fn percent(value: f64) -> String {
    // Removes the rounding error of floating point: 100 × 0.9999 is 99.99.
    let text = format!("{value:.9}");
    let end = text.find('.').map_or(text.len(), |point| point + 5);
    text.get(..end).unwrap_or(&text).trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Works as [`percent`], for counts of any size.
pub(crate) fn percent_of(part: u64, all: u64) -> String {
    let parts = u128::from(part) * 1_000_000 / u128::from(all.max(1));
    let (whole, rest) = (parts / 10_000, parts % 10_000);
    let text = format!("{whole}.{rest:04}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a number with a thin space every three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Last second of the year 9999, in seconds since 1970.
const END_OF_9999: u64 = 253_402_300_799;

/// Formats seconds since 1970 as date and time of day.
pub(crate) fn date(since_1970_s: u64) -> String {
    // A report may contain any number.
    let since_1970_s = since_1970_s.min(END_OF_9999);
    let (mut day, second) = (since_1970_s / 86_400, since_1970_s % 86_400);
    let mut year = 1970;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = |year| 365 + u64::from(is_leap(year));
    while day >= days(year) {
        day -= days(year);
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", day + 1, second / 3_600, second / 60 % 60)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_abbreviated() {
        let shown = [
            number(0.0),
            number(1.5),
            number(42.04),
            number(9.997),
            number(1_234_567.8),
            micros(340.0),
            micros(999.7),
            micros(2.5e6),
        ];
        assert_eq!(shown, ["0", "1.5", "42", "10", "1\u{202f}234\u{202f}568", "340 µs", "1 ms", "2.5 s"]);
        assert_eq!([seconds(90.0), seconds(600.0), seconds(9_000.0)], ["90 s", "10 min", "2.5 h"]);
        assert_eq!(
            [bytes(0.0), bytes(51_200.0), bytes(41_943_040.0), bytes(2e10)],
            ["0", "50 KiB", "40 MiB", "18.6 GiB"]
        );
    }

    #[test]
    fn shares_are_never_rounded_up() {
        let shown = [100.0, 99.9985, 99.999_99, 100.0 * 0.9999, 94.999_99, 33.333, 0.0].map(percent);
        assert_eq!(shown, ["100", "99.9985", "99.9999", "99.99", "94.9999", "33.333", "0"]);
        let counts =
            [(10, 10), (999_996, 1_000_000), (u64::MAX - 1, u64::MAX), (99_989_999, 100_000_000), (1, 3), (0, 0)];
        let shown = counts.map(|(part, all)| percent_of(part, all));
        assert_eq!(shown, ["100", "99.9996", "99.9999", "99.9899", "33.3333", "0"]);
    }

    #[test]
    fn dates_match_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
        assert_eq!(date(u64::MAX), "9999-12-31 23:59 UTC", "and it ends");
    }
}
