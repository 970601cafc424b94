//! Injected bugs that the crash tests must detect.

use std::cell::Cell;
use std::io;

use crate::simulated::{SimDisk, SimFile};
use crate::{Disk, DiskFile};

thread_local! {
    /// Bug: the reader accepts whatever it finds.
    pub(crate) static SUMS_IGNORED: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    None,
    /// Syncing a file does nothing.
    SyncSkipped,
    /// A group is acknowledged first and synced when the next one is written.
    ReplyBeforeSync,
    /// Names are never made durable.
    FolderNotSynced,
    /// A failed sync is retried and believed.
    FailedSyncRetried,
    /// Checksums are not compared.
    TornTailAccepted,
}

pub(super) const BUGS: [Bug; 5] =
    [Bug::SyncSkipped, Bug::ReplyBeforeSync, Bug::FolderNotSynced, Bug::FailedSyncRetried, Bug::TornTailAccepted];

/// A disk whose journal has a bug.
#[derive(Clone, Debug)]
pub(super) struct Planted {
    pub(super) disk: SimDisk,
    pub(super) bug: Bug,
}

#[derive(Debug)]
pub(super) struct PlantedFile {
    file: SimFile,
    bug: Bug,
    owed: bool,
}

impl Disk for Planted {
    type File = PlantedFile;

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str, at_most: u64, into: &mut Vec<u8>) -> io::Result<()> {
        self.disk.read(name, at_most, into)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.disk.len(name)
    }

    fn create(&self, name: &str) -> io::Result<PlantedFile> {
        Ok(PlantedFile { file: self.disk.create(name)?, bug: self.bug, owed: false })
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.disk.truncate(name, len)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        if self.bug == Bug::FolderNotSynced { Ok(()) } else { self.disk.sync_folder() }
    }

    fn path_of(&self, name: &str) -> String {
        self.disk.path_of(name)
    }
}

impl DiskFile for PlantedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if std::mem::take(&mut self.owed) {
            self.file.sync()?;
        }
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.bug {
            Bug::SyncSkipped => Ok(()),
            Bug::ReplyBeforeSync => {
                self.owed = true;
                Ok(())
            }
            Bug::FailedSyncRetried => self.file.sync().or_else(|_| self.file.sync()),
            Bug::None | Bug::FolderNotSynced | Bug::TornTailAccepted => self.file.sync(),
        }
    }
}
