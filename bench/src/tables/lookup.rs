//! Lookups of credentials.

use std::time::Duration;

/// Returns the password hash of a user.
pub trait Credentials {
    /// Returns the MD5 hash of an address of record.
    fn hash(&mut self, aor: &[u8]) -> Option<[u8; 16]>;
    /// Returns the processor time that another process has used for this so far.
    fn elsewhere(&self) -> Duration {
        Duration::ZERO
    }
}

/// Parses 32 hexadecimal digits.
#[must_use]
pub fn read_hash(digits: &[u8]) -> Option<[u8; 16]> {
    let mut hash = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}
