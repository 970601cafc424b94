//! Names of DNS records, which may contain underscores.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a name and of a label (RFC 1035 §2.3.4), in bytes, as written without the final dot.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A fully qualified DNS name such as `_sip._udp.example.com`, in lower case, without a final dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordName(pub String);

impl RecordName {
    /// Whether the name is `zone` or below it.
    #[must_use]
    pub fn is_in(&self, zone: &Self) -> bool {
        let rest = self.0.strip_suffix(&zone.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

impl FromStr for RecordName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_label = |label: &str| {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
            (1..=MAX_LABEL).contains(&label.len()) && label.chars().all(is_plain)
        };
        if name.len() > MAX_NAME || !name.split('.').all(is_label) || name.parse::<std::net::IpAddr>().is_ok() {
            return Err(format!("{text:?} is not a DNS name; write it in full, such as _sip._udp.example.com"));
        }
        Ok(Self(name))
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
