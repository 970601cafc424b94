//! One server a database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::StoreError;
use crate::backup::{absolute, sibling};

/// A server's claim on a database, as long as it lives: two servers with journals of their own would each take the other's
/// checkpoint for its own. Commands that look at the database, or change users, need none.
#[derive(Debug)]
pub struct DatabaseLock {
    _file: File,
}

/// Claims the database at `path` for one server. The claim is the lock of a file beside it, with `.lock` behind its name: SQLite's
/// own locks come and go, and would go with any other file handle on the database.
///
/// # Errors
/// [`StoreError::InUse`] where another server has it; what befalls the file.
pub fn lock(path: impl AsRef<Path>) -> Result<DatabaseLock, StoreError> {
    // One file has one name here, whatever links lead to it.
    let path = fs::canonicalize(&path).or_else(|_| absolute(path.as_ref()))?;
    let name = sibling(&path, ".lock");
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path: name.clone() },
        io::ErrorKind::PermissionDenied => StoreError::Permission { path: name.clone() },
        _ => StoreError::Create { path: name.clone(), cause },
    };
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&name);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(DatabaseLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path }),
        Err(TryLockError::Error(cause)) => Err(failed(cause)),
    }
}
