//! Opening of database and journal: which journal belongs to the database, and the store time.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use strowger_journal::{CheckpointPosition, Damage, Disk, Journal, JournalError, Reader, Segment, Settings};
use strowger_store::{Checkpoint, DatabaseLock, LocationStore, StoreError};

use crate::Limits;
use crate::failure::StartError;
use crate::time::{MachineClocks, NowFn, StoreClock, decode, later};

/// Database settings with the id of its journal, stored twice so that one damaged row does not separate them.
const JOURNAL_ID: [&str; 2] = ["journal-id", "journal-id.copy"];

/// Attempts to settle the database while other readers briefly hold it.
const SETTLING_TRIES: u32 = 5;
const SETTLING_PAUSE: Duration = Duration::from_millis(10);

/// Everything that the threads work with.
pub(crate) struct OpenStore<D: Disk> {
    pub(crate) store: LocationStore,
    /// Lock that keeps other servers from the database.
    pub(crate) hold: DatabaseLock,
    pub(crate) journal: Journal<D>,
    pub(crate) reader: Reader<D>,
    pub(crate) clock: StoreClock,
    /// Segments not yet in the database.
    pub(crate) segments: Vec<Segment>,
    pub(crate) damage: Vec<Damage>,
    /// Last segment in the database.
    pub(crate) checkpoint: u64,
}

/// Opens the database and its journal on `disk`.
pub(crate) fn open<D: Disk>(
    disk: impl FnOnce() -> Result<D, JournalError>,
    database: &Path,
    limits: &Limits,
    now: NowFn,
    machine: Arc<dyn MachineClocks>,
) -> Result<OpenStore<D>, StartError> {
    let mut store = LocationStore::open(database)?;
    let hold = strowger_store::lock(database)?;
    let is_settled = settle(&store);
    let (checkpoint, is_known) = match store.checkpoint() {
        Err(error @ StoreError::Damaged { .. }) => {
            tracing::error!("the record of the last checkpoint is damaged, so the whole journal is read: {error}");
            (None, false)
        }
        checkpoint => (checkpoint?, true),
    };
    let id = journal_id(&mut store)?;
    let known = checkpoint.as_ref().and_then(|checkpoint| decode(&checkpoint.stamp));
    let (segment, checkpointed) = contained(checkpoint.as_ref(), is_known, is_settled);
    let settings =
        Settings { segment_bytes: limits.segment_bytes, max_bytes: limits.journal_bytes, ..Settings::new(id) };
    let mut clock = None;
    let (journal, opened) = Journal::open(disk()?, settings, checkpointed, |found| {
        clock.insert(StoreClock::resume(later(known, found), Arc::clone(&now), Arc::clone(&machine))).stamp()
    })?;
    let clock = clock.unwrap_or_else(|| StoreClock::resume(known, now, machine));
    if let Some(fault) = journal.fault().filter(|fault| fault.kind() == std::io::ErrorKind::PermissionDenied) {
        return Err(JournalError::Disk(fault.clone()).into());
    }
    Ok(OpenStore {
        store,
        hold,
        reader: journal.reader(),
        journal,
        clock,
        segments: opened.segments,
        damage: opened.damage,
        checkpoint: segment,
    })
}

/// Makes the visible contents of the database durable. The previous process may have met a failing disk, so that
/// reads return data from the page cache alone.
fn settle(store: &LocationStore) -> bool {
    (0..SETTLING_TRIES).any(|number| {
        if number > 0 {
            thread::sleep(SETTLING_PAUSE);
        }
        store.flush_log().unwrap_or(false)
    })
}

/// Returns the last segment in the database, and what that means for the journal's files.
fn contained(checkpoint: Option<&Checkpoint>, is_known: bool, is_settled: bool) -> (u64, CheckpointPosition) {
    let checkpointed = match checkpoint.map(|checkpoint| checkpoint.segment) {
        None if !is_known => CheckpointPosition::Unknown,
        // A checkpoint of segment 0 marks a database that begins a new journal.
        None | Some(0) => CheckpointPosition::Nothing,
        Some(number) if is_settled => CheckpointPosition::Through(number),
        Some(number) => CheckpointPosition::Unsettled(number),
    };
    (checkpoint.map_or(0, |checkpoint| checkpoint.segment), checkpointed)
}

/// Returns the id of the database's journal, creating one if there is none.
fn journal_id(store: &mut LocationStore) -> Result<[u8; 16], StartError> {
    for key in JOURNAL_ID {
        match store.setting(key) {
            Ok(Some(id)) => {
                if let Ok(id) = id.as_slice().try_into() {
                    return Ok(id);
                }
            }
            Ok(None) | Err(StoreError::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let id = random_id()?;
    name_journal(store, id)?;
    Ok(id)
}

/// Ties the database to a new journal, separating it from any earlier one.
pub(crate) fn name_journal(store: &mut LocationStore, id: [u8; 16]) -> Result<(), StoreError> {
    JOURNAL_ID.iter().try_for_each(|key| store.set_setting(key, &id))
}

/// Returns a random id for a new journal.
pub(crate) fn random_id() -> Result<[u8; 16], StartError> {
    let mut id = [0; 16];
    let cause = |error: getrandom::Error| StartError::System { doing: "get random numbers", cause: error.into() };
    getrandom::fill(&mut id).map_err(cause)?;
    Ok(id)
}
