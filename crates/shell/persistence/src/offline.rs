//! Changes to stored registrations by a command while no server is running.

use std::path::Path;

use strowger_foundation::Timestamp;
use strowger_journal::Folder;
use strowger_registrar::{Locations, Record};
use strowger_store::{Checkpoint, GetResult, LocationChange, LocationStore, StoreError};

use crate::backup::{BackupError, lock, put_journal_into};
use crate::open::OpenStore;
use crate::segments::expiry;
use crate::time::encode;

/// The registrations of a stopped server. Prevents a server start while it exists.
pub struct OfflineStore {
    opened: OpenStore<Folder>,
    checkpoint: Checkpoint,
}

impl OfflineStore {
    /// Opens journal and database, creating them if missing, and brings the journal into the database.
    ///
    /// # Errors
    /// [`BackupError::Running`] if the server is running; otherwise errors of journal or database.
    pub fn open(folder: &Path, database: &Path) -> Result<Self, BackupError> {
        let disk = lock(folder)?;
        let opened = put_journal_into(disk, database)?;
        let checkpoint = opened.store.checkpoint()?;
        // A database without a checkpoint starts with this journal, none of which it contains.
        let none = || Checkpoint { segment: 0, stamp: encode(&opened.clock.stamp()) };
        let checkpoint = checkpoint.unwrap_or_else(none);
        Ok(Self { opened, checkpoint })
    }

    /// Sets the store time of an empty table, so that registrations made there at [`Timestamp::ZERO`] can be
    /// [written](Self::write).
    pub fn begin(&self, locations: &Locations) {
        locations.set_store_origin(self.opened.clock.origin());
    }

    /// Returns whether the address has an unexpired binding.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_bound(&self, aor: &[u8]) -> Result<bool, StoreError> {
        let mut record = Vec::new();
        let GetResult::Found { expires_ms } = self.opened.store.get(aor, &mut record)? else { return Ok(false) };
        let binds = Record::parse(&record).is_ok_and(|record| record.has_bindings());
        Ok(binds && expires_ms > self.opened.clock.store_ms())
    }

    /// Replaces the stored state of each address of the table; returns their number. Durable on return.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn write(&mut self, locations: &Locations) -> Result<u64, StoreError> {
        // In key order, each transaction touches few pages.
        let mut states: Vec<(u8, Box<[u8]>)> = Vec::new();
        locations.for_each_state(Timestamp::ZERO, |state| {
            if let Ok(record) = Record::parse(state) {
                states.push((LocationStore::slot(record.aor()), state.into()));
            }
        });
        states.sort_unstable();
        states.dedup();
        let changes = states.iter().filter_map(|(_, state)| {
            let record = Record::parse(state).ok()?;
            Some(LocationChange::Put { aor: record.aor(), expires_ms: expiry(&record), record: state })
        });
        let written = self.opened.store.write(changes, &self.checkpoint)?;
        Ok(written.rows)
    }
}
