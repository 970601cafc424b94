//! The file of tokens.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Role, Token, TokenError};

/// Maximum number of tokens.
pub const MAX_TOKENS: usize = 256;
/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 64;
/// Maximum size of the file, in bytes: that of [`MAX_TOKENS`] with the longest names.
const MAX_FILE: u64 = 128 * 1024;
/// What each token begins with, so that programs that look for leaked secrets know it.
const PREFIX: &str = "swg_";
/// Number of random bytes of a token.
const RANDOM: usize = 32;
/// Name of the file in the data folder.
const NAME: &str = "tokens.json";

/// The file of tokens.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    tokens: Vec<Token>,
}

impl TokenFile {
    /// Names the file in a server's data folder.
    #[must_use]
    pub fn in_folder(data: &Path) -> Self {
        Self { path: data.join(NAME) }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a token and returns it. It is not stored anywhere.
    ///
    /// # Errors
    /// The name cannot be used, or the file cannot be written.
    pub fn add(&self, name: &str, role: Role, now_s: u64, expires_s: Option<u64>) -> Result<String, TokenError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_plain) {
            return Err(TokenError::Name(format!(
                "{name:?} is not a name for a token; write letters, digits, -, _, . and @, {MAX_NAME} at most, such as office"
            )));
        }
        let secret = new_secret().map_err(|error| self.failed("cannot be written", &error))?;
        let sha256 = HEXLOWER.encode(&hash(&secret));
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == name) {
                let why = format!("there is a token {name} already; remove it with `strowger token rm {name}`");
                return Err(TokenError::Name(why));
            }
            if tokens.len() >= MAX_TOKENS {
                let why = format!("there are {MAX_TOKENS} tokens, which is the maximum; remove one first");
                return Err(TokenError::TooMany(why));
            }
            tokens.push(Token { name: name.to_owned(), role, sha256, created_s: now_s, expires_s });
            Ok(())
        })?;
        Ok(secret)
    }

    /// Removes a token.
    ///
    /// # Errors
    /// There is none, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), TokenError> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != name);
            if tokens.len() == before {
                let why = format!("there is no token {name:?}; `strowger token list` shows all");
                return Err(TokenError::Name(why));
            }
            Ok(())
        })
    }

    /// Returns all tokens; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("cannot be read", &error)),
        };
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text).map_err(|error| self.failed("cannot be read", &error))?;
        let contents: Contents = serde_json::from_slice(&text).map_err(|error| TokenError::File {
            path: self.path.clone(),
            why: format!("is not a file of tokens: {error}; remove it and add the tokens again"),
        })?;
        Ok(contents.tokens)
    }

    /// Replaces the tokens by changed ones.
    fn change(&self, change: impl FnOnce(&mut Vec<Token>) -> Result<(), TokenError>) -> Result<(), TokenError> {
        let failed = |error: io::Error| self.failed("cannot be written", &error);
        let folder = strowger_files::folder_of(&self.path);
        strowger_files::create_folder(folder).map_err(failed)?;
        let folder_file = File::open(folder).map_err(failed)?;
        // Released when the folder is closed.
        flock(&folder_file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let mut tokens = self.list()?;
        change(&mut tokens)?;
        let text = serde_json::to_vec_pretty(&Contents { tokens }).map_err(|error| failed(error.into()))?;
        let unnamed = self.path.with_added_extension("new");
        let written = write(&unnamed, &text).and_then(|()| fs::rename(&unnamed, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&unnamed);
        }
        written.and_then(|()| folder_file.sync_all()).map_err(failed)
    }

    fn failed(&self, what: &str, error: &io::Error) -> TokenError {
        let why = format!("{what}: {error}; run this as the server's user, or as root");
        TokenError::File { path: self.path.clone(), why }
    }
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = strowger_files::create_temporary(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn new_secret() -> io::Result<String> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&random)))
}

pub(super) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn tokens_are_stored_as_hashes_and_readable_by_the_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TokenFile::in_folder(&folder.path().join("data"));
        assert_eq!(file.list(), Ok(Vec::new()), "there is no file yet");
        let secret = file.add("office", Role::Operator, 100, Some(200)).expect("added");
        assert!(secret.starts_with("swg_") && secret.len() == 47, "{secret}");
        let text = fs::read_to_string(file.path()).expect("there");
        assert!(!text.contains(&secret[4..]), "{text}");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(file.path()), mode(file.path().parent().expect("in a folder"))), (0o600, 0o700));
        let [token] = file.list().expect("readable").try_into().expect("one");
        assert_eq!(token.sha256, HEXLOWER.encode(&hash(&secret)));
        assert!(!token.is_expired(199) && token.is_expired(200));
        assert_ne!(file.add("home", Role::Viewer, 100, None).expect("added"), secret);
        assert!(matches!(file.add("home", Role::Viewer, 1, None), Err(TokenError::Name(_))), "it exists");
        for bad in ["", "a b", "ü", "a/b", "a\n", &"a".repeat(65)] {
            assert!(matches!(file.add(bad, Role::Viewer, 1, None), Err(TokenError::Name(_))), "{bad:?}");
        }
        file.remove("office").expect("removed");
        assert!(file.remove("office").is_err());
        assert_eq!(file.list().expect("readable").len(), 1);
        let left: Vec<_> = fs::read_dir(folder.path().join("data")).expect("there").flatten().collect();
        assert_eq!(left.len(), 1, "no file is left behind: {left:?}");
    }

    #[test]
    fn the_number_is_bounded_and_a_full_file_is_readable() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TokenFile::in_folder(folder.path());
        let one = |at: usize| Token {
            name: format!("{at:>0$}", MAX_NAME),
            role: Role::Administrator,
            sha256: "0".repeat(64),
            created_s: u64::MAX,
            expires_s: Some(u64::MAX),
        };
        let tokens = (0..MAX_TOKENS).map(one).collect();
        fs::write(file.path(), serde_json::to_vec_pretty(&Contents { tokens }).expect("JSON")).expect("written");
        assert_eq!(file.list().expect("it fits").len(), MAX_TOKENS);
        assert!(matches!(file.add("more", Role::Viewer, 1, None), Err(TokenError::TooMany(_))));
    }
}
