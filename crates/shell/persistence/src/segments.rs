//! Journal segments written into the database.

use strowger_journal::{Disk, JournalError, Reader, Segment, Stamp};
use strowger_registrar::{Record, record};
use strowger_store::{Checkpoint, LocationChange, LocationStore, MergeResult, StoreError, WriteCounts};

use crate::latest_states::LatestStates;
use crate::time::encode;

/// Why a checkpoint failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Rotate(String),
}

/// Inconsistencies found by a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointFindings {
    /// Unreadable records.
    pub(crate) bad: u64,
    /// Refreshes without a binding.
    pub(crate) orphans: u64,
    /// Damaged rows, replaced or dropped.
    pub(crate) damaged: u64,
}

/// Writes the contents of `segments` to the database, together with the number of the last one. Durable on return.
/// After an error, the checkpoint is unchanged and the call can be repeated.
pub(crate) fn write_segments<D: Disk>(
    reader: &Reader<D>,
    store: &mut LocationStore,
    segments: &[Segment],
    stamp: &Stamp,
) -> Result<CheckpointFindings, CheckpointError> {
    let Some(last) = segments.last() else { return Ok(CheckpointFindings::default()) };
    let mut oddities = CheckpointFindings::default();
    let mut newest = LatestStates::default();
    // A reader holds a buffer as large as a segment.
    let mut reader = reader.clone();
    for segment in segments {
        reader.read(*segment, |record| oddities.bad += u64::from(!newest.add(record)))?;
    }
    drop(reader);
    // In key order, each small transaction touches few pages.
    let changes = newest.sorted_by(LocationStore::slot).filter_map(|(aor, state)| change_to(aor, state));
    let checkpoint = Checkpoint { segment: last.number, stamp: encode(stamp) };
    let WriteCounts { unchanged: kept, damaged, .. } = store.write(changes, &checkpoint)?;
    // A refresh of a damaged row counts as an orphan too.
    (oddities.orphans, oddities.damaged) = (kept.saturating_sub(damaged), damaged);
    Ok(oddities)
}

/// Returns the database change that a state or refresh causes.
pub(crate) fn change_to<'a>(aor: &'a [u8], state: &'a [u8]) -> Option<LocationChange<'a>> {
    let record = Record::parse(state).ok()?;
    Some(if record.is_refresh() {
        LocationChange::Merge { aor, newer: state, merge: renew }
    } else if record.is_change_set() {
        LocationChange::Merge { aor, newer: state, merge: join }
    } else if record.is_removal() {
        LocationChange::Remove { aor }
    } else {
        LocationChange::Put { aor, expires_ms: expiry(&record), record: state }
    })
}

/// Applies a refresh to a row; without a row, does nothing.
pub(crate) fn renew(row: Option<&[u8]>, refresh: &[u8], merged: &mut Vec<u8>) -> MergeResult {
    let Some(row) = row else { return MergeResult::Keep };
    record::merge(Some(row), refresh, merged);
    match Record::parse(merged) {
        Ok(record) if record.is_removal() => MergeResult::Remove,
        Ok(record) if !record.is_refresh() => MergeResult::Put { expires_ms: expiry(&record) },
        _ => MergeResult::Keep,
    }
}

/// Applies changes to a row, or creates it.
pub(crate) fn join(row: Option<&[u8]>, changes: &[u8], merged: &mut Vec<u8>) -> MergeResult {
    record::merge(row, changes, merged);
    match Record::parse(merged) {
        Ok(record) => MergeResult::Put { expires_ms: expiry(&record) },
        Err(_) => MergeResult::Keep,
    }
}

pub(crate) fn expiry(record: &Record<'_>) -> u64 {
    record.expires_ms().min(i64::MAX.cast_unsigned())
}
