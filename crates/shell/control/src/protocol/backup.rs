//! Backups.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Destination of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// Absolute path of the file; server and client may have different working directories.
    pub file: PathBuf,
    /// Whether an existing file may be overwritten.
    #[serde(default)]
    pub overwrite: bool,
}

/// An event of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackupEvent {
    /// Progress of the backup.
    Progress {
        /// Database pages copied; 0 while the journal is merged into the database.
        done: u64,
        /// Total number of pages.
        of: u64,
    },
    /// The backup is complete and synced.
    Done(BackupReport),
}

/// Contents of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupReport {
    /// Number of users.
    pub users: u64,
    /// Number of aliases.
    pub aliases: u64,
    /// Number of gateways.
    #[serde(default)]
    pub gateways: u64,
    /// Number of addresses with registrations.
    pub addresses: u64,
    /// Number of unreadable rows, which are not in the backup.
    pub damaged: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Whether the backup has the server's key.
    pub key: bool,
}
