//! The canonical address of record (RFC 3261 §10.3 step 5).

use core::fmt;

use smallvec::SmallVec;

use crate::host::Host;
use crate::text;
use crate::unescape::Unescape;

/// A canonical address of record: `user@domain`, with the user part unescaped and the domain in lower case. The key
/// of the directory and the location table.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Aor {
    text: SmallVec<[u8; 48]>,
}

impl Aor {
    //= rfc3261#10.3:canonical-form
    //= rfc3261#10.3:unescaped
    /// Creates one from a user part and a host as written.
    #[must_use]
    pub fn new(user: &[u8], host: &[u8]) -> Self {
        let mut text: SmallVec<[u8; 48]> = match memchr::memchr(b'%', user) {
            None => SmallVec::from_slice(user),
            Some(_) => Unescape::new(user).collect(),
        };
        text.push(b'@');
        match Some(host).filter(|host| host.starts_with(b"[")).and_then(Host::parse) {
            //= rfc5954#4.2
            // An address has several spellings but only one key.
            Some(ip) => text.extend_from_slice(ip.to_string().as_bytes()),
            None => push_lower_case(&mut text, host.strip_suffix(b".").unwrap_or(host)),
        }
        Self { text }
    }

    /// Creates one from a user part without escapes, such as a digest username.
    #[must_use]
    pub fn from_unescaped(user: &[u8], host: &[u8]) -> Self {
        let mut text = SmallVec::from_slice(user);
        text.push(b'@');
        push_lower_case(&mut text, host);
        Self { text }
    }

    /// `user@domain`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The unescaped user part.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        let at = memchr::memrchr(b'@', &self.text).unwrap_or(self.text.len());
        self.text.get(..at).unwrap_or(&[])
    }

    /// The domain in lower case.
    #[must_use]
    pub fn domain(&self) -> &[u8] {
        let at = memchr::memrchr(b'@', &self.text).unwrap_or(self.text.len());
        self.text.get(at.saturating_add(1)..).unwrap_or(&[])
    }
}

impl fmt::Display for Aor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::lossy(&self.text))
    }
}

impl fmt::Debug for Aor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aor({self})")
    }
}

fn push_lower_case(text: &mut SmallVec<[u8; 48]>, part: &[u8]) {
    let begin = text.len();
    text.extend_from_slice(part);
    // Fast path: configured domains are in lower case, and so are most others.
    if has_capitals(part)
        && let Some(pushed) = text.get_mut(begin..)
    {
        pushed.make_ascii_lowercase();
    }
}

/// Whether there is an upper-case letter; tests eight bytes at once.
fn has_capitals(text: &[u8]) -> bool {
    const fn every(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    let (eights, rest) = text.as_chunks::<8>();
    let any = |eight: &[u8; 8]| {
        let word = u64::from_le_bytes(*eight);
        let low = word & every(0x7f);
        // The high bit of each byte that is at least `A`, and of each byte above `Z`.
        let from = low.wrapping_add(every(0x80 - b'A'));
        let beyond = low.wrapping_add(every(0x7f - b'Z'));
        from & !beyond & !word & every(0x80) != 0
    };
    let last = match text.last_chunk::<8>() {
        Some(last) if !rest.is_empty() => any(last),
        _ => rest.iter().any(u8::is_ascii_uppercase),
    };
    last || eights.iter().any(any)
}

#[cfg(test)]
mod tests {
    use super::has_capitals;

    #[test]
    fn capitals_are_found_at_any_position() {
        for length in 0..20 {
            let lower = vec![b'@'; length];
            assert!(!has_capitals(&lower) && !has_capitals(&vec![b'['; length]) && !has_capitals(&vec![0xc1; length]));
            for at in 0..length {
                for capital in *b"AMZ" {
                    let mut text = lower.clone();
                    text[at] = capital;
                    assert!(has_capitals(&text), "{capital} at {at} of {length}");
                }
            }
        }
    }
}
