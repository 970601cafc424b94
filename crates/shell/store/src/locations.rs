//! The checkpoint of the location table.

use std::cell::Cell;
use std::fs;
use std::num::NonZeroU8;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Row, Transaction, params};

use crate::error::Fault;
use crate::row_counts::{RowCounts, SLOTS};
use crate::settings;
use crate::{StoreError, file, transact};

mod checkpoint;
mod purge;
mod writer;

pub(crate) use checkpoint::{CHECKPOINT_KEYS, read_checkpoint};

/// How long [`LocationStore::write`] keeps others from writing, and how long it then lets them. A process that waits for
/// its turn asks every 100 ms.
const MAX_TRANSACTION: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(120);
/// Rows between two looks at the clock.
const ROWS_PER_CLOCK_READ: usize = 64;

/// What SQLite's log may keep on the disk when nothing is being written.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// KiB of pages that a connection of this kind keeps in memory.
const CACHE_KIB: i64 = 8 << 10;

const SELECT_ONE: &str = "SELECT slot, aor, expires, record, sum FROM locations WHERE slot = ?1 AND aor = ?2";
const DELETE_ONE: &str = "DELETE FROM locations WHERE slot = ?1 AND aor = ?2";

/// Where registrations stand between two runs of the server: the state of each address of record, as of a
/// [`Checkpoint`]. A connection of its own to the file of [`UserStore`](crate::UserStore), for one thread.
///
/// Records are bytes to it. A row carries a checksum: one that damage has changed is left out and counted.
///
/// Every call may wait for the disk, and one that writes up to five seconds for another process that does
/// ([`StoreError::Locked`]). After an error nothing of the failed transaction is there and the value can be used again;
/// after [`StoreError::Disk`] it is better dropped and opened anew.
#[derive(Debug)]
pub struct LocationStore {
    connection: Connection,
    path: PathBuf,
    /// The log that was there before this connection is in the file, for sure.
    is_log_flushed: Cell<bool>,
    /// Where the next [`LocationStore::purge`] goes on: behind this slot and address.
    purged_up_to: Option<(i64, Vec<u8>)>,
    max_transaction: Duration,
    pace: Option<WritePace>,
    pause: Duration,
}

/// Up to where the journal is contained in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The newest segment that is contained whole; the older ones are too.
    pub segment: u64,
    /// What the caller wants to know of that moment.
    pub stamp: Vec<u8>,
}

/// What becomes of one address of record. Each comes to the same new state when it is written twice.
#[derive(Clone, Copy, Debug)]
pub enum LocationChange<'a> {
    /// It has contacts.
    Put {
        /// The canonical address.
        aor: &'a [u8],
        /// When the last of them expires, in milliseconds of store time.
        expires_ms: u64,
        /// All of them.
        record: &'a [u8],
    },
    /// It has none.
    Remove {
        /// The canonical address.
        aor: &'a [u8],
    },
    /// It has what follows from what is there: as [`LocationStore::get`] and then one of the others, at half the cost.
    Merge {
        /// The canonical address.
        aor: &'a [u8],
        /// What is new.
        newer: &'a [u8],
        /// Makes the new record, into an empty buffer, of the one that is there and of `newer`.
        merge: MergeRecords,
    },
}

/// For [`LocationChange::Merge`]. To be called again with what it made is to make the same.
pub type MergeRecords = fn(base: Option<&[u8]>, newer: &[u8], merged: &mut Vec<u8>) -> MergeResult;

/// What [`MergeRecords`] has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeResult {
    /// The new record.
    Put {
        /// When the last contact expires, in milliseconds of store time.
        expires_ms: u64,
    },
    /// No contacts: the row goes.
    Remove,
    /// Nothing: the row stays as it is.
    Keep,
}

/// What [`LocationStore::write`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Changes that were written.
    pub rows: u64,
    /// Of them those of which the row stayed as it was, by [`Merged::Keep`].
    pub unchanged: u64,
    /// Of them those whose row had a wrong checksum when it should be merged, and was taken for none.
    pub damaged: u64,
    /// Transactions that it took.
    pub transactions: u64,
}

/// How [`LocationStore::write`] is to go, so that others who use the disk hardly notice. Changes in the order of
/// [`LocationStore::place`] and address are by far the best then, for each transaction touches few pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePace {
    /// Changes of one transaction, about.
    pub rows: u64,
    /// Between two.
    pub pause: Duration,
}

/// A row, valid while it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The canonical address.
    pub aor: &'a [u8],
    /// When the last contact expires, in milliseconds of store time.
    pub expires_ms: u64,
    /// All contacts.
    pub record: &'a [u8],
}

/// A part of the table, by a hash of the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange(RangeInclusive<u8>);

impl SlotRange {
    /// The whole table.
    pub const ALL: Self = Self(0..=u8::MAX);

    /// The part `index`, from 0, of `parts` that are about equal, disjoint, and together the whole; `None` past the last.
    #[must_use]
    pub fn of(index: u8, parts: NonZeroU8) -> Option<Self> {
        let bound = |index: u8| SLOTS * usize::from(index) / usize::from(parts.get());
        if index >= parts.get() {
            return None;
        }
        let (first, last) = (u8::try_from(bound(index)).ok()?, u8::try_from(bound(index + 1) - 1).ok()?);
        Some(Self(first..=last))
    }
}

/// What [`LocationStore::for_each`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// Rows that were given.
    pub rows: u64,
    /// Rows that were left out because their checksum is wrong.
    pub damaged: u64,
    /// Rows that should be there and are not, because a page is damaged; 0 where the caller ended it early.
    pub missing: u64,
}

/// What [`LocationStore::get`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetResult {
    /// The row is there.
    Found {
        /// When the last contact expires, in milliseconds of store time.
        expires_ms: u64,
    },
    /// No row.
    Absent,
    /// A row with a wrong checksum: worth a report, and as good as none.
    Damaged,
}

/// What [`LocationStore::purge`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounts {
    /// Expired rows that are gone.
    pub removed: u64,
    /// Rows with a wrong checksum that are gone.
    pub damaged: u64,
    /// Rows that were looked at.
    pub examined: u64,
    /// The end of the table was reached: the next call begins at its start.
    pub is_finished: bool,
}

impl LocationStore {
    /// Opens the database at `path`; makes it, or brings it to the newest schema, where need be, as
    /// [`UserStore::open`](crate::UserStore::open) does.
    ///
    /// # Errors
    /// Those that [`Blame::Operator`](crate::Blame::Operator) stands for.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let has_log = fs::metadata(log_of(path.as_ref())).is_ok_and(|log| log.len() > 0);
        let (connection, path) = file::open(path.as_ref())?;
        Self::prepare(connection, path, !has_log)
    }

    /// A database in memory, which ends with this value.
    ///
    /// # Errors
    /// [`StoreError::Internal`] only.
    pub fn open_memory() -> Result<Self, StoreError> {
        let (connection, path) = file::open_memory()?;
        Self::prepare(connection, path, true)
    }

    fn prepare(connection: Connection, path: PathBuf, is_settled: bool) -> Result<Self, StoreError> {
        let tune = || -> rusqlite::Result<()> {
            connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
            connection.pragma_update_and_check(None, "journal_size_limit", MAX_LOG_BYTES.cast_signed(), |_| Ok(()))
        };
        tune().map_err(|cause| Fault::Sql(cause).at(&path))?;
        let (longest_transaction, pace, pause) = (MAX_TRANSACTION, None, PAUSE);
        let is_settled = Cell::new(is_settled);
        Ok(Self {
            connection,
            path,
            is_log_flushed: is_settled,
            purged_up_to: None,
            max_transaction: longest_transaction,
            pace,
            pause,
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Up to where the journal is contained; `None` where nothing was ever written.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where it cannot be known: then every segment that is still there has to be read, which
    /// comes to the same. What befalls the file.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| read_checkpoint(transaction))
    }

    /// Writes `changes` and then the checkpoint; all of it is on the disk when this returns. Quickest when they are
    /// sorted by address; of two for the same address the later counts.
    ///
    /// This is one transaction, unless it lasts longer than a second. Then it goes on in another after a pause of 120 ms,
    /// so that a command such as `strowger user add` gets its turn. The checkpoint comes with the last: after an error,
    /// or a crash, some changes may be there and the checkpoint is the one before, so all have to be written again.
    ///
    /// # Errors
    /// What befalls the file; [`StoreError::BadExpiry`]. [`StoreError::Locked`] also where the log that was there before could not
    /// be [settled](Self::settle), for what is written behind a log that is not on the disk is lost with it.
    pub fn write<'a>(
        &mut self,
        changes: impl IntoIterator<Item = LocationChange<'a>>,
        checkpoint: &Checkpoint,
    ) -> Result<WriteCounts, StoreError> {
        if !self.is_log_flushed.get() && !self.flush_log()? {
            return Err(StoreError::Locked { path: self.path.clone() });
        }
        let mut changes = changes.into_iter().peekable();
        let mut written = WriteCounts::default();
        let result = loop {
            let (until, pace) = (Instant::now() + self.max_transaction, self.pace);
            let rows = pace.map_or(u64::MAX, |pace| pace.rows);
            let piece = transact::write(&mut self.connection, &self.path, |transaction| {
                writer::write_chunk(transaction, &mut changes, checkpoint, (until, rows), &mut written)
            });
            if let Err(error) = piece {
                break Err(error);
            }
            if changes.peek().is_none() {
                break Ok(written);
            }
            std::thread::sleep(pace.filter(|_| Instant::now() < until).map_or(self.pause, |pace| pace.pause));
        };
        self.truncate_log();
        result
    }

    /// From now on [`write`](Self::write) keeps to `pace`; with `None` to its usual.
    pub fn set_pace(&mut self, pace: Option<WritePace>) {
        self.pace = pace;
    }

    /// Where in the table an address stands: by this, then by the address.
    #[must_use]
    pub fn slot(aor: &[u8]) -> u8 {
        slot_of(aor)
    }

    /// Puts the record of `aor` into `record`, which is emptied first.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn get(&self, aor: &[u8], record: &mut Vec<u8>) -> Result<GetResult, StoreError> {
        record.clear();
        let mut run = || -> Result<GetResult, Fault> {
            let mut statement = self.connection.prepare_cached(SELECT_ONE)?;
            let mut rows = statement.query(params![slot_of(aor), aor])?;
            let Some(row) = rows.next()? else { return Ok(GetResult::Absent) };
            let Some(location) = checked_location(row)? else { return Ok(GetResult::Damaged) };
            record.extend_from_slice(location.record);
            Ok(GetResult::Found { expires_ms: location.expires_ms })
        };
        run().map_err(|fault| fault.at(&self.path))
    }

    /// Gives each row of `part` to `each`, from one state of the database, until that is [`ControlFlow::Break`]. Rows whose
    /// expiry has passed are given too.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where SQLite calls the file malformed; the rows that were given before were right. What
    /// else befalls the file.
    pub fn for_each(
        &self,
        part: &SlotRange,
        each: impl FnMut(Location<'_>) -> ControlFlow<()>,
    ) -> Result<LoadCounts, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| read_part(transaction, part, each))
    }

    /// Looks at the next `limit` rows and removes those that expired before `expired_before_ms` (store time), and those
    /// that are damaged; the next call goes on behind them. The lock is held for the removing alone.
    ///
    /// `expired_before_ms` is not to be later than the moment of the checkpoint: a refresh that still waits in the journal
    /// may be to a row that has expired meanwhile.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn purge(&mut self, expired_before_ms: u64, limit: u32) -> Result<PurgeCounts, StoreError> {
        let after = self.purged_up_to.take();
        let found = transact::read(&self.connection, &self.path, |transaction| {
            purge::find(transaction, after.as_ref(), expired_before_ms, limit)
        })?;
        let mut purged =
            PurgeCounts { examined: found.examined, is_finished: found.next.is_none(), ..PurgeCounts::default() };
        if !found.keys.is_empty() {
            (purged.removed, purged.damaged) = transact::write(&mut self.connection, &self.path, |transaction| {
                purge::remove(transaction, &found.keys, expired_before_ms)
            })?;
            self.truncate_log();
        }
        self.purged_up_to = found.next;
        Ok(purged)
    }

    /// How many rows there are.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn count(&self) -> Result<u64, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| Ok(RowCounts::read_or_count(transaction)?.total()))
    }

    /// Takes what is there for all that should be, after [`Loaded::missing`] was reported.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn recount(&mut self) -> Result<(), StoreError> {
        transact::write(&mut self.connection, &self.path, |transaction| {
            RowCounts::count(transaction)?.write(transaction)
        })
    }

    /// A value that the caller keeps beside the data.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where its checksum is wrong; what else befalls the file.
    pub fn setting(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| settings::read(transaction, key)?.or_damaged())
    }

    /// Keeps `value` under `key`.
    ///
    /// # Errors
    /// [`StoreError::ReservedSetting`] for the keys that this crate uses itself; what befalls the file.
    pub fn set_setting(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        if settings::is_ours(key) {
            return Err(settings::refuse(key));
        }
        transact::write(&mut self.connection, &self.path, |transaction| settings::write(transaction, key, value))
    }

    /// Writes what is in the log into the file itself and syncs that; whether it could, for somebody may still read an older
    /// state. Waits for nobody.
    ///
    /// To be called once before journals are removed that [`LocationStore::checkpoint`] says are contained: the run before
    /// may have met a disk that failed to sync the log, and what this one reads may then stand in the system's memory
    /// alone, where another sync of the same pages would do nothing. [`LocationStore::write`] does it where it was not done.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn flush_log(&self) -> Result<bool, StoreError> {
        let run = || -> Result<bool, Fault> {
            self.connection.busy_timeout(Duration::ZERO)?;
            let result = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0));
            self.connection.busy_timeout(file::BUSY_TIMEOUT)?;
            let is_settled = !result?;
            self.is_log_flushed.set(self.is_log_flushed.get() || is_settled);
            Ok(is_settled)
        };
        run().map_err(|fault| fault.at(&self.path))
    }

    /// Gives the disk back what a large batch has left of the log.
    fn truncate_log(&self) {
        if fs::metadata(log_of(&self.path)).is_ok_and(|metadata| metadata.len() > MAX_LOG_BYTES) {
            // What was asked for is done, so a failure here is none of the caller's; the next call that writes meets it.
            let _ = self.flush_log();
        }
    }
}

pub(crate) fn read_part(
    transaction: &Transaction<'_>,
    part: &SlotRange,
    mut each: impl FnMut(Location<'_>) -> ControlFlow<()>,
) -> Result<LoadCounts, Fault> {
    let (first, last) = (*part.0.start(), *part.0.end());
    let expected = RowCounts::read(transaction)?.map(|counts| counts.sum(first..=last));
    let mut statement = transaction.prepare_cached(
        "SELECT slot, aor, expires, record, sum FROM locations WHERE slot BETWEEN ?1 AND ?2 ORDER BY slot, aor",
    )?;
    let mut rows = statement.query(params![first, last])?;
    let mut loaded = LoadCounts::default();
    let mut before = RowKey::default();
    while let Some(row) = rows.next()? {
        // Rows that come twice, or out of their order, are of a page that something else points to.
        let location = checked_location(row)?.filter(|location| before.advance(location.aor));
        let Some(location) = location else {
            loaded.damaged += 1;
            continue;
        };
        loaded.rows += 1;
        if each(location).is_break() {
            return Ok(loaded);
        }
    }
    loaded.missing = expected.map_or(0, |expected| expected.saturating_sub(loaded.rows + loaded.damaged));
    Ok(loaded)
}

/// The key of the row before.
#[derive(Default)]
struct RowKey {
    slot: u8,
    aor: Vec<u8>,
}

impl RowKey {
    fn advance(&mut self, aor: &[u8]) -> bool {
        let slot = slot_of(aor);
        if (slot, aor) <= (self.slot, &self.aor) && !(self.slot == 0 && self.aor.is_empty()) {
            return false;
        }
        self.slot = slot;
        self.aor.clear();
        self.aor.extend_from_slice(aor);
        true
    }
}

/// The row, unless damage has changed it. Its columns are slot, aor, expires, record, sum.
fn checked_location<'r>(row: &'r Row<'_>) -> Result<Option<Location<'r>>, Fault> {
    let (Ok(slot), Ok(aor), Ok(expires), Ok(record), Ok(sum)) = (
        row.get_ref(0)?.as_i64(),
        row.get_ref(1)?.as_blob(),
        row.get_ref(2)?.as_i64(),
        row.get_ref(3)?.as_blob(),
        row.get_ref(4)?.as_i64(),
    ) else {
        return Ok(None);
    };
    let is_sound = slot == i64::from(slot_of(aor)) && sum == i64::from(checksum(aor, expires, record));
    let Ok(expires_ms) = u64::try_from(expires) else { return Ok(None) };
    Ok(is_sound.then_some(Location { aor, expires_ms, record }))
}

/// SQLite's log of changes.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

fn slot_of(aor: &[u8]) -> u8 {
    crc32c::crc32c(aor).to_le_bytes()[0]
}

/// The length stands between address and record, so that no byte can change sides.
fn checksum(aor: &[u8], expires: i64, record: &[u8]) -> u32 {
    let mut fixed = [0; 16];
    fixed[..8].copy_from_slice(&expires.to_be_bytes());
    fixed[8..].copy_from_slice(&(aor.len() as u64).to_be_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(aor), &fixed), record)
}

#[cfg(test)]
mod tests;
