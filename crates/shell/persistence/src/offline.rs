//! What is kept, changed by a command while no server runs.

use std::path::Path;

use strowger_foundation::Timestamp;
use strowger_journal::Folder;
use strowger_registrar::{Locations, Record};
use strowger_store::{Checkpoint, GetResult, LocationChange, LocationStore, StoreError};

use crate::backup::{BackupError, lock, put_journal_into};
use crate::checkpoint::expiry;
use crate::open::OpenStore;
use crate::time::encode;

/// The registrations of a server that is stopped. No server starts as long as this lives.
pub struct OfflineStore {
    opened: OpenStore<Folder>,
    checkpoint: Checkpoint,
}

impl OfflineStore {
    /// Takes journal and database, both made where they are missing, and brings what the journal has into the database.
    ///
    /// # Errors
    /// [`BackupError::Running`] where the server is not stopped; what is wrong with journal or database.
    pub fn open(folder: &Path, database: &Path) -> Result<Self, BackupError> {
        let disk = lock(folder)?;
        let opened = put_journal_into(disk, database)?;
        let checkpoint = opened.store.checkpoint()?;
        // A database that never had a checkpoint begins with this journal, of which nothing is in it.
        let none = || Checkpoint { segment: 0, stamp: encode(&opened.clock.stamp()) };
        let checkpoint = checkpoint.unwrap_or_else(none);
        Ok(Self { opened, checkpoint })
    }

    /// Tells an empty table which time it is for the store, so that what is registered there at [`Timestamp::ZERO`] can be
    /// [written](Self::write).
    pub fn begin(&self, locations: &Locations) {
        locations.set_store_origin(self.opened.clock.origin());
    }

    /// Whether the address has a binding that has not expired.
    ///
    /// # Errors
    /// What befalls the database.
    pub fn is_bound(&self, aor: &[u8]) -> Result<bool, StoreError> {
        let mut record = Vec::new();
        let GetResult::Found { expires_ms } = self.opened.store.get(aor, &mut record)? else { return Ok(false) };
        let binds = Record::parse(&record).is_ok_and(|record| record.has_bindings());
        Ok(binds && expires_ms > self.opened.clock.store_ms())
    }

    /// Writes the state of each address of the table in the place of what the database has of it; says how many there are. All of it is on
    /// the disk when this returns.
    ///
    /// # Errors
    /// What befalls the database.
    pub fn write(&mut self, locations: &Locations) -> Result<u64, StoreError> {
        // In the table's own order each transaction touches few pages.
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
