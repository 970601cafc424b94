//! Backups of the database, made while it is in use.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use crate::error::Fault;
use crate::locations::{self, SlotRange};
use crate::settings::{self, BACKUP_PREFIX};
use crate::{Checkpoint, LocationStore, StoreError, file, schema};

/// Pages copied between two reports of progress: 4 MiB.
const PAGES_A_STEP: i32 = 1024;
/// Key under which [`backup`] stores the time of the backup.
const CREATED_KEY: &str = "backup.made";
const VERSION_KEY: &str = "backup.version";

/// Options of a backup.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupOptions<'a> {
    /// Whether an existing file may be replaced.
    pub can_overwrite: bool,
    /// Additional values for the backup that a restored database does not get: see [`BackupInfo::extra`].
    pub extra: &'a [(&'a str, &'a [u8])],
}

/// Contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Schema version.
    pub schema: i64,
    /// Number of users.
    pub users: u64,
    /// Number of aliases.
    pub aliases: u64,
    /// Number of gateways.
    pub gateways: u64,
    /// Number of addresses with registrations.
    pub addresses: u64,
    /// Number of damaged registrations, in addition to `addresses`.
    pub damaged: u64,
    /// Position up to which the journal is contained; also `None` if it cannot be read.
    pub checkpoint: Option<Checkpoint>,
    /// Time of the backup in seconds since 1970; `None` for a plain copy of a database.
    pub created_s: Option<u64>,
    /// Version of the program that made it.
    pub version: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// The [`BackupOptions::extra`] of the backup.
    pub extra: Vec<(String, Vec<u8>)>,
}

/// Copies the database at `source` to `target` in one consistent state, while others read and write it. The copy is a
/// single file that only its owner can read. It appears at `target` once it is complete, checked and synced.
/// `progress` receives the number of copied pages and the total.
///
/// # Errors
/// [`StoreError::NoSource`], [`StoreError::TargetExists`], [`StoreError::Damaged`]; errors of either file.
pub fn backup(
    source: &Path,
    target: &Path,
    options: &BackupOptions<'_>,
    progress: impl FnMut(u64, u64),
) -> Result<BackupInfo, StoreError> {
    let target = absolute(target)?;
    refuse_existing(&target, options.can_overwrite)?;
    let connection = open_source(source)?;
    let copy = TemporaryCopy::make(&connection, source, &target, progress)?;
    copy.change(|copy| write_origin(copy, options.extra))?;
    // Damage in the copy comes from the source: copying itself reports write errors.
    let info = inspect(&copy.path).map_err(|error| match error {
        StoreError::Damaged { .. } => StoreError::Damaged { path: source.to_owned() },
        other => other,
    })?;
    refuse_existing(&target, options.can_overwrite)?;
    copy.publish(&target)?;
    Ok(info)
}

/// Checks the backup `file`, or a copy of a database, completely.
///
/// # Errors
/// [`StoreError::NoSource`], [`StoreError::NotADatabase`], [`StoreError::Foreign`], [`StoreError::NewerSchema`],
/// [`StoreError::Damaged`]; file errors.
pub fn inspect(file: &Path) -> Result<BackupInfo, StoreError> {
    let connection = open_source(file)?;
    let bytes = fs::metadata(file).map_err(|cause| failed(file, "read", cause))?.len();
    read_info(&connection, bytes).map_err(|fault| fault.at(file))
}

fn read_info(connection: &Connection, bytes: u64) -> Result<BackupInfo, Fault> {
    // A row that violates a constraint is a separate error and no reason to refuse a backup.
    connection.pragma_update(None, "ignore_check_constraints", "ON")?;
    let transaction = connection.unchecked_transaction()?;
    let verdict: String = transaction.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    if verdict != "ok" {
        return Err(Fault::Damaged);
    }
    let count = |table: &str| -> Result<u64, Fault> {
        let rows: i64 = transaction.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0))?;
        Ok(u64::try_from(rows).unwrap_or(0))
    };
    let schema = schema::version(&transaction)?;
    let (users, aliases) = (count("users")?, count("aliases")?);
    let mut info = BackupInfo {
        schema,
        users,
        aliases,
        gateways: if schema >= schema::WITH_GATEWAYS { count("gateways")? } else { 0 },
        addresses: 0,
        damaged: 0,
        checkpoint: None,
        created_s: None,
        version: None,
        bytes,
        extra: Vec::new(),
    };
    if schema >= schema::WITH_LOCATIONS {
        let loaded = locations::read_part(&transaction, &SlotRange::ALL, |_| ControlFlow::Continue(()))?;
        (info.addresses, info.damaged) = (loaded.rows, loaded.damaged + loaded.missing);
        info.checkpoint = locations::read_checkpoint(&transaction).ok().flatten();
        let text = |key| -> Result<Option<String>, Fault> {
            Ok(settings::read(&transaction, key)?.or_damaged()?.and_then(|value| String::from_utf8(value).ok()))
        };
        info.created_s = text(CREATED_KEY)?.and_then(|made| made.parse().ok());
        info.version = text(VERSION_KEY)?;
        info.extra = settings::read_extra(&transaction)?;
        info.extra.retain(|(key, _)| ![CREATED_KEY, VERSION_KEY].contains(&format!("{BACKUP_PREFIX}{key}").as_str()));
    }
    Ok(info)
}

fn write_origin(copy: &Connection, extra: &[(&str, &[u8])]) -> Result<(), Fault> {
    settings::remove_extra(copy)?;
    for (key, value) in extra {
        settings::write(copy, &format!("{BACKUP_PREFIX}{key}"), value)?;
    }
    let made_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    settings::write(copy, CREATED_KEY, made_s.to_string().as_bytes())?;
    settings::write(copy, VERSION_KEY, env!("CARGO_PKG_VERSION").as_bytes())
}

/// A copy under a temporary name in the target's directory. Removed unless it is published.
pub(crate) struct TemporaryCopy {
    pub(crate) path: PathBuf,
}

impl TemporaryCopy {
    /// Copies one consistent state of the database, without a WAL file.
    pub(crate) fn make(
        source: &Connection,
        source_path: &Path,
        target: &Path,
        progress: impl FnMut(u64, u64),
    ) -> Result<Self, StoreError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = sibling(target, &format!(".{}-{number}.part", std::process::id()));
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(failed(&path, "replaced", cause)),
            _ => {}
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|cause| failed(&path, "made", cause))?;
        let copy = Self { path };
        let mut connection = copy.connect().map_err(|fault| fault.at(&copy.path))?;
        // Without a transaction on the source, each change by another process would restart the copy.
        let transaction = source.unchecked_transaction().map_err(|cause| Fault::Sql(cause).at(source_path))?;
        let state = schema::check_version(&transaction);
        state.map_err(|fault| fault.at(source_path))?;
        copy_pages(&transaction, &mut connection, progress).map_err(|fault| fault.of_copy(source_path, &copy.path))?;
        drop(transaction);
        drop(connection);
        copy.change(|_| Ok(()))?;
        Ok(copy)
    }

    /// Migrates the copy to the latest schema, changes it, and leaves it a single file.
    pub(crate) fn change(&self, job: impl FnOnce(&Connection) -> Result<(), Fault>) -> Result<(), StoreError> {
        let run = || -> Result<(), Fault> {
            let mut connection = self.connect()?;
            connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
            schema::migrate(&mut connection)?;
            job(&connection)
        };
        run().map_err(|fault| fault.at(&self.path))
    }

    /// Changes the copy like an open database and leaves it a single file.
    pub(crate) fn prepare(
        &self,
        job: impl FnOnce(&mut LocationStore) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        job(&mut LocationStore::open(&self.path)?)?;
        self.change(|_| Ok(()))
    }

    /// Opens the copy without durability: nobody else uses the file, and it is synced before it is published.
    fn connect(&self) -> Result<Connection, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(connection)
    }

    /// Syncs the file and renames it to its final name.
    pub(crate) fn publish(self, target: &Path) -> Result<(), StoreError> {
        let file = File::open(&self.path).map_err(|cause| failed(&self.path, "opened", cause))?;
        file.sync_all().map_err(|cause| failed(&self.path, "synced", cause))?;
        fs::rename(&self.path, target).map_err(|cause| failed(target, "put in place", cause))?;
        sync_folder_of(target)
    }
}

impl Drop for TemporaryCopy {
    /// A file that cannot be removed stays; its name identifies it.
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let _ = fs::remove_file(sibling(&self.path, suffix));
        }
    }
}

fn copy_pages(source: &Connection, copy: &mut Connection, mut progress: impl FnMut(u64, u64)) -> Result<(), Fault> {
    let backup = Backup::new(source, copy)?;
    loop {
        let result = backup.step(PAGES_A_STEP)?;
        let (all, left) = (backup.progress().pagecount, backup.progress().remaining);
        progress(u64::try_from(all - left).unwrap_or(0), u64::try_from(all).unwrap_or(0));
        match result {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // The source was readable from the first page on, and nobody else uses the copy.
            _ => return Err(Fault::Locked),
        }
    }
}

/// Opens a database read-only, in any schema version up to this program's.
pub(crate) fn open_source(path: &Path) -> Result<Connection, StoreError> {
    open_as(path, Path::to_owned)
}

/// Like [`open_source`], but for inspection only: if nobody uses the database, SQLite creates no files beside it and
/// needs no permission to.
pub(crate) fn open_read_only(path: &Path) -> Result<Connection, StoreError> {
    open_as(path, |path| match path.to_str() {
        Some(text) if !["-wal", "-journal"].iter().any(|suffix| sibling(path, suffix).exists()) => {
            let escaped = text.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
            format!("file:{escaped}?immutable=1").into()
        }
        _ => path.to_owned(),
    })
}

/// Opens a database; `name` returns the file name for SQLite.
fn open_as(path: &Path, name: impl FnOnce(&Path) -> PathBuf) -> Result<Connection, StoreError> {
    let path = absolute(path)?;
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() && metadata.len() < file::MIN_FILE_BYTES => {
            return Err(StoreError::NotADatabase { path });
        }
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(StoreError::NotAFile { path }),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Err(StoreError::NoSource { path }),
        Err(cause) => return Err(failed(&path, "read", cause)),
    }
    let open = || -> Result<Connection, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(name(&path), flags)?;
        connection.busy_timeout(file::BUSY_TIMEOUT)?;
        schema::check_ours(&connection)?;
        Ok(connection)
    };
    open().map_err(|fault| fault.at(&path))
}

fn refuse_existing(target: &Path, overwrite: bool) -> Result<(), StoreError> {
    match fs::symlink_metadata(target) {
        Ok(metadata) if !metadata.is_file() => Err(StoreError::NotAFile { path: target.to_owned() }),
        Ok(_) if !overwrite => Err(StoreError::TargetExists { path: target.to_owned() }),
        _ => Ok(()),
    }
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    std::path::absolute(path).map_err(|cause| failed(path, "named", cause))
}

pub(crate) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn sync_folder_of(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|cause| failed(folder, "synced", cause))
}

pub(crate) fn failed(path: &Path, doing: &'static str, cause: io::Error) -> StoreError {
    let path = path.to_owned();
    if cause.kind() == io::ErrorKind::StorageFull {
        StoreError::Full { path }
    } else {
        StoreError::File { path, doing, cause }
    }
}
