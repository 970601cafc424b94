//! Durable registrations: the threads between the shards, the journal and the database.
//!
//! The *store thread* takes all waiting records, writes them to the journal as one group with one sync, and
//! acknowledges them. Records that arrive in the meantime form the next group, so groups grow with the load. The
//! *checkpoint thread* writes closed segments of the journal to the database. At startup, *loader threads* fill the
//! location table from both while the server is already running. Calls continue whatever the disk does. On a disk
//! error, requests that were to be durable get 503 at once, and the disk is retried every second.
//!
//! [`Persistence::start`] starts it, the workers use it as a [`RecordSink`], and [`Persistence::stop`] stops it.

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
mod segments;
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

/// What a 200 to a REGISTER guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The binding survives a loss of power.
    WriteThrough,
    /// The binding survives a loss of power that occurs at least [`Limits::behind`] later.
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

/// Limits, with suitable defaults.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum records waiting for the store thread; further ones are refused.
    pub waiting_records: usize,
    /// Maximum bytes of waiting records.
    pub waiting_bytes: usize,
    /// With [`Mode::WriteThrough`], maximum wait for other records to share a sync, while they arrive steadily.
    pub company: Duration,
    /// With [`Mode::WriteBehind`], maximum time from arrival of a record until it is durable.
    pub behind: Duration,
    /// Age at which a record waiting for a slow disk is refused, because the client has given up.
    pub late: Duration,
    /// Retry interval after a failure.
    pub recover_every: Duration,
    /// Maximum addresses whose latest state waits for a failed disk without a waiting request. Beyond it, records are
    /// lost until the disk recovers and everything is rewritten.
    pub unwritten_addresses: usize,
    /// Maximum bytes of these states.
    pub unwritten_bytes: usize,
    /// Size at which the journal begins a new file.
    pub segment_bytes: u64,
    /// Maximum total size of the journal's files; beyond it, records are refused until the next checkpoint.
    pub journal_bytes: u64,
    /// Maximum time that a record is in the journal only.
    pub checkpoint_every: Duration,
    /// Number of loader threads.
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
    /// Returns the number of bytes that are written without further wait in [`Mode::WriteBehind`].
    pub(crate) fn eager_bytes(&self) -> usize {
        self.waiting_bytes / 16
    }
}

/// Configuration of the persistence threads.
#[derive(Clone)]
pub struct PersistenceConfig {
    /// Folder of the journal; created if missing.
    pub folder: PathBuf,
    /// The database, which also contains the users.
    pub database: PathBuf,
    /// Durability of acknowledged registrations.
    pub mode: Mode,
    /// The process's monotonic clock.
    pub now: NowFn,
    /// The location table, [awaiting](Locations::awaiting) loaded data.
    pub locations: Arc<Locations>,
    /// Policy for loaded bindings.
    pub policy: Policy,
    /// Limits.
    pub limits: Limits,
    /// Whether the table already has everything that is stored, so that nothing is loaded: from the process that this
    /// one replaces.
    pub is_filled: bool,
}

/// The threads that store registrations. Usable from any thread.
pub struct Persistence {
    engine: Engine<RecordBatch>,
}

impl Persistence {
    /// Opens journal and database and starts the threads. The table is loaded while the server runs.
    ///
    /// Conditions that may resolve without a restart (a full disk, a read-only file system, a disk error, a locked
    /// database) are not errors: the server starts, refuses registrations and retries every second.
    ///
    /// # Errors
    /// Conditions that only the operator can resolve: a wrong owner, a path that is not a folder, another running
    /// server, files of a newer version.
    pub fn start(config: PersistenceConfig) -> Result<Self, StartError> {
        let PersistenceConfig { folder, database, mode, now, locations, policy, limits, is_filled } = config;
        let machine = Arc::new(SystemClocks::new());
        let parts = Parts { database, mode, now, machine, locations, policy, limits, is_filled };
        let engine = Engine::start(move || Folder::open(&folder), parts)?;
        Ok(Self { engine })
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Starts a backup of all users and registrations in their current state, without interrupting service.
    #[must_use]
    pub fn backup(&self, order: BackupSpec) -> Backup {
        self.engine.backup(order)
    }

    /// Brings what is acknowledged into the database while the threads go on, so that the next process has little of the
    /// journal to read.
    ///
    /// # Errors
    /// Why that is not so within `within`.
    pub fn checkpoint(&self, within: Duration) -> Result<(), String> {
        self.engine.checkpoint(within)
    }

    /// Makes the store thread commit what is waiting, without the wait for others or for [`Limits::behind`].
    pub fn commit(&self) {
        self.engine.commit();
    }

    /// Commits what is waiting, ends the threads, and gives up journal and database, so that the next process can open
    /// them. Unlike [`stop`](Self::stop), the journal is left as it is.
    ///
    /// # Errors
    /// What could not be written. Journal and database are given up nonetheless.
    pub fn release(&self, within: Duration) -> Result<(), String> {
        self.engine.release(within)
    }

    /// Stops the threads: commits what is waiting and brings the journal into the database, so that the next start
    /// has no journal to read. What is not finished within `within` remains in the journal. Later records are
    /// refused.
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

/// Result of stopping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Whether the next start has no journal to read.
    pub clean: bool,
    /// Why it has one.
    pub why: Option<String>,
}
