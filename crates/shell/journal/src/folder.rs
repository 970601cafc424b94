//! The real disk: one folder, locked by one process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;

/// Lock file. The folder itself is locked as well: some file systems cannot lock a folder, and a file may be deleted.
const LOCK: &str = "lock";

/// The folder of a journal, with mode 0700 and files of mode 0600 that belong to the folder's owner. Other processes are
/// refused while any clone exists.
#[derive(Clone, Debug)]
pub struct Folder {
    state: Arc<FolderState>,
}

#[derive(Debug)]
struct FolderState {
    path: PathBuf,
    /// Replaced when the folder was removed or moved away and created again.
    locks: Mutex<Locks>,
}

/// Held while the files are open.
#[derive(Debug)]
struct Locks {
    folder: File,
    _file: File,
}

impl Folder {
    /// Opens and locks the folder, creating it if missing.
    ///
    /// # Errors
    /// When it cannot be created, read or written, is not a folder, or is locked by another process.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        make(path).map_err(|cause| JournalError::of_folder(path, cause))?;
        let locks = Mutex::new(take_locks(path)?);
        Ok(Self { state: Arc::new(FolderState { path: path.to_owned(), locks }) })
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.state.path
    }

    fn at(&self, name: &str) -> PathBuf {
        self.state.path.join(name)
    }

    /// Locks the folder again after it was removed or moved away, so that the server recovers without a restart.
    /// Creates it if missing, and fails if another process has locked the one in its place.
    fn reacquire(&self) -> io::Result<()> {
        let path = &self.state.path;
        let mut locks = self.state.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let held = locks.folder.metadata()?;
        let is_held = |there: fs::Metadata| (there.dev(), there.ino()) == (held.dev(), held.ino());
        if fs::metadata(path).is_ok_and(is_held) {
            return Ok(());
        }
        make(path)?;
        *locks = take_locks(path).map_err(|fault| io::Error::other(fault.to_string()))?;
        Ok(())
    }
}

/// Creates the folder durably.
fn make(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {}
        Err(fault) => return Err(fault),
    }
    strowger_files::create_folder(path)?;
    File::open(strowger_files::folder_of(path))?.sync_all()
}

fn take_locks(path: &Path) -> Result<Locks, JournalError> {
    let locked = || JournalError::Locked { path: path.to_owned() };
    let folder = File::open(path).map_err(|cause| JournalError::of_folder(path, cause))?;
    if let Err(TryLockError::WouldBlock) = folder.try_lock() {
        return Err(locked());
    }
    let name = path.join(LOCK);
    let file = strowger_files::open_or_create(&name).map_err(|cause| JournalError::of_folder(&name, cause))?;
    match file.try_lock() {
        Ok(()) => Ok(Locks { folder, _file: file }),
        Err(TryLockError::WouldBlock) => Err(locked()),
        Err(TryLockError::Error(cause)) => Err(JournalError::of_folder(&name, cause)),
    }
}

impl Disk for Folder {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.state.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&self, name: &str, at_most: u64, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        File::open(self.at(name))?.take(at_most).read_to_end(into).map(|_| ())
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        fs::metadata(self.at(name)).map(|found| found.len())
    }

    fn create(&self, name: &str) -> io::Result<RealFile> {
        self.reacquire()?;
        Ok(RealFile { file: strowger_files::create(&self.at(name))? })
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.at(name))?.set_len(len)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.state.path)?.sync_all()
    }

    fn path_of(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }
}

/// A file of a [`Folder`].
#[derive(Debug)]
pub struct RealFile {
    file: File,
}

impl DiskFile for RealFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        // Syncing a file that was deleted succeeds, but its data is lost.
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed"));
        }
        Ok(())
    }
}
