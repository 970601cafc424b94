//! What was registered survives: the threads between the shards, the journal and the database.
//!
//! The *store thread* takes all records that wait, writes them to the journal as one group with one sync, and answers for them.
//! What comes meanwhile is the next group, so that groups grow with the load. The *checkpoint thread* brings the journal's
//! closed segments into the database. At the start a *loading* thread fills the location table from both, while the server
//! already serves. Whatever the disk does, calls go on: who was promised durability hears 503 at once, and the disk is tried
//! again every second.
//!
//! [`Persistence::start`] begins it, as a [`Keep`] the workers have it, [`Persistence::stop`] ends it.

#![forbid(unsafe_code)]

mod backlog;
mod backup;
mod batch;
mod checkpoint;
mod engine;
mod failure;
mod group_commit;
mod latest_states;
mod load;
mod offline;
mod open;
mod paged;
mod queue;
mod shared;
mod status;
#[cfg(test)]
mod tests;
mod time;
mod writer;

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strowger_journal::Folder;
use strowger_registrar::{Locations, Policy};
use strowger_worker::{RecordBatch, RecordSink};

use crate::engine::{Engine, Parts};
use crate::time::SystemClocks;

pub use backup::{Backup, BackupError, BackupResult, BackupSpec, RestoreResult, backup_offline, restore};
pub use failure::StartError;
pub use offline::OfflineStore;
pub use status::{CheckpointStatus, LoadReport, State, Status};
pub use time::NowFn;

/// What a 200 to a REGISTER promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The binding survives a loss of power.
    WriteThrough,
    /// It survives a loss of power [`Limits::behind`] later.
    WriteBehind,
}

impl Display for Mode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WriteThrough => "write-through",
            Self::WriteBehind => "write-behind",
        })
    }
}

/// Bounds, each with a default that suits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Records that wait for the store thread; what comes above is refused.
    pub waiting_records: usize,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// With [`Mode::Through`], how long a record waits at most for others to share its sync, while they come steadily.
    pub company: Duration,
    /// With [`Mode::Behind`], how long after its coming a record is safe.
    pub behind: Duration,
    /// A record that has waited so long for a slow disk is refused: whoever registers has given up.
    pub late: Duration,
    /// How often what is broken is tried again.
    pub recover_every: Duration,
    /// Addresses whose newest state waits for a broken disk, although nobody waits for it. What comes above is lost, until the
    /// disk is back: then all is written anew.
    pub unwritten_addresses: usize,
    /// Their bytes.
    pub unwritten_bytes: usize,
    /// The journal begins a new file after so many bytes.
    pub segment_bytes: u64,
    /// The journal's files together; past it nothing is taken until a checkpoint.
    pub journal_bytes: u64,
    /// How long a record may stand in the journal only.
    pub checkpoint_every: Duration,
    /// Threads that load.
    pub load_threads: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting_records: 65_536,
            waiting_bytes: 64 << 20,
            company: Duration::from_millis(1),
            behind: Duration::from_millis(100),
            late: Duration::from_secs(2),
            recover_every: Duration::from_secs(1),
            unwritten_addresses: 1_000_000,
            unwritten_bytes: 256 << 20,
            segment_bytes: 32 << 20,
            journal_bytes: 1 << 30,
            checkpoint_every: Duration::from_secs(600),
            load_threads: 2,
        }
    }
}

impl Limits {
    /// With [`Mode::Behind`], bytes that are written without waiting for more.
    pub(crate) fn eager_bytes(&self) -> usize {
        self.waiting_bytes / 16
    }
}

/// What is kept, where and how.
#[derive(Clone)]
pub struct PersistenceConfig {
    /// The journal's folder; made where it is missing.
    pub folder: PathBuf,
    /// The database, which has the users too.
    pub database: PathBuf,
    /// What is promised.
    pub mode: Mode,
    /// The process's monotonic clock.
    pub now: NowFn,
    /// The table, [awaiting](Locations::awaiting) what is loaded.
    pub locations: Arc<Locations>,
    /// For what is loaded.
    pub policy: Policy,
    /// Bounds.
    pub limits: Limits,
}

/// The threads that keep registrations. Any thread may use it.
pub struct Persistence {
    engine: Engine<RecordBatch>,
}

impl Persistence {
    /// Opens journal and database and starts the threads; the table is loaded while the server runs.
    ///
    /// What may heal by itself (a full disk, a file system that is read-only, an error of the disk, a locked database) is no
    /// error: the server starts, registrations are refused, and it is tried again every second.
    ///
    /// # Errors
    /// What only the operator can mend: a wrong owner, a path that is no folder, another server that runs, files of a newer
    /// version.
    pub fn start(config: PersistenceConfig) -> Result<Self, StartError> {
        let PersistenceConfig { folder, database, mode, now, locations, policy, limits } = config;
        let machine = Arc::new(SystemClocks::new());
        let parts = Parts { database, mode, now, machine, locations, policy, limits };
        let engine = Engine::start(move || Folder::open(&folder), parts)?;
        Ok(Self { engine })
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Begins to write a backup of all users and registrations as they are now, while everything goes on.
    #[must_use]
    pub fn backup(&self, order: BackupSpec) -> Backup {
        self.engine.backup(order)
    }

    /// Ends it: what waits is committed, and all of the journal is brought into the database, so that the next start has none to
    /// read. What does not get so far within `within` is in the journal all the same. Later records are refused.
    pub fn stop(&self, within: Duration) -> StopReport {
        self.engine.stop(within)
    }
}

impl RecordSink for Persistence {
    fn store(&self, batch: RecordBatch) {
        self.engine.store(batch);
    }
}

impl fmt::Debug for Persistence {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persistence").field("status", &self.status()).finish()
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// The next start has no journal to read.
    pub clean: bool,
    /// Why it has.
    pub why: Option<String>,
}
