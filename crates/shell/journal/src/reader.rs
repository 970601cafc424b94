//! Reader of segments, usable on any thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, Operation};
use crate::error::{DiskError, JournalError};
use crate::format::{self, Header};

/// The valid part of a journal file. Numbers start at 1 and increase, with gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the segment.
    pub number: u64,
    /// Valid length in bytes.
    pub len: u64,
}

/// Reads segments of one journal, one at a time in memory.
#[derive(Clone, Debug)]
pub struct Reader<D> {
    disk: D,
    store_id: [u8; 16],
    removed: Arc<AtomicU64>,
    buffer: Vec<u8>,
}

impl<D: Disk> Reader<D> {
    pub(crate) fn new(disk: D, store_id: [u8; 16], removed: Arc<AtomicU64>) -> Self {
        Self { disk, store_id, removed, buffer: Vec::new() }
    }

    /// Passes each record of the segment to `each`, in order.
    ///
    /// # Errors
    /// When it cannot be read or differs from what was verified. No record has been passed then.
    pub fn read(&mut self, segment: Segment, mut each: impl FnMut(&[u8])) -> Result<(), JournalError> {
        let name = name_of(segment.number);
        let read = match self.disk.read(&name, segment.len, &mut self.buffer) {
            // The journal, opened with a disk error, may have recovered and quarantined the file; its valid part is
            // unchanged.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let aside = format!("{name}{DAMAGED_SUFFIX}");
                self.disk.read(&aside, segment.len, &mut self.buffer).map_err(|_| cause)
            }
            read => read,
        };
        read.map_err(|cause| DiskError::new(&self.disk, Operation::Read, &name, &cause))?;
        let salt = self.salt(segment)?;
        for group in format::groups(&self.buffer, salt, format::HEADER as u64, segment.len) {
            group.iter().for_each(&mut each);
        }
        Ok(())
    }

    fn salt(&self, segment: Segment) -> Result<u32, JournalError> {
        let changed = |offset| JournalError::Changed { path: self.disk.path_of(&name_of(segment.number)), offset };
        let (header, salt) = Header::parse(&self.buffer).map_err(|_| changed(0))?;
        if header.number != segment.number || header.store_id != self.store_id {
            return Err(changed(0));
        }
        match format::scan(&self.buffer, &header, salt).end {
            end if end == segment.len => Ok(salt),
            end => Err(changed(end)),
        }
    }

    /// Removes the file of a segment that is in a durable checkpoint, together with all older ones, without involving
    /// the journal's thread. A later [`Journal::remove_through`](crate::Journal::remove_through) there is then cheap.
    ///
    /// # Errors
    /// When the file exists and cannot be removed.
    pub fn remove(&self, segment: Segment) -> Result<(), DiskError> {
        // First, so that a concurrent recovery does not consider the file lost.
        self.removed.fetch_max(segment.number, Ordering::SeqCst);
        remove(&self.disk, &name_of(segment.number))
    }
}

/// Removes a file; a missing one is not an error.
pub(crate) fn remove(disk: &impl Disk, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(DiskError::new(disk, Operation::Remove, name, &cause))
        }
        _ => Ok(()),
    }
}

/// Returns the file name of a segment.
pub(crate) fn name_of(number: u64) -> String {
    format!("journal-{number:016x}.log")
}

/// Suffix of a quarantined file.
pub(crate) const DAMAGED_SUFFIX: &str = ".damaged";
