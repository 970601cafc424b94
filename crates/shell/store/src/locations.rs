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

pub(crate) use checkpoint::read_checkpoint;

/// How long [`LocationStore::write`] holds the write lock, after which it lets others write. A waiting process
/// retries every 100 ms.
const MAX_TRANSACTION: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(120);
/// Rows between two readings of the clock.
const ROWS_PER_CLOCK_READ: usize = 64;

/// Maximum size of SQLite's WAL file, in bytes, while nothing is being written.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// Page cache of a connection, in KiB.
const CACHE_KIB: i64 = 8 << 10;

const SELECT_ONE: &str = "SELECT slot, aor, expires, record, sum FROM locations WHERE slot = ?1 AND aor = ?2";
const DELETE_ONE: &str = "DELETE FROM locations WHERE slot = ?1 AND aor = ?2";

/// Stores registrations between two runs of the server: the state of each address of record, as of a [`Checkpoint`].
/// A separate connection to the file of [`UserStore`](crate::UserStore), for one thread.
///
/// Records are opaque bytes. Each row has a checksum: damaged rows are skipped and counted.
///
/// Every call may block on the disk; a call that writes may wait up to five seconds for another writing process
/// ([`StoreError::Locked`]). After an error the failed transaction has no effect and the store can be used again,
/// except that after [`StoreError::Disk`] it should be reopened.
#[derive(Debug)]
pub struct LocationStore {
    connection: Connection,
    path: PathBuf,
    /// Whether the WAL that existed before this connection is safely in the file.
    is_log_flushed: Cell<bool>,
    /// Where the next [`LocationStore::purge`] continues: after this slot and address.
    purged_up_to: Option<(i64, Vec<u8>)>,
    max_transaction: Duration,
    pace: Option<WritePace>,
    pause: Duration,
}

/// Position up to which the table contains the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Newest segment that is completely contained, as are all older ones.
    pub segment: u64,
    /// The caller's data about that moment.
    pub stamp: Vec<u8>,
}

/// A change of one address of record. Idempotent.
#[derive(Clone, Copy, Debug)]
pub enum LocationChange<'a> {
    /// Sets its contacts.
    Put {
        /// Canonical address.
        aor: &'a [u8],
        /// Expiry of the last contact, in ms of store time.
        expires_ms: u64,
        /// All contacts.
        record: &'a [u8],
    },
    /// Removes its contacts.
    Remove {
        /// Canonical address.
        aor: &'a [u8],
    },
    /// Merges with the stored record: like [`LocationStore::get`] followed by one of the others, at half the cost.
    Merge {
        /// Canonical address.
        aor: &'a [u8],
        /// Newer data.
        newer: &'a [u8],
        /// Writes the new record into an empty buffer, from the stored one and `newer`.
        merge: MergeRecords,
    },
}

/// Function of [`LocationChange::Merge`]. Must be idempotent: merging with its own result gives the same.
pub type MergeRecords = fn(base: Option<&[u8]>, newer: &[u8], merged: &mut Vec<u8>) -> MergeResult;

/// Result of [`MergeRecords`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeResult {
    /// Store the new record.
    Put {
        /// Expiry of the last contact, in ms of store time.
        expires_ms: u64,
    },
    /// No contacts: remove the row.
    Remove,
    /// Leave the row unchanged.
    Keep,
}

/// Counts of [`LocationStore::write`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Changes written.
    pub rows: u64,
    /// Of these, changes that left their row unchanged, by [`MergeResult::Keep`].
    pub unchanged: u64,
    /// Of these, changes that should merge with a row with a wrong checksum, which was ignored.
    pub damaged: u64,
    /// Number of transactions.
    pub transactions: u64,
}

/// Pace of [`LocationStore::write`], so that others hardly notice its disk use. Changes sorted by
/// [`LocationStore::slot`] and address are by far the fastest then, because each transaction touches few pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePace {
    /// Approximate number of changes per transaction.
    pub rows: u64,
    /// Pause between two transactions.
    pub pause: Duration,
}

/// A borrowed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// Canonical address.
    pub aor: &'a [u8],
    /// Expiry of the last contact, in ms of store time.
    pub expires_ms: u64,
    /// All contacts.
    pub record: &'a [u8],
}

/// A part of the table, as a range of slots. A slot is a hash of the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange(RangeInclusive<u8>);

impl SlotRange {
    /// The whole table.
    pub const ALL: Self = Self(0..=u8::MAX);

    /// Returns part `index` (from 0) of `parts` parts of about equal size that together cover the table; `None` past
    /// the last.
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

/// Counts of [`LocationStore::for_each`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// Rows passed to the closure.
    pub rows: u64,
    /// Rows skipped because of a wrong checksum.
    pub damaged: u64,
    /// Rows missing because of a damaged page; 0 if the caller stopped early.
    pub missing: u64,
}

/// Result of [`LocationStore::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetResult {
    /// The row was found.
    Found {
        /// Expiry of the last contact, in ms of store time.
        expires_ms: u64,
    },
    /// No row.
    Absent,
    /// A row with a wrong checksum. Worth a report; otherwise as if there were none.
    Damaged,
}

/// Counts of [`LocationStore::purge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounts {
    /// Expired rows removed.
    pub removed: u64,
    /// Rows with a wrong checksum removed.
    pub damaged: u64,
    /// Rows examined.
    pub examined: u64,
    /// Whether the end of the table was reached; the next call then starts at its beginning.
    pub is_finished: bool,
}

impl LocationStore {
    /// Opens the database at `path`. Creates it or migrates it to the latest schema if necessary, as
    /// [`UserStore::open`](crate::UserStore::open) does.
    ///
    /// # Errors
    /// Errors of [`ErrorOwner::Operator`](crate::ErrorOwner::Operator).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let has_log = fs::metadata(log_of(path.as_ref())).is_ok_and(|log| log.len() > 0);
        let (connection, path) = file::open(path.as_ref())?;
        Self::prepare(connection, path, !has_log)
    }

    /// Opens an in-memory database, which ends with this value.
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

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the position up to which the journal is contained; `None` if nothing was ever written.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is unreadable. Replay every remaining segment then; the result is the same.
    /// Other file errors.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| read_checkpoint(transaction))
    }

    /// Writes `changes` and then the checkpoint. Everything is synced when this returns. Fastest if the changes are
    /// sorted by address; of two changes of the same address the later wins.
    ///
    /// Uses one transaction unless that takes longer than a second. Then it continues in another one after a pause of
    /// 120 ms, so that a command such as `strowger user add` gets its turn. The last transaction writes the
    /// checkpoint. After an error or a crash some changes may be stored while the checkpoint is still the previous
    /// one, so all must be written again.
    ///
    /// # Errors
    /// File errors; [`StoreError::BadExpiry`]. [`StoreError::Locked`] also if the previous WAL could not be
    /// [flushed](Self::flush_log), because writes after an unsynced WAL are lost with it.
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

    /// Sets the pace of [`write`](Self::write); `None` for the default.
    pub fn set_pace(&mut self, pace: Option<WritePace>) {
        self.pace = pace;
    }

    /// Returns the slot of an address. Rows are ordered by slot, then by address.
    #[must_use]
    pub fn slot(aor: &[u8]) -> u8 {
        slot_of(aor)
    }

    /// Reads the record of `aor` into `record`, after clearing it.
    ///
    /// # Errors
    /// File errors.
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

    /// Passes each row of `part`, from one state of the database, to `each` until it returns [`ControlFlow::Break`].
    /// Includes expired rows.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if SQLite reports a malformed file; the rows passed before were right. Other file
    /// errors.
    pub fn for_each(
        &self,
        part: &SlotRange,
        each: impl FnMut(Location<'_>) -> ControlFlow<()>,
    ) -> Result<LoadCounts, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| read_part(transaction, part, each))
    }

    /// Examines the next `limit` rows and removes those that expired before `expired_before_ms` (store time) or are
    /// damaged. The next call continues after them. The lock is held only while removing.
    ///
    /// `expired_before_ms` must not be later than the checkpoint: the journal may still hold a refresh of a row that
    /// has expired meanwhile.
    ///
    /// # Errors
    /// File errors.
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

    /// Returns the number of rows.
    ///
    /// # Errors
    /// File errors.
    pub fn count(&self) -> Result<u64, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| Ok(RowCounts::read_or_count(transaction)?.total()))
    }

    /// Accepts the present number of rows as complete, after [`LoadCounts::missing`] was reported.
    ///
    /// # Errors
    /// File errors.
    pub fn recount(&mut self) -> Result<(), StoreError> {
        transact::write(&mut self.connection, &self.path, |transaction| {
            RowCounts::count(transaction)?.write(transaction)
        })
    }

    /// Returns a value that the caller keeps with the data.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if its checksum is wrong; other file errors.
    pub fn setting(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| settings::read(transaction, key)?.or_damaged())
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// [`StoreError::ReservedSetting`] for keys that this crate uses itself; file errors.
    pub fn set_setting(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        if settings::is_ours(key) {
            return Err(settings::refuse(key));
        }
        transact::write(&mut self.connection, &self.path, |transaction| settings::write(transaction, key, value))
    }

    /// Moves SQLite's WAL into the file and syncs it, without waiting. Returns `false` if a reader still uses an
    /// older state.
    ///
    /// Call it once before removing journals that [`LocationStore::checkpoint`] reports as contained. The previous
    /// run may have failed to sync the WAL. What this one reads may then be in the page cache only, and syncing the
    /// same pages again would do nothing. [`LocationStore::write`] calls it if that was not done.
    ///
    /// # Errors
    /// File errors.
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

    /// Truncates the WAL after a large batch.
    fn truncate_log(&self) {
        if fs::metadata(log_of(&self.path)).is_ok_and(|metadata| metadata.len() > MAX_LOG_BYTES) {
            // The caller's request is done, so a failure here is not reported; the next write reports it.
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
        // Rows that repeat or are out of order belong to a page that is referenced wrongly.
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

/// Key of the previous row.
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

/// Returns the row unless its checksum is wrong. Its columns are slot, aor, expires, record, sum.
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

/// Returns the path of SQLite's WAL file.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

fn slot_of(aor: &[u8]) -> u8 {
    crc32c::crc32c(aor).to_le_bytes()[0]
}

/// Computes the checksum of a row. Includes the length of the address, so that no byte can move between address and
/// record.
fn checksum(aor: &[u8], expires: i64, record: &[u8]) -> u32 {
    let mut fixed = [0; 16];
    fixed[..8].copy_from_slice(&expires.to_be_bytes());
    fixed[8..].copy_from_slice(&(aor.len() as u64).to_be_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(aor), &fixed), record)
}

#[cfg(test)]
mod tests;
