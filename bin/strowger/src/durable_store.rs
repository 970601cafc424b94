//! Durable registrations of the server.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use strowger_control::config::values::StoreUrl;
use strowger_control::config::{Config, Mode};
use strowger_control::protocol::{BackupReport, BackupRequest, Checkpoint, Disk, EarlierState, Store};
use strowger_net::Clock;
use strowger_persistence::{BackupSpec, Limits, Persistence, PersistenceConfig, State, Status};
use strowger_registrar::{Locations, Policy};
use strowger_worker::{RecordBatch, RecordSink};

use crate::failure::Failure;
use crate::text::{count, number};
use crate::{backup, store};

/// Maximum time at shutdown for pending records to reach the disk.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Time that a start waits for loading. A small table is loaded before the first request is handled.
const LOAD_GRACE: Duration = Duration::from_millis(100);
const LOAD_TICK: Duration = Duration::from_millis(1);
/// Maximum time for the checkpoint before a takeover.
const CHECKPOINT_LIMIT: Duration = Duration::from_secs(60);
/// Maximum time for the store to be given up to another process.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);
/// Interval at which a backup's progress is read.
const BACKUP_TICK: Duration = Duration::from_millis(20);

/// Storage of registrations, if durable.
#[derive(Clone)]
pub(crate) struct DurableStore {
    mode: Mode,
    database: Option<PathBuf>,
    key: [u8; 16],
    persistence: Option<Arc<PersistenceSlot>>,
}

/// The running persistence. It is replaced if another process was to take over the store and has failed.
struct PersistenceSlot {
    config: PersistenceConfig,
    current: RwLock<Arc<Persistence>>,
}

impl PersistenceSlot {
    fn current(&self) -> Arc<Persistence> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RecordSink for PersistenceSlot {
    fn store(&self, batch: RecordBatch) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).store(batch);
    }
}

impl DurableStore {
    /// Starts loading the registrations of an earlier process into `locations`, unless it `is_filled` by that process.
    pub(crate) fn start(
        config: &Config,
        locations: &Arc<Locations>,
        policy: &Policy,
        key: [u8; 16],
        (clock, is_filled): (Clock, bool),
    ) -> Result<Self, Failure> {
        let mode = config.store_mode();
        let database = match config.store_url() {
            StoreUrl::Sqlite(path) => Some(path),
            StoreUrl::Memory => None,
        };
        let promise = match mode {
            Mode::WriteThrough => Some(strowger_persistence::Mode::WriteThrough),
            Mode::WriteBehind => Some(strowger_persistence::Mode::WriteBehind),
            Mode::Memory => None,
        };
        let Some((mode_of_store, database)) = promise.zip(database.clone()) else {
            tracing::info!("registrations: in memory, lost when the server stops");
            return Ok(Self { mode, database, key, persistence: None });
        };
        let folder = config.journal_folder();
        tracing::info!("registrations: {}, stored in {} and {}", mode.as_str(), folder.display(), database.display());
        let config = PersistenceConfig {
            folder,
            database: database.clone(),
            mode: mode_of_store,
            now: Arc::new(move || clock.now()),
            locations: Arc::clone(locations),
            policy: policy.clone(),
            limits: Limits::default(),
            is_filled,
        };
        let persistence = Persistence::start(config.clone())?;
        let deadline = Instant::now() + LOAD_GRACE;
        let is_loaded = || locations.is_complete() && persistence.status().load_report.is_complete;
        while !is_loaded() && Instant::now() < deadline {
            thread::sleep(LOAD_TICK);
        }
        let config = PersistenceConfig { is_filled: true, ..config };
        let slot = PersistenceSlot { config, current: RwLock::new(Arc::new(persistence)) };
        Ok(Self { mode, database: Some(database), key, persistence: Some(Arc::new(slot)) })
    }

    /// Returns the sink for the workers' records.
    pub(crate) fn record_sink(&self) -> Option<Arc<dyn RecordSink>> {
        self.persistence.clone().map(|persistence| persistence as Arc<dyn RecordSink>)
    }

    /// Returns whether everything is loaded, and logs the result once.
    pub(crate) fn is_loaded(&self) -> bool {
        let Some(persistence) = &self.persistence else { return true };
        let found = persistence.current().status().load_report;
        if !found.is_complete {
            return false;
        }
        let expired = match found.expired {
            0 => String::new(),
            left => format!(", {} left out", count(left, "expired address")),
        };
        let took = found.took.as_secs_f64();
        tracing::info!(
            "registrations: {}, {} loaded in {took:.1} s{expired}",
            self.mode.as_str(),
            number(found.loaded)
        );
        true
    }

    /// Writes pending records to the disk after the workers have ended.
    pub(crate) fn stop(&self) {
        let Some(persistence) = &self.persistence else { return };
        let stopped = persistence.current().stop(STOP_LIMIT);
        if !stopped.clean {
            let why = stopped.why.unwrap_or_default();
            tracing::warn!("the journal has not been moved into the database; the next start reads it: {why}");
        }
    }

    /// Returns why the store cannot be handed over now.
    pub(crate) fn trouble(&self) -> Option<String> {
        let status = self.persistence.as_ref()?.current().status();
        match status.state {
            State::Ok if status.unwritten == 0 => None,
            State::Ok => Some("registrations wait to be written".to_owned()),
            state => Some(state.to_string()),
        }
    }

    /// Brings registrations into the database, so that the next process has little of the journal to read.
    pub(crate) fn checkpoint(&self) -> Result<(), String> {
        self.persistence.as_ref().map_or(Ok(()), |persistence| persistence.current().checkpoint(CHECKPOINT_LIMIT))
    }

    /// Commits what is waiting at once.
    pub(crate) fn commit(&self) {
        self.persistence.iter().for_each(|persistence| persistence.current().commit());
    }

    /// Commits what is waiting and gives up the store for another process.
    pub(crate) fn release(&self) -> Result<(), String> {
        self.persistence.as_ref().map_or(Ok(()), |persistence| persistence.current().release(RELEASE_LIMIT))
    }

    /// Opens the store again after [`release`](Self::release).
    pub(crate) fn reopen(&self) {
        let Some(slot) = &self.persistence else { return };
        match Persistence::start(slot.config.clone()) {
            Ok(persistence) => {
                *slot.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(persistence);
            }
            Err(error) => tracing::error!("registrations are refused until a restart: {error}"),
        }
    }

    /// Writes a backup on the calling thread.
    pub(crate) fn backup(
        &self,
        request: &BackupRequest,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackupReport, String> {
        let extra = vec![(backup::KEY.to_owned(), self.key.to_vec())];
        let order = BackupSpec { target: request.file.clone(), overwrite: request.overwrite, extra };
        let done = match (&self.persistence, &self.database) {
            (Some(persistence), _) => {
                let running = persistence.current().backup(order);
                loop {
                    if let Some(outcome) = running.try_wait() {
                        break outcome.map_err(|error| error.to_string())?;
                    }
                    let (done, of) = running.progress();
                    progress(done, of);
                    thread::sleep(BACKUP_TICK);
                }
            }
            (None, Some(database)) => {
                backup::of_database(database, &order, progress).map_err(|error| error.to_string())?
            }
            (None, None) => return Err("store.url is memory:, so nothing is stored".to_owned()),
        };
        Ok(backup::report(&done))
    }

    pub(crate) fn status(&self) -> Store {
        let mode = self.mode.as_str().to_owned();
        match &self.persistence {
            Some(persistence) => shown(mode, persistence.current().status()),
            None => Store { mode, state: store::OK.to_owned(), ..Store::default() },
        }
    }
}

fn shown(mode: String, status: Status) -> Store {
    let disk = Some(disk(&status));
    let base = Store { mode, disk, ..Store::default() };
    match status.state {
        State::Ok => Store { state: store::OK.to_owned(), ..base },
        State::Opening { why } => Store { state: store::OPENING.to_owned(), why: Some(why), ..base },
        State::Loading { done, of, why } => {
            let loading = (of > 0).then(|| ratio(done, of));
            Store { state: store::LOADING.to_owned(), loading, why, ..base }
        }
        State::Failing { since, why, remedy } => Store {
            state: store::FAILING.to_owned(),
            why: Some(why),
            remedy: Some(remedy),
            failing_s: Some(seconds(since)),
            ..base
        },
    }
}

fn disk(status: &Status) -> Disk {
    let found = &status.load_report;
    let checkpoint = &status.checkpoint;
    Disk {
        journal_bytes: status.journal_bytes,
        journal_segments: status.journal_segments,
        groups: status.groups,
        records: status.records,
        commit_p50_ms: millis(status.commit_p50),
        commit_p99_ms: millis(status.commit_p99),
        commit_longest_ms: millis(status.commit_longest),
        waiting: status.waiting,
        unwritten: status.unwritten,
        refused: status.refused,
        late: status.late,
        lost: status.lost,
        faults: status.faults,
        recoveries: status.recoveries,
        checkpoint: Checkpoint {
            last_s: checkpoint.last.map(seconds),
            segments_behind: checkpoint.segments_behind,
            rows: checkpoint.rows,
            failing: checkpoint.failing.clone(),
            purged: checkpoint.purged,
        },
        found: EarlierState {
            is_complete: found.is_complete,
            loaded: found.loaded,
            expired: found.expired,
            skipped: found.skipped,
            damage: found.damage.clone(),
            took_s: seconds(found.took),
        },
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn ratio(done: u64, of: u64) -> f64 {
    (done as f64 / of as f64).min(1.0)
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1000.0
}
