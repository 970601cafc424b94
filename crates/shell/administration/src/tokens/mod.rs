//! Tokens: who may use the API, and for what.
//!
//! The file has the SHA-256 of each token, never the token. It is replaced as a whole, so that a reader sees the old
//! or the new one; the server reads it again when it has changed.

mod file;
mod known;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use file::{MAX_TOKENS, TokenFile};
pub(crate) use known::{Bearer, KnownTokens};

/// What a token allows. Each role includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads the state, but no messages of calls.
    Viewer,
    /// Drains targets, removes registrations, traces calls, reloads the configuration.
    Operator,
    /// Changes users, gateways and targets; reads the configuration; writes backups.
    Administrator,
}

impl Role {
    /// All roles, the smallest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Administrator];

    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a role; write viewer, operator or administrator"))
    }
}

/// A token as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Its name, for the audit log.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
    /// When it was made, in seconds since 1970.
    pub created_s: u64,
    /// When it stops to be valid, in seconds since 1970; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}

impl Token {
    /// Whether it is valid no longer.
    #[must_use]
    pub fn is_expired(&self, now_s: u64) -> bool {
        self.expires_s.is_some_and(|end| end <= now_s)
    }
}

/// Why tokens cannot be read or changed. The text says what to do.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The name cannot be used, exists already, or does not exist.
    Name(String),
    /// There are too many tokens.
    TooMany(String),
    /// The file cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// What failed, and what to do.
        why: String,
    },
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(why) | Self::TooMany(why) => f.write_str(why),
            Self::File { path, why } => write!(f, "{} {why}", path.display()),
        }
    }
}

impl std::error::Error for TokenError {}
