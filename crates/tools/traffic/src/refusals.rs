//! Reasons that servers give when they reject requests.

use std::collections::BTreeMap;

use strowger_message::{Head, HeaderName};

/// Maximum number of statuses whose first response is kept.
const MAX_STATUSES: usize = 16;

/// Maximum length of the text kept for a status, in characters.
const MAX_REASON_CHARS: usize = 200;

/// The first response with each status: its reason phrase, the request's method, and its Warning if it had one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(BTreeMap<u16, String>);

impl Refusals {
    /// Records a response that ended a session.
    pub fn on_response(&mut self, status: u16, bytes: &[u8]) {
        if self.0.len() < MAX_STATUSES && !self.0.contains_key(&status) {
            self.0.insert(status, words(bytes));
        }
    }

    /// Adds the reasons of another end.
    pub fn merge(&mut self, other: &Self) {
        for (status, words) in &other.0 {
            if self.0.len() < MAX_STATUSES || self.0.contains_key(status) {
                self.0.entry(*status).or_insert_with(|| words.clone());
            }
        }
    }

    /// Returns the server's reason in brackets after a space, or an empty text if there is none.
    #[must_use]
    pub fn reasons(&self, status: u16) -> String {
        let words = self.0.get(&status).filter(|words| !words.is_empty());
        words.map(|words| format!(" ({words})")).unwrap_or_default()
    }

    /// Returns whether the server gave a reason of its own in a Warning.
    #[must_use]
    pub fn has_warning(&self, status: u16) -> bool {
        self.0.get(&status).is_some_and(|words| words.contains("; "))
    }
}

fn words(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
    let reason = line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
    let mut text = strowger_message::lossy(reason);
    let head = Head::scan(bytes).ok();
    let first = |name| head.as_ref().and_then(|head| head.first(name));
    if let Some(method) = first(HeaderName::CSeq).and_then(|value| value.rsplit(u8::is_ascii_whitespace).next()) {
        text.push_str(", the first to ");
        text.push_str(&strowger_message::lossy(method));
    }
    if let Some(warning) = first(HeaderName::Warning).map(warn_text) {
        text.push_str("; ");
        text.push_str(&warning);
    }
    text.chars().take(MAX_REASON_CHARS).collect()
}

/// Returns the text of `399 host "text"`.
fn warn_text(value: &[u8]) -> String {
    let text = strowger_message::lossy(value);
    let quoted = text.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    quoted.map_or_else(|| text.clone(), |(quoted, _)| quoted.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_per_status_is_kept() {
        let mut refusals = Refusals::default();
        let warned =
            b"SIP/2.0 403 Too Many Contacts\r\nCSeq: 1 REGISTER\r\nWarning: 399 strowger \"10 are enough\"\r\n\r\n";
        refusals.on_response(403, warned);
        refusals.on_response(403, b"SIP/2.0 403 Other\r\n\r\n");
        refusals.on_response(404, b"SIP/2.0 404 Domain Not Served Here\r\n\r\n");
        assert_eq!(refusals.reasons(403), " (Too Many Contacts, the first to REGISTER; 10 are enough)");
        assert_eq!((refusals.reasons(404).as_str(), refusals.has_warning(404)), (" (Domain Not Served Here)", false));
        assert_eq!((refusals.reasons(500).as_str(), refusals.has_warning(403)), ("", true));
        let mut sum = Refusals::default();
        sum.merge(&refusals);
        assert_eq!(sum, refusals);
    }
}
