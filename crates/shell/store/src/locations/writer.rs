//! Writing of changes to the table.

use std::iter::Peekable;
use std::time::Instant;

use rusqlite::{CachedStatement, Transaction, params};

use super::{
    Checkpoint, DELETE_ONE, LocationChange, MergeRecords, MergeResult, ROWS_PER_CLOCK_READ, SELECT_ONE, WriteCounts,
};
use super::{checked_location, checkpoint, checksum, slot_of};
use crate::StoreError;
use crate::error::Fault;
use crate::row_counts::RowCounts;

/// Writes until everything is written or the time is up.
pub(super) fn write_chunk<'a>(
    transaction: &Transaction<'_>,
    changes: &mut Peekable<impl Iterator<Item = LocationChange<'a>>>,
    checkpoint: &Checkpoint,
    (until, rows): (Instant, u64),
    written: &mut WriteCounts,
) -> Result<(), Fault> {
    let mut writer = Writer::prepare(transaction, written)?;
    let full = writer.written.rows.saturating_add(rows);
    loop {
        for change in changes.by_ref().take(ROWS_PER_CLOCK_READ) {
            writer.apply(change)?;
        }
        if changes.peek().is_none() {
            checkpoint::write_checkpoint(transaction, checkpoint)?;
            break;
        }
        if writer.written.rows >= full || Instant::now() >= until {
            break;
        }
    }
    writer.counts.write(transaction)?;
    writer.written.transactions += 1;
    Ok(())
}

struct Writer<'t> {
    select: CachedStatement<'t>,
    update: CachedStatement<'t>,
    insert: CachedStatement<'t>,
    delete: CachedStatement<'t>,
    counts: RowCounts,
    written: &'t mut WriteCounts,
    merged: Vec<u8>,
}

impl<'t> Writer<'t> {
    fn prepare(transaction: &'t Transaction<'_>, written: &'t mut WriteCounts) -> Result<Self, Fault> {
        Ok(Self {
            select: transaction.prepare_cached(SELECT_ONE)?,
            update: transaction.prepare_cached(
                "UPDATE locations SET expires = ?3, record = ?4, sum = ?5 WHERE slot = ?1 AND aor = ?2",
            )?,
            insert: transaction.prepare_cached(
                "INSERT INTO locations (slot, aor, expires, record, sum) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            delete: transaction.prepare_cached(DELETE_ONE)?,
            counts: RowCounts::read_or_count(transaction)?,
            written,
            merged: Vec::new(),
        })
    }

    fn apply(&mut self, change: LocationChange<'_>) -> Result<(), Fault> {
        self.written.rows += 1;
        match change {
            LocationChange::Put { aor, expires_ms, record } => self.put(aor, expires_ms, record),
            LocationChange::Remove { aor } => self.remove(aor),
            LocationChange::Merge { aor, newer, merge } => self.merge(aor, newer, merge),
        }
    }

    /// Inserts or updates a row. The counts need to know which, and only trying both tells.
    fn put(&mut self, aor: &[u8], expires_ms: u64, record: &[u8]) -> Result<(), Fault> {
        let slot = slot_of(aor);
        let expires = i64::try_from(expires_ms)
            .map_err(|_| StoreError::BadExpiry { aor: String::from_utf8_lossy(aor).into_owned() })?;
        let sum = checksum(aor, expires, record);
        if self.update.execute(params![slot, aor, expires, record, sum])? == 0 {
            self.insert.execute(params![slot, aor, expires, record, sum])?;
            self.counts.add(slot);
        }
        Ok(())
    }

    fn remove(&mut self, aor: &[u8]) -> Result<(), Fault> {
        let slot = slot_of(aor);
        if self.delete.execute(params![slot, aor])? > 0 {
            self.counts.subtract(slot);
        }
        Ok(())
    }

    fn merge(&mut self, aor: &[u8], newer: &[u8], merge: MergeRecords) -> Result<(), Fault> {
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        let mut rows = self.select.query(params![slot_of(aor), aor])?;
        let base = match rows.next()? {
            None => None,
            Some(row) => {
                let location = checked_location(row)?;
                self.written.damaged += u64::from(location.is_none());
                location.map(|location| location.record)
            }
        };
        let verdict = merge(base, newer, &mut merged);
        drop(rows);
        match verdict {
            MergeResult::Put { expires_ms } => self.put(aor, expires_ms, &merged)?,
            MergeResult::Remove => self.remove(aor)?,
            MergeResult::Keep => self.written.unchanged += 1,
        }
        self.merged = merged;
        Ok(())
    }
}
