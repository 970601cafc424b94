//! Backups of everything that is kept: one file, which is the database with all of the journal in it.

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
use crate::checkpoint::{CheckpointError, write_segments};
use crate::failure::StartError;
use crate::open::{OpenStore, name_journal, open, random_id};
use crate::time::SystemClocks;

/// What is to be written.
#[derive(Clone, Debug)]
pub struct BackupSpec {
    /// The file.
    pub target: PathBuf,
    /// A file that is there may be replaced.
    pub overwrite: bool,
    /// What the backup says besides, and the database does not: a name, a value.
    pub extra: Vec<(String, Vec<u8>)>,
}

/// A backup that was written.
#[derive(Clone, Debug)]
pub struct BackupResult {
    /// What is in it.
    pub info: BackupInfo,
}

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The database, or the file of the backup.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal, or what begins at the start of a server.
    #[error(transparent)]
    Open(#[from] StartError),
    /// A server has the journal.
    #[error("a server runs in {path}; stop it first, or have it write the backup itself")]
    Running {
        /// The journal's folder.
        path: PathBuf,
    },
    /// The journal's folder cannot be moved, which changes nothing for the database.
    #[error(
        "the database is restored, but the journal of the one before, {path}, cannot be moved aside: {cause}; move it away yourself"
    )]
    Aside {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// What is in the journal cannot be brought into the database, so that the backup would look whole and not be.
    #[error(
        "no backup was written, for it would lack the newest registrations: {why}; make it again when \
         `strowger ctl status` shows the store as ok. What {path} was before, it still is"
    )]
    Incomplete {
        /// Where it should go.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It ended before.
    #[error("the server ended before the backup was written; there is none")]
    Ended,
}

/// A backup that is being written.
#[derive(Debug)]
pub struct Backup {
    pub(crate) progress: Arc<Progress>,
    pub(crate) outcome: Receiver<Result<BackupResult, BackupError>>,
}

impl Backup {
    /// Pages of the database that are done, and how many there are; 0 of 0 before it begins.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.progress.done.load(Ordering::Relaxed), self.progress.of.load(Ordering::Relaxed))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`BackupError`]: there is no backup then, and a file that was there is as it was.
    pub fn wait(self) -> Result<BackupResult, BackupError> {
        self.outcome.recv().unwrap_or_else(|RecvError| Err(BackupError::Ended))
    }

    /// Its outcome, once, when it has ended.
    #[must_use]
    pub fn try_wait(&self) -> Option<Result<BackupResult, BackupError>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(BackupError::Ended)),
        }
    }
}

/// How far it is.
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

/// A backup as the checkpoint thread is asked for it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) order: BackupSpec,
    pub(crate) progress: Arc<Progress>,
    pub(crate) reply: Sender<Result<BackupResult, BackupError>>,
}

impl Task {
    /// Writes the backup, but not one of a database that is not `up_to_date`: who finds it later takes it for whole.
    pub(crate) fn execute(self, database: &Path, up_to_date: Result<(), String>) {
        let Self { order, progress, reply } = self;
        let done = match up_to_date {
            Ok(()) => write(database, &order, |done, of| progress.set(done, of)),
            Err(why) => {
                let path = order.target;
                tracing::error!("no backup was written to {}, for it would lack registrations: {why}", path.display());
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

/// Writes a backup for a server that is stopped. Where there is no journal, it is the database alone.
///
/// # Errors
/// [`BackupError::Running`] where the server is not stopped; what is wrong with journal, database or target.
pub fn backup_offline(
    folder: &Path,
    database: &Path,
    order: &BackupSpec,
    progress: impl FnMut(u64, u64),
) -> Result<BackupResult, BackupError> {
    // Opening a database would make one.
    if folder.exists() && database.exists() {
        let disk = lock(folder)?;
        put_journal_into(disk, database)?;
    }
    write(database, order, progress)
}

/// Opens both, and brings what the journal has into the database.
pub(crate) fn put_journal_into<D: Disk>(disk: D, database: &Path) -> Result<OpenStore<D>, BackupError> {
    let now = Arc::new(|| Timestamp::ZERO);
    let mut opened = open(|| Ok(disk), database, &Limits::default(), now, Arc::new(SystemClocks::new()))?;
    let stamp = opened.clock.stamp();
    // A checkpoint must not contain the segment that is written to, which is an empty one now. Where it could not be begun the
    // next start says that it is missing, which is no reason to have no backup.
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

/// What was restored, and where that is now which was there before.
#[derive(Debug)]
pub struct RestoreResult {
    /// The database.
    pub database: strowger_store::RestoreResult,
    /// The journal of the database that was there.
    pub journal_moved_aside: Option<PathBuf>,
}

/// Puts the backup in `file` in the place of `database`, for a server that is stopped. The journal in `folder`, which belongs to
/// the database that was there, is moved aside; nothing is deleted.
///
/// # Errors
/// [`BackupError::Running`] where the server is not stopped; what is wrong with the backup or the place: then all is as it was.
/// [`BackupError::Aside`], when the database is restored.
pub fn restore(file: &Path, folder: &Path, database: &Path, force: bool) -> Result<RestoreResult, BackupError> {
    // Held until the end, so that no server starts meanwhile.
    let held = if folder.exists() { Some(lock(folder)?) } else { None };
    let restored = restore_database(file, database, force)?;
    let journal_moved_aside = held.is_some().then(|| move_aside(folder)).transpose()?;
    drop(held);
    Ok(RestoreResult { database: restored, journal_moved_aside })
}

/// From the first moment that it is there the database belongs to a journal that begins anew, and store time goes on from the
/// backup's: whatever happens next, no file of the old journal is taken for its own.
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
