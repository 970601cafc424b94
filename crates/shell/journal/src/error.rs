//! Errors of the journal. Each states what the operator has to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Operation};

/// Why a journal cannot be opened or read. Each message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The folder cannot be created or used.
    #[error("the journal's folder {path} cannot be used: {cause}; {}", remedy(cause.kind()))]
    Folder {
        /// The folder, or a file in it.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// This user lacks permission.
    #[error("this user may not write to {path}; `chown` the folder and its files to the user that runs this program")]
    Permission {
        /// The folder, or a file in it.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{path} is not a folder; move that file away, or choose another data folder")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error("another process uses the journal in {path}; stop it first, or give each server a data folder of its own")]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// Written by a newer version of this program.
    #[error(
        "{path} was written by a newer version of this program (format {version}, this one supports {known}); run that version; \
         nothing was changed"
    )]
    Newer {
        /// The file.
        path: String,
        /// Format version of the file.
        version: u32,
        /// Newest format version that this program supports.
        known: u32,
    },
    /// A segment has changed since it was verified.
    #[error("{path} has changed since it was verified (at byte {offset}); check the health of this disk")]
    Changed {
        /// The file.
        path: String,
        /// Offset in bytes.
        offset: u64,
    },
    /// The disk refused an operation.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl JournalError {
    pub(crate) fn of_folder(path: &Path, cause: io::Error) -> Self {
        let path = path.to_owned();
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { path },
            io::ErrorKind::NotADirectory => Self::NotAFolder { path },
            _ => Self::Folder { path, cause },
        }
    }
}

/// The disk refused an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    operation: Operation,
    path: String,
    kind: io::ErrorKind,
    os_error: Option<i32>,
    words: String,
}

impl DiskError {
    pub(crate) fn new(disk: &impl Disk, operation: Operation, name: &str, cause: &io::Error) -> Self {
        let path = disk.path_of(name);
        Self { operation, path, kind: cause.kind(), os_error: cause.raw_os_error(), words: cause.to_string() }
    }

    /// Returns the operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the path of the file or folder.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the kind of error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.kind
    }

    /// Returns the system's error number.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        self.os_error
    }

    /// Returns what an operator should do.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        remedy(self.kind)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}; {}", self.operation.verb(), self.path, self.words, self.remedy())
    }
}

impl std::error::Error for DiskError {}

fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on this file system",
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: find the cause in the kernel log and remount it for writing"
        }
        io::ErrorKind::PermissionDenied => "give it to the user that runs this program (`chown`)",
        io::ErrorKind::NotFound => "restore it, or permit this user to create it",
        io::ErrorKind::NotADirectory => "move away the file in its place",
        _ => "check the kernel log for errors of this disk",
    }
}

/// Why a group was not committed. Its records are dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Too much data waits for the checkpoint. Not a disk error; ends with
    /// [`Journal::remove_through`](crate::Journal::remove_through).
    #[error("the journal is full: {bytes} bytes wait for the checkpoint, of {limit} at most")]
    Full {
        /// Bytes in all segments.
        bytes: u64,
        /// Maximum number of bytes.
        limit: u64,
    },
    /// The disk refused; all commits fail until [`Journal::recover`](crate::Journal::recover) succeeds.
    #[error(transparent)]
    Fault(#[from] DiskError),
}

/// Why a record was not added to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The record is longer than [`MAX_RECORD`](crate::MAX_RECORD).
    #[error("the record is too long")]
    TooLong,
    /// The group has reached [`MAX_GROUP`](crate::MAX_GROUP) and must be committed first.
    #[error("the group is full")]
    GroupFull,
}

/// Damage found when the journal was opened. Everything after it was cut off and is not replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Kind of damage.
    pub kind: DamageKind,
    /// Number of the segment.
    pub segment: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Bytes of this file that are not used.
    pub lost_bytes: u64,
    /// Path of the quarantined file, for inspection.
    pub quarantined_as: Option<String>,
    pub(crate) path: String,
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The last group is incomplete, as after any loss of power. It was never acknowledged.
    Torn,
    /// Acknowledged data cannot be read.
    Corrupt,
    /// A segment is missing.
    Missing,
    /// A segment belongs to another store.
    Foreign,
    /// The segment is intact but follows a damaged or missing one.
    Cut,
    /// The file was lost while the server was running; what the journal committed afterwards is valid.
    Removed,
}

impl Damage {
    /// Returns whether acknowledged data was lost. A torn tail is not a loss; it is normal after a crash.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        self.kind != DamageKind::Torn
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, lost_bytes, path, .. } = self;
        match self.kind {
            DamageKind::Torn => {
                return write!(
                    f,
                    "{path}: the last group was being written when the server stopped; {lost_bytes} bytes that were \
                     never confirmed are cut at byte {offset}"
                );
            }
            DamageKind::Missing => {
                return write!(
                    f,
                    "{path} is missing, so what follows it is not used; restore it while the server is stopped, or \
                     let the phones register again"
                );
            }
            DamageKind::Removed => {
                return write!(
                    f,
                    "{path} was lost while the server was running, and its contents have not been rewritten; the phones concerned \
                     register again"
                );
            }
            DamageKind::Corrupt => write!(
                f,
                "{path} is damaged at byte {offset}: {lost_bytes} bytes are not used; check the health of this disk; \
                 the phones concerned register again"
            )?,
            DamageKind::Foreign => {
                write!(f, "{path} belongs to another store and is not used; move it back to its own data folder")?;
            }
            DamageKind::Cut => {
                write!(f, "{path} is not used, because the data before it is lost ({lost_bytes} bytes)")?;
            }
        }
        match &self.quarantined_as {
            Some(kept) => write!(f, " (kept as {kept})"),
            None => Ok(()),
        }
    }
}
