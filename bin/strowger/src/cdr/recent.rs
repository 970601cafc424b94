//! The latest records, for people who look for a call.

use std::collections::VecDeque;
use std::sync::Arc;

use strowger_calls::CallRecord;

/// Maximum number of records that are kept: about 5 MB.
pub(crate) const MAX_RECENT: usize = 10_000;

/// The latest records; the oldest one gives way to a new one.
#[derive(Default)]
pub(super) struct RecentCalls(VecDeque<Arc<CallRecord>>);

impl RecentCalls {
    pub(super) fn push(&mut self, record: Arc<CallRecord>) {
        if self.0.len() == MAX_RECENT {
            self.0.pop_front();
        }
        self.0.push_back(record);
    }

    /// Returns the latest records, or those of a user, the most recent first.
    pub(super) fn iter<'a>(&'a self, user: Option<&'a str>) -> impl Iterator<Item = &'a Arc<CallRecord>> {
        let is_wanted = move |record: &&Arc<CallRecord>| {
            user.is_none_or(|user| is_of(record.caller(), user) || is_of(record.callee(), user))
        };
        self.0.iter().rev().filter(is_wanted)
    }
}

/// Returns whether a URI is of a user, who is given as `alice` or `alice@example.com`.
fn is_of(uri: &[u8], user: &str) -> bool {
    let without_scheme = |text: &[u8]| {
        let scheme = text.iter().position(|byte| *byte == b':').unwrap_or(0);
        let is_scheme = [&b"sip"[..], b"sips", b"tel"].iter().any(|known| text[..scheme].eq_ignore_ascii_case(known));
        if is_scheme { scheme + 1 } else { 0 }
    };
    let (uri, user) = (&uri[without_scheme(uri)..], user.as_bytes());
    let user = &user[without_scheme(user)..];
    let end = uri.iter().position(|byte| matches!(byte, b';' | b'?')).unwrap_or(uri.len());
    let address = &uri[..end];
    if user.contains(&b'@') {
        // A port names the same user.
        let rest = address.get(user.len()..).unwrap_or_default();
        return address.len() >= user.len()
            && address[..user.len()].eq_ignore_ascii_case(user)
            && (rest.is_empty() || rest[0] == b':');
    }
    let name = address.iter().position(|byte| *byte == b'@').map_or(address, |at| &address[..at]);
    name.eq_ignore_ascii_case(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_or_address() {
        for (uri, user, expected) in [
            ("sip:alice@example.com", "alice", true),
            ("sip:alice@example.com", "alice@example.com", true),
            ("sips:Alice@Example.com:5061;transport=tls", "sip:alice@example.com", true),
            ("tel:+431234", "+431234", true),
            ("sip:alice@example.com.evil", "alice@example.com", false),
            ("sip:malice@example.com", "alice", false),
            ("sip:alice@example.com", "ali", false),
            ("sip:example.com", "alice", false),
            ("", "alice", false),
            ("sip:alice", "alice@example.com", false),
        ] {
            assert_eq!(is_of(uri.as_bytes(), user), expected, "{uri} {user}");
        }
    }
}
