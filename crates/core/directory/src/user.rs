//! A user and its password hashes.

use std::fmt;

/// Hashes H(username ":" realm ":" password) of RFC 7616 §3.4.2, for each supported algorithm of RFC 8760.
///
/// A hash suffices to answer a challenge as the user: it is as secret as the password and never printed. `==` does
/// not take constant time: use it in tests and stores, not to check what a peer sent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Ha1s {
    /// Hash for `MD5`.
    pub md5: Option<[u8; 16]>,
    /// Hash for `SHA-256`.
    pub sha256: Option<[u8; 32]>,
    /// Hash for `SHA-512-256`, which is SHA-512/256 of FIPS 180-4 and not the first half of a SHA-512.
    pub sha512_256: Option<[u8; 32]>,
}

impl Ha1s {
    /// Whether there is no hash, so that the user can answer no challenge.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.md5.is_none() && self.sha256.is_none() && self.sha512_256.is_none()
    }
}

impl fmt::Debug for Ha1s {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [
            ("MD5", self.md5.is_some()),
            ("SHA-256", self.sha256.is_some()),
            ("SHA-512-256", self.sha512_256.is_some()),
        ];
        f.write_str("Ha1s")?;
        f.debug_set().entries(known.iter().filter(|(_, known)| *known).map(|(name, _)| name)).finish()
    }
}

/// A local user.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Canonical address of record. Its user part is the digest user name.
    pub aor: Box<[u8]>,
    /// Password hashes.
    pub ha1: Ha1s,
    /// Whether the user may register and call. A disabled user keeps its row.
    pub enabled: bool,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("aor", &format_args!("{}", self.aor.escape_ascii()))
            .field("ha1", &self.ha1)
            .field("enabled", &self.enabled)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_which_hashes_exist_but_not_their_values() {
        let ha1 = Ha1s { md5: Some([0xAB; 16]), sha256: None, sha512_256: Some([0xCD; 32]) };
        let user = User { aor: (*b"al\nice@example.com").into(), ha1, enabled: true };
        let shown = format!("{user:?}");
        assert_eq!(shown, r#"User { aor: al\nice@example.com, ha1: Ha1s{"MD5", "SHA-512-256"}, enabled: true }"#);
        let pretty = format!("{user:#?}").to_lowercase();
        for secret in ["171", "205", "abab", "cdcd", "0xab"] {
            assert!(!pretty.contains(secret), "{secret} in {pretty}");
        }
    }

    #[test]
    fn empty_means_that_no_algorithm_is_known() {
        assert!(Ha1s::default().is_empty());
        assert!(!Ha1s { sha256: Some([0; 32]), ..Ha1s::default() }.is_empty());
    }
}
