//! Backups: one file, a copy of the database that includes everything in the journal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvError, Sender, TryRecvError};
use std::time::{SystemTime, UNIX_EPOCH};

use strowger_foundation::Timestamp;
use strowger_journal::{Disk, Folder, JournalError};
use strowger_store::{BackupInfo, BackupOptions, Checkpoint, StoreError};

use crate::Limits;
use crate::failure::StartError;
use crate::open::{OpenStore, name_journal, open, random_id};
use crate::segments::{CheckpointError, write_segments};
use crate::time::SystemClocks;

/// What to back up, and where.
#[derive(Clone, Debug)]
pub struct BackupSpec {
    /// File to write.
    pub target: PathBuf,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
    /// Additional entries of the backup as (name, value), not in the database.
    pub extra: Vec<(String, Vec<u8>)>,
}

/// A completed backup.
#[derive(Clone, Debug)]
pub struct BackupResult {
    /// Information about its contents.
    pub info: BackupInfo,
}

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// An error of the database or the backup file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the journal, or of anything else that a server start opens.
    #[error(transparent)]
    Open(#[from] StartError),
    /// A server is using the journal.
    #[error("a server is running in {path}; stop it first, or let it write the backup itself")]
    Running {
        /// Path of the journal's folder.
        path: PathBuf,
    },
    /// The journal's folder cannot be moved; the database has been restored.
    #[error(
        "the database is restored, but the journal of the previous one, {path}, cannot be moved aside: {cause}; move it away manually"
    )]
    Aside {
        /// Path of the folder.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The journal cannot be brought into the database, so the backup would look complete without being so.
    #[error(
        "no backup was written, because it would lack the newest registrations: {why}; repeat it when \
         `strowger ctl status` shows the store as ok. {path} is unchanged"
    )]
    Incomplete {
        /// Path of the intended backup.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The server stopped first.
    #[error("the server stopped before the backup was written; repeat it")]
    Ended,
}

/// A backup in progress.
#[derive(Debug)]
pub struct Backup {
    pub(crate) progress: Arc<Progress>,
    pub(crate) outcome: Receiver<Result<BackupResult, BackupError>>,
}

impl Backup {
    /// Returns the number of finished database pages and their total; 0 of 0 before it begins.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.progress.done.load(Ordering::Relaxed), self.progress.of.load(Ordering::Relaxed))
    }

    /// Waits for the backup to finish.
    ///
    /// # Errors
    /// [`BackupError`]: no backup was written, and an existing file is unchanged.
    pub fn wait(self) -> Result<BackupResult, BackupError> {
        self.outcome.recv().unwrap_or_else(|RecvError| Err(BackupError::Ended))
    }

    /// Returns the result once, when the backup has finished.
    #[must_use]
    pub fn try_wait(&self) -> Option<Result<BackupResult, BackupError>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(BackupError::Ended)),
        }
    }
}

/// Progress of a backup.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    of: AtomicU64,
}

impl Progress {
    pub(crate) fn set(&self, done: u64, of: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }
}

/// A backup request to the checkpoint thread.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) order: BackupSpec,
    pub(crate) progress: Arc<Progress>,
    pub(crate) reply: Sender<Result<BackupResult, BackupError>>,
}

impl Task {
    /// Writes the backup. Refuses if the database is not `up_to_date`, since the backup would later be taken for
    /// complete.
    pub(crate) fn execute(self, database: &Path, up_to_date: Result<(), String>) {
        let Self { order, progress, reply } = self;
        let done = match up_to_date {
            Ok(()) => write(database, &order, |done, of| progress.set(done, of)),
            Err(why) => {
                let path = order.target;
                tracing::error!(
                    "no backup was written to {}, because it would lack registrations: {why}",
                    path.display()
                );
                Err(BackupError::Incomplete { path, why })
            }
        };
        drop(reply.send(done));
    }
}

fn write(database: &Path, order: &BackupSpec, progress: impl FnMut(u64, u64)) -> Result<BackupResult, BackupError> {
    let extra: Vec<(&str, &[u8])> = order.extra.iter().map(|(name, value)| (&**name, &**value)).collect();
    let options = BackupOptions { can_overwrite: order.overwrite, extra: &extra };
    let info = strowger_store::backup(database, &order.target, &options, progress)?;
    tracing::info!("a backup was written to {}", order.target.display());
    Ok(BackupResult { info })
}

/// Writes a backup while the server is stopped. Without a journal, it contains the database alone.
///
/// # Errors
/// [`BackupError::Running`] if the server is running; otherwise errors of journal, database or target.
pub fn backup_offline(
    folder: &Path,
    database: &Path,
    order: &BackupSpec,
    progress: impl FnMut(u64, u64),
) -> Result<BackupResult, BackupError> {
    // Opening the database would create one.
    if folder.exists() && database.exists() {
        let disk = lock(folder)?;
        put_journal_into(disk, database)?;
    }
    write(database, order, progress)
}

/// Opens both and brings the journal into the database.
pub(crate) fn put_journal_into<D: Disk>(disk: D, database: &Path) -> Result<OpenStore<D>, BackupError> {
    let now = Arc::new(|| Timestamp::ZERO);
    let mut opened = open(|| Ok(disk), database, &Limits::default(), now, Arc::new(SystemClocks::new()))?;
    let stamp = opened.clock.stamp();
    // A checkpoint must not contain the segment being written, which is a new, empty one. If it could not be begun,
    // the next start reports it as missing, which is no reason to refuse the backup.
    if let Ok(through) = opened.journal.rotate(stamp) {
        opened.segments.retain(|segment| segment.number <= through);
    }
    match write_segments(&opened.reader, &mut opened.store, &opened.segments, &stamp) {
        Ok(_) => Ok(opened),
        Err(CheckpointError::Store(error)) => Err(error.into()),
        Err(CheckpointError::Journal(error)) => Err(StartError::Journal(error).into()),
        Err(CheckpointError::Rotate(_)) => Err(BackupError::Ended),
    }
}

/// Result of a restore.
#[derive(Debug)]
pub struct RestoreResult {
    /// The restored database.
    pub database: strowger_store::RestoreResult,
    /// New path of the previous database's journal.
    pub journal_moved_aside: Option<PathBuf>,
}

/// Replaces `database` by the backup in `file` while the server is stopped. The journal in `folder`, which belongs to
/// the previous database, is moved aside; nothing is deleted.
///
/// # Errors
/// [`BackupError::Running`] if the server is running; otherwise errors of the backup or the target. Nothing has been
/// changed then. [`BackupError::Aside`] if the database was restored but the journal could not be moved.
pub fn restore(file: &Path, folder: &Path, database: &Path, force: bool) -> Result<RestoreResult, BackupError> {
    // Held until the end, so that no server starts in the meantime.
    let held = if folder.exists() { Some(lock(folder)?) } else { None };
    let restored = restore_database(file, database, force)?;
    let journal_moved_aside = held.is_some().then(|| move_aside(folder)).transpose()?;
    drop(held);
    Ok(RestoreResult { database: restored, journal_moved_aside })
}

/// As soon as the database exists, it is tied to a new journal, and store time continues from the backup's. Whatever
/// happens next, no file of the old journal is taken for its own.
pub(crate) fn restore_database(
    file: &Path,
    database: &Path,
    force: bool,
) -> Result<strowger_store::RestoreResult, BackupError> {
    let id = random_id()?;
    let restored = strowger_store::restore_with(file, database, force, |store| {
        name_journal(store, id)?;
        let stamp = store.checkpoint()?.map_or_else(Vec::new, |checkpoint| checkpoint.stamp);
        store.write([], &Checkpoint { segment: 0, stamp }).map(drop)
    })?;
    Ok(restored)
}

fn move_aside(folder: &Path) -> Result<PathBuf, BackupError> {
    let s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let named = |s: u64| {
        let mut name = folder.as_os_str().to_owned();
        name.push(format!(".before-{s}"));
        PathBuf::from(name)
    };
    let aside = (s..).map(named).find(|aside| !aside.exists()).unwrap_or_else(|| named(s));
    fs::rename(folder, &aside).map_err(|cause| BackupError::Aside { path: folder.to_owned(), cause })?;
    Ok(aside)
}

pub(crate) fn lock(folder: &Path) -> Result<Folder, BackupError> {
    Folder::open(folder).map_err(|error| match error {
        JournalError::Locked { path } => BackupError::Running { path },
        other => StartError::Journal(other).into(),
    })
}
