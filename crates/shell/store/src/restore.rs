//! Restoring a backup.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::backup::{BackupInfo, TemporaryCopy, absolute, failed, inspect, open_source, sibling, sync_folder_of};
use crate::error::Fault;
use crate::file::{MIN_FILE_BYTES, make_folder_of};
use crate::{LocationStore, StoreError, schema, settings};

/// Result of [`restore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreResult {
    /// Contents of the backup.
    pub info: BackupInfo,
    /// Where the previous database was moved.
    pub moved_aside: Option<PathBuf>,
}

/// Puts a copy of the backup `file` at `target`, after checking it. The backup stays unchanged. With `force`, an
/// existing database is kept under the name of `target` with `.before-` and the time in seconds since 1970.
///
/// The caller must move the journal of the previous database aside.
///
/// # Errors
/// Those of [`inspect`]; [`StoreError::TargetExists`] without `force`; [`StoreError::InUse`]; errors of either file.
pub fn restore(file: &Path, target: &Path, force: bool) -> Result<RestoreResult, StoreError> {
    restore_with(file, target, force, |_| Ok(()))
}

/// Like [`restore`], with changes by `prepare` that are in the database from the moment it appears at `target`.
///
/// # Errors
/// Those of [`restore`] and of `prepare`; nothing is changed then.
pub fn restore_with(
    file: &Path,
    target: &Path,
    force: bool,
    prepare: impl FnOnce(&mut LocationStore) -> Result<(), StoreError>,
) -> Result<RestoreResult, StoreError> {
    let target = absolute(target)?;
    let there = is_there(&target)?;
    if there && !force {
        return Err(StoreError::TargetExists { path: target });
    }
    let source = open_source(file)?;
    let info = inspect(file)?;
    make_folder_of(&target)?;
    // Held until the new database is in place, so that nobody opens the old one in between.
    let hold = if there { lock_exclusively(&target)? } else { None };
    let copy = TemporaryCopy::make(&source, file, &target, |_, _| {})?;
    copy.change(settings::remove_extra)?;
    copy.prepare(prepare)?;
    // Check what was written, not what was read.
    inspect(&copy.path)?;
    restore_owner(&copy.path, &target)?;
    let moved_aside = if there { Some(move_aside(&target)?) } else { None };
    copy.publish(&target)?;
    drop(hold);
    Ok(RestoreResult { info, moved_aside })
}

fn is_there(target: &Path) -> Result<bool, StoreError> {
    match fs::symlink_metadata(target) {
        Ok(metadata) if metadata.is_file() => Ok(true),
        Ok(_) => Err(StoreError::NotAFile { path: target.to_owned() }),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(failed(target, "read", cause)),
    }
}

/// Changes the owner to that of the previous database, or else of its directory: root restores on behalf of the
/// server's user.
fn restore_owner(copy: &Path, target: &Path) -> Result<(), StoreError> {
    let folder = target.parent().unwrap_or(Path::new("/"));
    let owner =
        fs::metadata(target).or_else(|_| fs::metadata(folder)).map_err(|cause| failed(folder, "read", cause))?;
    match chown(copy, Some(owner.uid()), Some(owner.gid())) {
        // Other users restore for themselves.
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result.map_err(|cause| failed(copy, "given to the owner of the database", cause)),
    }
}

/// Checkpoints the database's WAL and locks it, which requires that no process has it open. Returns `None` if it is
/// too damaged for that; it is then moved aside as it is.
fn lock_exclusively(target: &Path) -> Result<Option<Connection>, StoreError> {
    // SQLite would treat it as an empty database and remove its WAL.
    if fs::metadata(target).is_ok_and(|metadata| metadata.len() < MIN_FILE_BYTES) {
        return Ok(None);
    }
    let run = || -> Result<Connection, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(target, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        schema::check_not_foreign(&connection)?;
        connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        Ok(connection)
    };
    match run() {
        Ok(connection) => Ok(Some(connection)),
        Err(Fault::Foreign) => Err(StoreError::Foreign { path: target.to_owned() }),
        Err(Fault::Sql(cause)) => match cause.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Err(StoreError::InUse { path: target.to_owned() })
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Ok(None),
            _ => Err(Fault::Sql(cause).at(target)),
        },
        Err(fault) => Err(fault.at(target)),
    }
}

/// Gives the database a second name, which remains when the first is reused. A WAL that still exists is moved along;
/// it would be taken for the new database's.
fn move_aside(target: &Path) -> Result<PathBuf, StoreError> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (aside, linked) = (now_s..)
        .map(|time_s| sibling(target, &format!(".before-{time_s}")))
        .map(|aside| (fs::hard_link(target, &aside), aside))
        .find(|(result, _)| !result.as_ref().is_err_and(|cause| cause.kind() == io::ErrorKind::AlreadyExists))
        .map(|(result, aside)| (aside, result))
        .ok_or_else(|| StoreError::TargetExists { path: target.to_owned() })?;
    // Some file systems do not support hard links.
    linked.or_else(|_| fs::rename(target, &aside)).map_err(|cause| failed(target, "moved aside", cause))?;
    for suffix in ["-wal", "-shm", "-journal"] {
        let (from, to) = (sibling(target, suffix), sibling(&aside, suffix));
        match fs::rename(&from, to) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(failed(&from, "moved aside", cause)),
            _ => {}
        }
    }
    sync_folder_of(target)?;
    Ok(aside)
}
