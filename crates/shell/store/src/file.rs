//! The database file: created so that nobody else can read it, opened so that others may use it concurrently.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

use crate::StoreError;
use crate::error::Fault;
use crate::schema;

/// How long to wait for another process to finish writing.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum size of a non-empty database, in bytes. SQLite would treat a shorter file as an empty one.
pub(crate) const MIN_FILE_BYTES: u64 = 512;

/// Opens the database at `path`. Creates directory and file if missing.
pub(crate) fn open(path: &Path) -> Result<(Connection, PathBuf), StoreError> {
    open_within(path, BUSY_TIMEOUT)
}

/// Opens an in-memory database that ends with its connection.
pub(crate) fn open_memory() -> Result<(Connection, PathBuf), StoreError> {
    let path = PathBuf::from("memory:");
    let ready = || -> Result<Connection, Fault> {
        let mut connection = Connection::open_in_memory()?;
        schema::migrate(&mut connection)?;
        Ok(connection)
    };
    Ok((ready().map_err(|fault| fault.at(&path))?, path))
}

fn open_within(path: &Path, busy_timeout: Duration) -> Result<(Connection, PathBuf), StoreError> {
    // Absolute, because SQLite treats names such as ":memory:" specially.
    let path = std::path::absolute(path).map_err(|cause| StoreError::Create { path: path.to_owned(), cause })?;
    create_missing(&path)?;
    let connection = connect(&path, busy_timeout).map_err(|fault| fault.at(&path))?;
    Ok((connection, path))
}

fn connect(path: &Path, busy_timeout: Duration) -> Result<Connection, Fault> {
    let mut connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(busy_timeout)?;
    // SQLite falls back to read-only access and would leave files that nobody can write.
    if connection.is_readonly(MAIN_DB)? {
        return Err(StoreError::Permission { path: path.to_owned() }.into());
    }
    schema::check_origin(&connection)?;
    restrict_permissions(path)?;
    use_write_ahead_log(&connection, busy_timeout)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Statement journals would otherwise write hashes to files elsewhere.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    schema::migrate(&mut connection)?;
    Ok(connection)
}

/// Switches to WAL mode, in which readers and a writer do not block each other. A file system without shared memory
/// keeps SQLite's rollback journal, in which they do; nothing else changes.
fn use_write_ahead_log(connection: &Connection, busy_timeout: Duration) -> Result<(), Fault> {
    let give_up = Instant::now() + busy_timeout;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            // SQLite does not wait for another process that is changing the mode too.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return Ok(result?),
        }
    }
}

/// Creates directory (0700) and file (0600) if missing, for the owner of the folder, as SQLite does with the files beside it.
///
/// Never opens an existing file: closing it would drop the POSIX locks that another connection of this process holds
/// on it. For the same reason only one thread at a time creates a file.
fn create_missing(path: &Path) -> Result<(), StoreError> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    make_folder_of(path)?;
    //= rfc7616#5.2:file
    match strowger_files::create(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
            match metadata.len() {
                _ if !metadata.is_file() => Err(StoreError::NotAFile { path: path.to_owned() }),
                1..MIN_FILE_BYTES => Err(StoreError::NotADatabase { path: path.to_owned() }),
                _ => Ok(()),
            }
        }
        Err(cause) => Err(StoreError::Create { path: path.to_owned(), cause }),
    }
}

pub(crate) fn make_folder_of(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    strowger_files::create_folder(folder).map_err(|cause| StoreError::Folder { path: folder.to_owned(), cause })
}

/// Removes the permissions that everybody has on the file; its hashes are as sensitive as passwords. The group's
/// permissions stay, since they may be intentional, for example for backups.
///
/// Only for a file that is known to be ours: a mistyped path must not change the permissions of something else.
fn restrict_permissions(path: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let Ok(metadata) = fs::metadata(&name) else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o007 != 0 {
            fs::set_permissions(&name, Permissions::from_mode(mode & !0o007))
                .map_err(|cause| StoreError::Exposed { path: name.into(), cause })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn roots_files_belong_to_the_owner_of_the_folder() {
        const SERVER: u32 = 5060;
        let folder = tempfile::tempdir().expect("folder");
        if std::os::unix::fs::chown(folder.path(), Some(SERVER), Some(SERVER)).is_err() {
            eprintln!("skipped: only root can create files for another user");
            return;
        }
        let (_connection, path) = open(&folder.path().join("strowger.db")).expect("opens");
        let mut files: Vec<_> = fs::read_dir(folder.path()).expect("it can be read").flatten().collect();
        files.sort_by_key(fs::DirEntry::path);
        assert!(files.iter().any(|file| file.path() == path) && files.len() > 1, "{files:?}");
        for file in files {
            let owner = file.metadata().expect("it is there");
            assert_eq!((owner.uid(), owner.gid()), (SERVER, SERVER), "{file:?}");
        }
    }

    #[test]
    fn a_lock_held_elsewhere_is_reported() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("users.db");
        let (holder, _) = open(&path).expect("opens");
        holder.execute_batch("BEGIN IMMEDIATE").expect("locks");
        let (other, path) = open_within(&path, Duration::ZERO).expect("opening needs no lock");
        let error = other.execute_batch("BEGIN IMMEDIATE").map_err(|error| Fault::Sql(error).at(&path));
        assert!(matches!(&error, Err(StoreError::Locked { path: at }) if *at == path), "{error:?}");
    }

    #[test]
    fn the_log_is_wal_and_fully_synced() {
        let folder = tempfile::tempdir().expect("folder");
        let (connection, _) = open(&folder.path().join("users.db")).expect("opens");
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("mode");
        let sync: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).expect("synchronous");
        assert_eq!((mode.as_str(), sync), ("wal", 2));
    }
}
