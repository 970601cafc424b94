//! Disk of a world as the journal sees it, with an optional planted bug between them.

use std::io;

use strowger_journal::simulated::SimDisk;
use strowger_journal::{Disk, DiskFile};

use crate::mutant::Bug;

/// Length of a segment's header, and of a group's.
const HEADER: usize = 128;
const GROUP_HEAD: usize = 52;

/// Simulated disk; a planted bug makes the journal behave as if the bug were in its own code.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedDisk {
    pub(crate) disk: SimDisk,
    pub(crate) bug: Option<Bug>,
}

/// File on the disk.
#[derive(Debug)]
pub(crate) struct MediumFile {
    file: <SimDisk as Disk>::File,
    bug: Option<Bug>,
}

impl Disk for SimulatedDisk {
    type File = MediumFile;

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str, at_most: u64, into: &mut Vec<u8>) -> io::Result<()> {
        self.disk.read(name, at_most, into)?;
        if self.bug == Some(Bug::AcceptsTornTail) {
            mend(into);
        }
        Ok(())
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.disk.len(name)
    }

    fn create(&self, name: &str) -> io::Result<MediumFile> {
        Ok(MediumFile { file: self.disk.create(name)?, bug: self.bug })
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
        self.disk.sync_folder()
    }

    fn path_of(&self, name: &str) -> String {
        self.disk.path_of(name)
    }
}

impl DiskFile for MediumFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.bug {
            Some(Bug::SkipsSync) => Ok(()),
            Some(Bug::TrustsFailedSync) => self.file.sync().or(Ok(())),
            _ => self.file.sync(),
        }
    }
}

/// Repairs torn groups: fills missing bytes with zeros, cuts incomplete records, and recomputes lengths and
/// checksums.
fn mend(bytes: &mut Vec<u8>) {
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let (salt, mut at) = (number(bytes, HEADER - 4), HEADER);
    while bytes.get(at..at + 4) == Some(b"grp\x01") && bytes.len() >= at + GROUP_HEAD {
        let (body, len) = (at + GROUP_HEAD, number(bytes, at + 4) as usize);
        if bytes.len() < body + len {
            bytes.resize(body + len, 0);
        }
        let (mut end, mut records) = (body, 0u32);
        while end + 4 <= body + len && end + 4 + number(bytes, end) as usize <= body + len {
            end += 4 + number(bytes, end) as usize;
            records += 1;
        }
        if end < body + len {
            bytes.truncate(end);
        }
        bytes[at + 4..at + 8].copy_from_slice(&u32::try_from(end - body).unwrap_or(0).to_le_bytes());
        bytes[at + 40..at + 44].copy_from_slice(&records.to_le_bytes());
        let sum = crc32c::crc32c_append(salt, &bytes[body..end]);
        bytes[at + 44..at + 48].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c::crc32c_append(salt, &bytes[at..at + 48]);
        bytes[at + 48..at + 52].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}
