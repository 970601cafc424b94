//! The tokens that the server knows: a copy of the file, which is followed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER_PERMISSIVE;
use subtle::ConstantTimeEq as _;

use super::file::hash;
use super::{Role, Token, TokenFile};

/// Maximum length of a token, in bytes. Ours have 47.
const MAX_SECRET: usize = 256;

/// The bearer of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// The valid tokens.
#[derive(Debug)]
pub(crate) struct KnownTokens {
    file: TokenFile,
    copy: Mutex<FileCopy>,
}

#[derive(Debug, Default)]
struct FileCopy {
    stamp: Option<Stamp>,
    tokens: Vec<(Token, Vec<u8>)>,
}

/// What changes when the file does: each change makes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    changed: (i64, i64),
    written: (i64, i64),
    length: u64,
}

impl KnownTokens {
    pub(crate) fn new(file: TokenFile) -> Self {
        Self { file, copy: Mutex::default() }
    }

    /// Returns whose token this is. Its time depends on the number of tokens only.
    pub(crate) fn find(&self, secret: &str) -> Option<Bearer> {
        if secret.len() > MAX_SECRET {
            return None;
        }
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let presented = hash(secret);
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        self.follow(&mut copy);
        let mut found = None;
        for (token, stored) in &copy.tokens {
            if bool::from(stored.ct_eq(&presented)) && !token.is_expired(now_s) {
                found = Some(Bearer { name: token.name.clone(), role: token.role });
            }
        }
        found
    }

    /// Reads the file if it has changed. If that fails, no token is valid.
    fn follow(&self, copy: &mut FileCopy) {
        let stamp = fs::metadata(self.file.path()).ok().map(|data| Stamp {
            inode: (data.dev(), data.ino()),
            changed: (data.ctime(), data.ctime_nsec()),
            written: (data.mtime(), data.mtime_nsec()),
            length: data.len(),
        });
        if stamp == copy.stamp {
            return;
        }
        copy.stamp = stamp;
        let tokens = self.file.list().unwrap_or_else(|error| {
            tracing::error!("no token is valid: {error}");
            Vec::new()
        });
        let with_hash = |token: Token| {
            let stored = HEXLOWER_PERMISSIVE.decode(token.sha256.as_bytes()).ok()?;
            Some((token, stored))
        };
        copy.tokens = tokens.into_iter().filter_map(with_hash).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_followed_and_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TokenFile::in_folder(folder.path());
        let known = KnownTokens::new(file.clone());
        assert_eq!(known.find("swg_x"), None, "there is no file");
        let office = file.add("office", Role::Viewer, 1, None).expect("added");
        let old = file.add("old", Role::Administrator, 1, Some(2)).expect("added");
        assert_eq!(known.find(&office), Some(Bearer { name: "office".to_owned(), role: Role::Viewer }));
        assert_eq!(known.find(&old), None, "it has expired");
        for wrong in ["", "swg_", &office[..46], &format!("{office}x"), &"x".repeat(10_000)] {
            assert_eq!(known.find(wrong), None, "{wrong}");
        }
        file.remove("office").expect("removed");
        assert_eq!(known.find(&office), None, "it was removed");
        let home = file.add("home", Role::Operator, 1, None).expect("added");
        assert!(known.find(&home).is_some());
        fs::write(file.path(), "not JSON").expect("written");
        assert_eq!(known.find(&home), None, "a file that cannot be read lets nobody in");
    }
}
