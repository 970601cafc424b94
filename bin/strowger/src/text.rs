//! Numbers formatted for people.

use std::time::Duration;

/// Formats a number as `1,234,567`.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 contact`, `2,000 contacts`, `1 address`, `2 addresses`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = match noun.chars().last() {
        _ if number == 1 => "",
        Some('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", self::number(number))
}

/// Formats a size: `512 B`, `1.5 kB`, `32.0 MB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (bytes / 100, 0);
    while tenths >= 10_000 && unit + 1 < units.len() {
        tenths /= 1000;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, units.get(unit).unwrap_or(&""))
}

/// Formats hours, minutes and seconds: `0:01:05`.
pub(crate) fn clock(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds).map_or(0, |age| age.as_secs());
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_formatting() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [count(1, "address"), count(2, "address"), count(0, "user")],
            ["1 address", "2 addresses", "0 users"]
        );
        assert_eq!(
            [0, 999, 1500, 32_000_000, 1_073_741_824].map(size),
            ["0 B", "999 B", "1.5 kB", "32.0 MB", "1.0 GB"]
        );
        assert_eq!([clock(0.0), clock(3725.9)], ["0:00:00", "1:02:05"]);
    }
}
