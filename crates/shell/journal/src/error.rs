//! What can go wrong, who has to act, and how.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Operation};

/// Why a journal cannot be opened or read. Each message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The folder is missing and cannot be made, or cannot be used.
    #[error("the journal's folder {path} cannot be used: {cause}; {}", remedy(cause.kind()))]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// This user may not use it.
    #[error("this user may not write to {path}; `chown` the folder and its files to the user that runs this program")]
    Permission {
        /// The folder, or the file in it.
        path: PathBuf,
    },
    /// The path leads to a file.
    #[error("{path} is not a folder; move that file away, or choose another place for the data")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// Another process has it.
    #[error("another process uses the journal in {path}; stop it first, or give each server a data folder of its own")]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error(
        "{path} was written by a newer version of this program (format {version}, this one knows {known}); run that version; \
         nothing was changed"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its format.
        version: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// A segment has changed since it was verified.
    #[error("{path} was whole when it was verified and is not now (at byte {offset}); look at the health of this disk")]
    Changed {
        /// The file.
        path: String,
        /// Where, in bytes.
        offset: u64,
    },
    /// The disk refuses.
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

    /// What was refused.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The file or folder.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.kind
    }

    /// The system's number of the error.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        self.os_error
    }

    /// What an operator does about it.
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
            "the file system is read-only: look in the kernel's log for why, and mount it for writing"
        }
        io::ErrorKind::PermissionDenied => "give it to the user that runs this program (`chown`)",
        io::ErrorKind::NotFound => "put it back, or give this user the right to make it",
        io::ErrorKind::NotADirectory => "move away what stands in its place",
        _ => "look in the kernel's log for errors of this disk",
    }
}

/// Why a group was not committed. Its records are dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// So much waits for the checkpoint that no more is taken; it is no fault of the disk and ends with
    /// [`Journal::remove_through`](crate::Journal::remove_through).
    #[error("the journal is full: {bytes} bytes wait for the checkpoint, of {limit} at most")]
    Full {
        /// Bytes of all segments.
        bytes: u64,
        /// Bytes at most.
        limit: u64,
    },
    /// The disk refused; nothing is taken until [`Journal::recover`](crate::Journal::recover) has worked.
    #[error(transparent)]
    Fault(#[from] DiskError),
}

/// Why a record was not added to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// It is longer than [`MAX_RECORD`](crate::MAX_RECORD).
    #[error("the record is too long")]
    TooLong,
    /// The group is at its limit, [`MAX_GROUP`](crate::MAX_GROUP): commit first.
    #[error("the group is full")]
    GroupFull,
}

/// What was wrong with the journal when it was opened. What is behind it was cut and is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What it is.
    pub kind: DamageKind,
    /// The segment.
    pub segment: u64,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Bytes of this file that are not used.
    pub lost_bytes: u64,
    /// The file that has them now, for a person to look at.
    pub quarantined_as: Option<String>,
    pub(crate) path: String,
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The last group is not whole, as after any loss of power. It was never confirmed.
    Torn,
    /// What was confirmed cannot be read.
    Corrupt,
    /// A segment is not there.
    Missing,
    /// A segment belongs to another store.
    Foreign,
    /// The segment is whole, but stands behind one that is not.
    Cut,
    /// The file was lost while the server ran, and what the journal committed after that counts all the same.
    Removed,
}

impl Damage {
    /// Whether something is lost that was confirmed. A torn tail is not: that is normal after a crash.
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
                    "{path} is missing, so what stands behind it is not used; put it back while the server is stopped, or \
                     let the phones register again"
                );
            }
            DamageKind::Removed => {
                return write!(
                    f,
                    "{path} was lost while the server ran, and nothing has made up for it yet; the phones concerned \
                     register again"
                );
            }
            DamageKind::Corrupt => write!(
                f,
                "{path} is damaged at byte {offset}: {lost_bytes} bytes are not used; look at the health of this disk; \
                 the phones concerned register again"
            )?,
            DamageKind::Foreign => {
                write!(
                    f,
                    "{path} belongs to another store and is not used; move it to the data folder that it is from"
                )?;
            }
            DamageKind::Cut => {
                write!(f, "{path} is not used, since what stands before it is lost ({lost_bytes} bytes)")?;
            }
        }
        match &self.quarantined_as {
            Some(kept) => write!(f, " (kept as {kept})"),
            None => Ok(()),
        }
    }
}
