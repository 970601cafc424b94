//! Lock that allows one server per database.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use crate::StoreError;
use crate::backup::{absolute, sibling};

/// Exclusive use of a database by a server, until dropped. Two servers with separate journals would each mistake the
/// other's checkpoint for its own. Commands that read the database or change users do not need the lock.
#[derive(Debug)]
pub struct DatabaseLock {
    _file: File,
}

/// Locks the database at `path` for one server. The lock is on a separate file with the suffix `.lock`: SQLite's own
/// locks are transient, and would be lost when any other handle of the database file is closed.
///
/// # Errors
/// [`StoreError::InUse`] if another server has the lock; file errors.
pub fn lock(path: impl AsRef<Path>) -> Result<DatabaseLock, StoreError> {
    // Resolve links, so that a file has one name.
    let path = fs::canonicalize(&path).or_else(|_| absolute(path.as_ref()))?;
    let name = sibling(&path, ".lock");
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path: name.clone() },
        io::ErrorKind::PermissionDenied => StoreError::Permission { path: name.clone() },
        _ => StoreError::Create { path: name.clone(), cause },
    };
    let file = strowger_files::open_or_create(&name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(DatabaseLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path }),
        Err(TryLockError::Error(cause)) => Err(failed(cause)),
    }
}
