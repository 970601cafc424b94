//! Session-Expires (RFC 4028 §4).

use core::time::Duration;

use strowger_message::{Head, HeaderName, parse_decimal, trim};

/// Returns the session interval of a message; `None` if it is missing or malformed.
pub(crate) fn session_interval(head: &Head<'_>) -> Option<Duration> {
    let value = head.first(HeaderName::SessionExpires)?;
    let seconds = value.split(|byte| *byte == b';').next().map(trim).and_then(parse_decimal)?;
    // A session interval of zero would expire before any refresh, so it is ignored.
    (seconds > 0).then(|| Duration::from_secs(seconds.min(u64::from(u32::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling() {
        let read = |line: &str| {
            let message = format!("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n{line}\r\n\r\n");
            session_interval(&Head::scan(message.as_bytes()).expect("a head"))
        };
        let half_an_hour = Some(Duration::from_secs(1800));
        assert_eq!(read("Session-Expires: 1800;refresher=uac"), half_an_hour);
        assert_eq!(read("x: 1800 ;refresher=uas"), half_an_hour);
        assert_eq!(read("SESSION-EXPIRES :1800"), half_an_hour);
        for nothing in ["Subject: 1800", "x: soon", "x: 0", "Min-SE: 1800", "x:"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
        assert_eq!(read("x: 99999999999999"), Some(Duration::from_secs(u64::from(u32::MAX))));
    }
}
