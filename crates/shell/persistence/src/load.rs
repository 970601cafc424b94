//! Loading at startup: rows of the database, overlaid with newer records of the journal.

use std::num::NonZeroU8;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use strowger_foundation::Timestamp;
use strowger_journal::{Disk, JournalError, Reader, Segment};
use strowger_registrar::{Locations, Policy, Record, record};
use strowger_store::{LoadCounts, Location, LocationStore, SlotRange, StoreError};

use crate::batch::Batch;
use crate::checkpoint::READ_TRIES;
use crate::latest_states::{AtomicBitSet, LatestStates};
use crate::segments::CheckpointError;
use crate::shared::Shared;
use crate::time::StoreClock;

/// Rows between progress updates and checks for a stopping server.
const ROWS_A_LOOK: u64 = 1024;

/// Fills the location table, once.
pub(crate) struct Loader<D: Disk, B> {
    pub(crate) reader: Reader<D>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) tries: u32,
    /// Whether the table already has everything.
    pub(crate) is_filled: bool,
    pub(crate) table: Table<B>,
}

/// The table to fill, and its sources.
pub(crate) struct Table<B> {
    pub(crate) database: PathBuf,
    pub(crate) locations: Arc<Locations>,
    pub(crate) policy: Policy,
    pub(crate) clock: StoreClock,
    pub(crate) shared: Arc<Shared<B>>,
}

#[derive(Debug, Default)]
struct Counts {
    expired: AtomicU64,
    skipped: AtomicU64,
}

impl<D: Disk, B: Batch> Loader<D, B> {
    /// Loads, retrying as long as needed, then marks the table complete.
    pub(crate) fn run(mut self) {
        let begun = self.table.clock.now();
        let shared = Arc::clone(&self.table.shared);
        let counts = loop {
            let counts = Counts::default();
            if self.is_filled {
                break counts;
            }
            match self.load(&counts) {
                Ok(()) if shared.is_stopping() => return,
                Ok(()) => break counts,
                Err(failure) => shared.cannot_load(&failure.to_string()),
            }
            shared.pause(shared.limits.recover_every);
            if shared.is_stopping() {
                return;
            }
        };
        while let Some(removals) = shared.queue.next_removals() {
            removals.records().for_each(|removal| self.table.restore(removal, &counts));
        }
        self.table.complete(counts, begun);
    }

    fn load(&mut self, counts: &Counts) -> Result<(), CheckpointError> {
        let mut newer = LatestStates::default();
        // A reader holds a buffer as large as a segment.
        let mut reader = self.reader.clone();
        for segment in &self.segments {
            let mut bad = 0;
            match reader.read(*segment, |record| bad += u64::from(!newer.add(record))) {
                Ok(()) => {}
                // It was just verified and has become unreadable. Loading the others is worth more than waiting for
                // it.
                Err(error) if self.tries >= READ_TRIES || matches!(error, JournalError::Changed { .. }) => {
                    tracing::error!("the registrations in a file of the journal are lost: {error}");
                    bad += 1;
                }
                Err(error) => {
                    self.tries += 1;
                    return Err(error.into());
                }
            }
            counts.skipped.fetch_add(bad, Ordering::Relaxed);
        }
        drop(reader);
        Ok(self.table.fill(&newer, counts)?)
    }
}

impl<B: Batch> Table<B> {
    fn fill(&self, newer: &LatestStates, counts: &Counts) -> Result<(), StoreError> {
        let rows = LocationStore::open(&self.database)?.count()?;
        self.shared.rows_of.store(rows + newer.len() as u64, Ordering::Relaxed);
        self.shared.purged(0, rows);
        self.shared.rows_done.store(0, Ordering::Relaxed);
        let refreshed = AtomicBitSet::new(newer.len());
        self.load_rows(newer, counts, &refreshed)?;
        for (number, (_, state)) in newer.iter().enumerate() {
            if (number as u64).is_multiple_of(ROWS_A_LOOK) && self.shared.is_stopping() {
                return Ok(());
            }
            let is_refresh = Record::parse(state).is_ok_and(|record| record.is_refresh());
            if !is_refresh {
                self.restore(state, counts);
            } else if !refreshed.has(number) {
                counts.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Restores the rows in several threads, applies those refreshes of `newer` that have a row, and marks them.
    fn load_rows(&self, newer: &LatestStates, counts: &Counts, refreshed: &AtomicBitSet) -> Result<(), StoreError> {
        let parts = NonZeroU8::new(self.shared.limits.load_threads).unwrap_or(NonZeroU8::MIN);
        let load = |part: SlotRange| self.load_part(&part, newer, counts, refreshed);
        thread::scope(|scope| {
            let others: Vec<_> = (1..parts.get())
                .filter_map(|index| SlotRange::of(index, parts))
                .map(|part| scope.spawn(|| load(part)))
                .collect();
            let first = SlotRange::of(0, parts).map_or(Ok(()), load);
            let crashed = || StoreError::Damaged { path: self.database.clone() };
            others.into_iter().fold(first, |all, other| all.and(other.join().map_err(|_| crashed()).flatten()))
        })
    }

    fn load_part(
        &self,
        part: &SlotRange,
        newer: &LatestStates,
        counts: &Counts,
        refreshed: &AtomicBitSet,
    ) -> Result<(), StoreError> {
        let store = LocationStore::open(&self.database)?;
        let (mut rows, mut state) = (0, Vec::new());
        let found = store.for_each(part, |row: Location<'_>| {
            rows += 1;
            if rows % ROWS_A_LOOK == 0 {
                self.shared.rows_done.fetch_add(ROWS_A_LOOK, Ordering::Relaxed);
                if self.shared.is_stopping() {
                    return ControlFlow::Break(());
                }
            }
            match newer.get(row.aor) {
                None => self.restore(row.record, counts),
                Some((number, refresh)) if Record::parse(refresh).is_ok_and(|record| record.is_refresh()) => {
                    record::merge(Some(row.record), refresh, &mut state);
                    self.restore(&state, counts);
                    refreshed.set(number);
                }
                // Contacts not named in the changes stay.
                Some((_, changes)) if Record::parse(changes).is_ok_and(|record| record.is_change_set()) => {
                    self.restore(row.record, counts);
                }
                // The journal has a newer state.
                Some(_) => {}
            }
            ControlFlow::Continue(())
        });
        match found {
            Ok(LoadCounts { damaged, missing, .. }) => {
                counts.skipped.fetch_add(damaged + missing, Ordering::Relaxed);
                Ok(())
            }
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::error!("only {rows} registrations can be read from a part of the database: {error}");
                counts.skipped.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn restore(&self, bytes: &[u8], counts: &Counts) {
        let Ok(record) = Record::parse(bytes) else {
            counts.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let bindings = self.locations.restore(self.clock.now(), &self.policy, &record);
        if bindings == 0 && record.has_bindings() {
            counts.expired.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn complete(&self, counts: Counts, begun: Timestamp) {
        self.locations.complete_source();
        let took = self.clock.now().saturating_since(begun);
        let (expired, skipped) = (counts.expired.into_inner(), counts.skipped.into_inner());
        let loaded = self.locations.len() as u64;
        self.shared.update_load_report(|found| {
            (found.loaded, found.expired, found.took, found.is_complete) = (loaded, expired, took, true);
            found.skipped += skipped;
        });
        let s = took.as_secs_f32();
        tracing::debug!("{loaded} registrations in {s:.1} s; {expired} addresses expired meanwhile");
        if skipped > 0 {
            tracing::error!(
                "{skipped} stored registrations could not be read: the phones are reachable after they register again"
            );
        }
        self.shared.loaded();
    }
}
