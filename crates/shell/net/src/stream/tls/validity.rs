//! When certificates and lists of revoked certificates expire, which the TLS library does not tell (RFC 5280
//! §4.1.2.5, §5.1.2.5).

use std::time::{Duration, SystemTime};

use super::der::{SEQUENCE, element};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the end of a certificate's validity; `None` if the DER cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    const VERSION: u8 = 0xA0;
    let mut rest = signed_part(certificate)?;
    let (tag, _, after) = element(rest)?;
    if tag == VERSION {
        rest = after;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after) = element(validity)?;
    let (tag, text, _) = element(after)?;
    time(tag, text)
}

/// Returns when the next list must be there; `None` if the DER cannot be read or does not say.
pub(super) fn next_update(list: &[u8]) -> Option<SystemTime> {
    const VERSION: u8 = 0x02;
    let mut rest = signed_part(list)?;
    let (tag, _, after) = element(rest)?;
    if tag == VERSION {
        rest = after;
    }
    // Signature algorithm, issuer, the update itself.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (tag, text, _) = element(rest)?;
    matches!(tag, UTC_TIME | GENERALIZED_TIME).then(|| time(tag, text))?
}

/// Returns what is signed of a certificate or list.
fn signed_part(signed: &[u8]) -> Option<&[u8]> {
    let (tag, contents, _) = element(signed)?;
    let (inner, part, _) = element(contents)?;
    ((tag, inner) == (SEQUENCE, SEQUENCE)).then_some(part)
}

/// Reads a UTCTime or GeneralizedTime in the form of RFC 5280: in UTC, with seconds.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = text.split_at_checked(if tag == UTC_TIME { 2 } else { 4 })?;
    let year: i64 = year.parse().ok()?;
    let year = match year {
        _ if tag != UTC_TIME => year,
        0..50 => year + 2000,
        _ => year + 1900,
    };
    let field = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (field(0)?, field(2)?);
    let seconds = (field(4)? * 60 + field(6)?) * 60 + field(8)?;
    let since_epoch = days(year, month, day) * 86_400 + seconds;
    let at = Duration::from_secs(since_epoch.unsigned_abs());
    if since_epoch < 0 { SystemTime::UNIX_EPOCH.checked_sub(at) } else { SystemTime::UNIX_EPOCH.checked_add(at) }
}

/// Returns the days from 1970-01-01 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // The year begins in March, so that the leap day is its last.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_time_are_read() {
        let seconds = |tag, text: &str| {
            time(tag, text.as_bytes()).map(|at| at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |at| at.as_secs()))
        };
        assert_eq!(seconds(0x17, "700101000000Z"), Some(0));
        assert_eq!(seconds(0x17, "261126071500Z"), Some(1_795_677_300));
        assert_eq!(seconds(0x18, "20240229235959Z"), Some(1_709_251_199));
        assert_eq!(seconds(0x18, "20500101000000Z"), Some(2_524_608_000));
        for bad in ["", "Z", "2611260715Z", "26112607150", "2611260715xxZ"] {
            assert_eq!(seconds(0x17, bad), None, "{bad}");
        }
    }

    #[test]
    fn nonsense_is_no_certificate() {
        for bad in [&b""[..], b"\x30", b"\x30\x84\xFF\xFF\xFF\xFF", b"\x30\x89", b"\x30\x03\x30\x01\x02"] {
            assert_eq!((not_after(bad), next_update(bad)), (None, None));
        }
    }
}
