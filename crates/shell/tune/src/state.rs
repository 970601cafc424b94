//! The record of former values. A value is recorded, and the record is on disk, before it is changed; a change without
//! a record does not happen.
//!
//! The file has one line for each change, the first line names the boot of the machine. Undoing reads from the end and
//! cuts the file after each restored value, so a run that is interrupted continues where it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::TuneError;
use crate::host::Host;
use crate::place::Place;

/// Where changes are recorded by default.
pub const DEFAULT_STATE: &str = "/var/lib/strowger/tune.json";

/// A recorded change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the tuning.
    pub tuning: String,
    /// Place of the value.
    #[serde(flatten)]
    pub place: Place,
    /// Value before the change.
    pub former: String,
    /// Value that was set.
    pub applied: String,
}

/// First line of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// Format of the file.
    strowger_tune: u32,
    /// The kernel's identifier of this boot; after another boot, no recorded value is in force.
    boot: Option<String>,
}

const FORMAT: u32 = 1;

impl Head {
    fn of(host: &Host) -> Self {
        Self { strowger_tune: FORMAT, boot: host.text("/proc/sys/kernel/random/boot_id") }
    }
}

/// The open file of changes. No other run can use it meanwhile.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    path: PathBuf,
    /// Records with the position of their lines.
    records: Vec<(u64, Record)>,
    /// Whether the records are of an earlier boot.
    is_stale: bool,
}

impl Drop for StateFile {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being started has a copy of the descriptor until it begins.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl StateFile {
    /// Opens the file for further changes, and creates it with its folder if there is none. Records of an earlier boot
    /// are removed: the changes ended with it, and new ones must not count as theirs.
    ///
    /// # Errors
    /// If it cannot be written, another run uses it, or it is something else.
    pub fn open(path: &Path, host: &Host) -> Result<Self, TuneError> {
        let wrap = |doing| move |cause| TuneError::state(path, doing, cause);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(wrap("its folder cannot be created"))?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(wrap("it cannot be opened"))?;
        let state = Self::read(file, path, host)?;
        if state.is_stale { state.begin_again(host) } else { Ok(state) }
    }

    /// Opens the file if there is one, with its records of whichever boot.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_existing(path: &Path, host: &Host) -> Result<Option<Self>, TuneError> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Self::read(file, path, host).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(TuneError::state(path, "it cannot be opened", cause)),
        }
    }

    fn read(mut file: File, path: &Path, host: &Host) -> Result<Self, TuneError> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(TuneError::Busy(path.to_owned())),
            Err(error) => return Err(TuneError::state(path, "it cannot be locked", error.into())),
        }
        // A run that ended meanwhile may have removed or replaced the file; a record in it would be lost.
        if !is_at(&file, path) {
            return Err(TuneError::Busy(path.to_owned()));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|cause| TuneError::state(path, "it cannot be read", cause))?;
        let damaged = |why: String| TuneError::Damaged { file: path.to_owned(), why };
        let mut state = Self { file, path: path.to_owned(), records: Vec::new(), is_stale: false };
        let head = Head::of(host);
        let mut lines = text.split_inclusive('\n');
        let Some(first) = lines.next() else {
            state.append(&head)?;
            return Ok(state);
        };
        let found: Head = serde_json::from_str(first).map_err(|error| damaged(format!("line 1: {error}")))?;
        if found.strowger_tune != FORMAT {
            return Err(damaged(format!("format {}, this program knows {FORMAT}", found.strowger_tune)));
        }
        state.is_stale = found.boot != head.boot;
        let mut at = first.len();
        for (number, line) in lines.enumerate() {
            if !line.ends_with('\n') {
                // The run was interrupted while it wrote, so it has not changed the value.
                state.cut(at as u64)?;
                break;
            }
            let record = serde_json::from_str(line);
            let record = record.map_err(|error| damaged(format!("line {}: {error}", number + 2)))?;
            state.records.push((at as u64, record));
            at += line.len();
        }
        Ok(state)
    }

    /// Removes all records, and names the current boot.
    fn begin_again(mut self, host: &Host) -> Result<Self, TuneError> {
        self.cut(0)?;
        self.append(&Head::of(host))?;
        self.records.clear();
        self.is_stale = false;
        Ok(self)
    }

    /// Returns the records, the oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter().map(|(_, record)| record)
    }

    /// Returns the latest record.
    #[must_use]
    pub fn last(&self) -> Option<&Record> {
        self.records().next_back()
    }

    /// Returns whether the machine has started again since the changes, which ended them.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Records a change that is about to be made; when this returns, the record is on disk.
    ///
    /// # Errors
    /// If it cannot be written. The change must not be made then.
    pub fn push(&mut self, record: Record) -> Result<(), TuneError> {
        let at = self.append(&record)?;
        self.records.push((at, record));
        Ok(())
    }

    /// Removes the latest record.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn pop(&mut self) -> Result<Option<Record>, TuneError> {
        let Some((at, record)) = self.records.pop() else { return Ok(None) };
        self.cut(at)?;
        Ok(Some(record))
    }

    /// Removes all records, and the file with them.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(mut self) -> Result<(), TuneError> {
        self.records.clear();
        fs::remove_file(&self.path).map_err(|cause| TuneError::state(&self.path, "it cannot be removed", cause))
    }

    /// Replaces all records, at once.
    ///
    /// # Errors
    /// If the file cannot be written; the records are as before.
    pub fn replace(self, records: &[Record]) -> Result<(), TuneError> {
        let beside = self.path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut text = fs::read_to_string(&self.path)?.lines().next().unwrap_or_default().to_owned();
            for record in records {
                text.push('\n');
                text.push_str(&serde_json::to_string(record)?);
            }
            text.push('\n');
            let mut file = File::create(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        };
        write().map_err(|cause| TuneError::state(&self.path, "it cannot be written", cause))
    }

    fn append(&mut self, line: &impl Serialize) -> Result<u64, TuneError> {
        let mut write = || {
            let mut text = serde_json::to_string(line)?;
            text.push('\n');
            let at = self.file.seek(SeekFrom::End(0))?;
            self.file.write_all(text.as_bytes())?;
            self.file.sync_all()?;
            Ok(at)
        };
        write().map_err(|cause| TuneError::state(&self.path, "it cannot be written", cause))
    }

    fn cut(&mut self, at: u64) -> Result<(), TuneError> {
        let cut = self.file.set_len(at).and_then(|()| self.file.sync_all());
        cut.map_err(|cause| TuneError::state(&self.path, "it cannot be written", cause))
    }
}

/// Returns whether this is the file at the path.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |found: fs::Metadata| (found.dev(), found.ino());
    file.metadata().and_then(|own| Ok(number(own) == number(fs::metadata(path)?))).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: &str) -> Record {
        let place = Place::file("/proc/sys/kernel/x");
        Record { tuning: "x".to_owned(), place, former: "0".to_owned(), applied: value.to_owned() }
    }

    #[test]
    fn records_survive_a_crash_at_any_byte() {
        let folder = tempfile::tempdir().expect("a folder");
        let (host, path) = (Host::below(folder.path()), folder.path().join("deep/state.json"));
        let mut state = StateFile::open(&path, &host).expect("created");
        state.push(record("1")).expect("written");
        let whole_after_one = fs::metadata(&path).expect("a file").len();
        state.push(record("2")).expect("written");
        assert!(matches!(StateFile::open(&path, &host), Err(TuneError::Busy(_))), "one at a time");
        drop(state);
        let text = fs::read(&path).expect("a file");
        for length in (whole_after_one + 1)..text.len() as u64 {
            fs::write(&path, &text[..usize::try_from(length).expect("small")]).expect("written");
            let state = StateFile::open(&path, &host).expect("the last line is half");
            assert_eq!(state.records().cloned().collect::<Vec<_>>(), [record("1")]);
            drop(state);
            assert_eq!(fs::metadata(&path).expect("a file").len(), whole_after_one);
        }
    }

    #[test]
    fn records_of_an_earlier_boot_are_stale() {
        let folder = tempfile::tempdir().expect("a folder");
        let random = folder.path().join("proc/sys/kernel/random");
        fs::create_dir_all(&random).expect("a folder");
        let (host, path) = (Host::below(folder.path()), folder.path().join("state.json"));
        for (number, (boot, is_stale)) in [("one\n", false), ("one\n", false), ("two\n", true)].into_iter().enumerate()
        {
            fs::write(random.join("boot_id"), boot).expect("written");
            let found = StateFile::open_existing(&path, &host).expect("opened");
            assert_eq!(found.is_some_and(|state| state.is_stale()), is_stale, "{boot}");
            let mut state = StateFile::open(&path, &host).expect("opened");
            assert_eq!(state.records().count(), usize::from(number == 1), "{boot}");
            state.push(record("1")).expect("written");
            drop(state);
            let state = StateFile::open_existing(&path, &host).expect("opened").expect("a file");
            assert!(!state.is_stale(), "the new records are of this boot");
        }
    }

    #[test]
    fn a_file_that_another_run_removed_is_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (host, path) = (Host::below(folder.path()), folder.path().join("state.json"));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("created");
        fs::remove_file(&path).expect("removed");
        assert!(matches!(StateFile::read(opened, &path, &host), Err(TuneError::Busy(_))));
    }

    #[test]
    fn another_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (host, path) = (Host::below(folder.path()), folder.path().join("notes.txt"));
        for text in ["my notes\n", "{\"strowger_tune\":2,\"boot\":null}\n", "{\"strowger_tune\":1,\"boot\":null}\n{}\n"]
        {
            fs::write(&path, text).expect("written");
            let error = StateFile::open(&path, &host).expect_err("not a record");
            assert!(error.to_string().contains("move the file away"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("a file"), text);
        }
        assert!(StateFile::open_existing(&folder.path().join("none"), &host).expect("nothing").is_none());
    }
}
