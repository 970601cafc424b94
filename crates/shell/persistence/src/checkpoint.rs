//! The checkpoint thread: writes closed segments of the journal to the database and removes them.

use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use strowger_foundation::Timestamp;
use strowger_journal::{Disk, JournalError, Reader, Segment};
use strowger_registrar::Locations;
use strowger_store::{Checkpoint, LocationChange, LocationStore, SlotRange, StoreError, WritePace};

use crate::backup::Task;
use crate::batch::Batch;
use crate::latest_states::LatestStates;
use crate::queue::{Rotation, StoreCommand};
use crate::segments::{CheckpointError, CheckpointFindings, change_to, write_segments};
use crate::shared::{CheckpointRequest, Shared};
use crate::time::{StoreClock, encode};

/// Maximum total bytes of segments read at once, unless it is a single segment.
const BYTES_AT_ONCE: u64 = 64 << 20;
/// Time after which the store thread counts as stuck when it has to close a segment.
const ROTATE_TIMEOUT: Duration = Duration::from_secs(20);
/// Age beyond expiry, relative to the last checkpoint, at which no refresh can still be pending.
const PURGE_MARGIN_MS: u64 = 600_000;
const PURGE_ROWS: u32 = 5000;
/// Rows written per transaction, and the pause after it.
const ROWS_AT_ONCE: u64 = 2000;
const BETWEEN: Duration = Duration::from_millis(10);
const PURGE_PAUSE: Duration = Duration::from_millis(250);
/// Failed attempts to read a segment after which the table in memory is written instead.
pub(crate) const READ_TRIES: u32 = 5;
/// Minimum time between complete rewrites because of inconsistent data.
const REWRITE_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval at which the checkpoint checks whether the workers have handled their results.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// After a failed rewrite, the next one waits for this many times its duration.
const EVERYTHING_SHARE: u32 = 4;
/// Lower priority than the store thread and the workers.
const NICENESS: i32 = 10;

/// Owns the database connection for writing.
pub(crate) struct Checkpointer<D: Disk, B> {
    pub(crate) reader: Reader<D>,
    pub(crate) database: PathBuf,
    pub(crate) locations: Arc<Locations>,
    pub(crate) shared: Arc<Shared<B>>,
    pub(crate) clock: StoreClock,
    /// Last segment in the database.
    pub(crate) done: u64,
    pub(crate) store: Option<LocationStore>,
    pub(crate) read_failures: u32,
    /// Time of the last complete rewrite because of inconsistent data.
    pub(crate) rewritten_at: Option<Timestamp>,
    /// Store time before which everything staged is in the database.
    pub(crate) floor_ms: u64,
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) rotate_at: Timestamp,
    pub(crate) purge_at: Option<Timestamp>,
    /// Backups waiting for loading to finish.
    pub(crate) waiting: Vec<Task>,
}

impl<D: Disk, B: Batch> Checkpointer<D, B> {
    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        // A checkpoint is not urgent. Failure to lower the priority does not matter.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        loop {
            let agenda = self.wait();
            if !self.pass(agenda) {
                return;
            }
        }
    }

    fn wait(&self) -> VecDeque<CheckpointRequest> {
        let now = self.clock.now();
        let is_loaded = self.shared.is_loaded();
        let look_at = (!self.waiting.is_empty()).then(|| now + self.shared.limits.recover_every);
        let due = [self.retry_at, self.purge_at, look_at, is_loaded.then_some(self.rotate_at)];
        let pause = due.into_iter().flatten().min().map_or(Duration::MAX, |due| due.saturating_since(now));
        // After a failure, only the timer or a request leads to another attempt.
        let is_ready = is_loaded && self.retry_at.is_none();
        self.shared.wait_for_requests(is_ready.then_some(self.done), pause)
    }

    /// Handles timers and requests; returns `false` when told to stop.
    pub(crate) fn pass(&mut self, agenda: VecDeque<CheckpointRequest>) -> bool {
        let now = self.clock.now();
        if self.shared.is_loaded() {
            if now >= self.rotate_at {
                self.rotate_at = now + self.shared.limits.checkpoint_every;
                if let Ok(rotated) = self.rotate() {
                    self.floor_after(rotated);
                }
            }
            if self.retry_at.is_none_or(|at| now >= at) {
                self.try_all();
            }
            if self.purge_at.is_some_and(|at| now >= at) {
                self.purge();
            }
        }
        self.run_waiting_backups();
        let mut goes_on = true;
        for desired in agenda {
            match desired {
                // A checkpoint would remove what the loader is reading.
                CheckpointRequest::Backup(task) if !self.shared.is_loaded() => self.waiting.push(task),
                CheckpointRequest::Backup(task) => {
                    let up_to_date = self.bring_up_to_date();
                    task.execute(&self.database, up_to_date);
                }
                CheckpointRequest::Checkpoint(reply) => drop(reply.send(self.finish())),
                CheckpointRequest::Release(reply) => {
                    self.shared.queue.send(StoreCommand::End);
                    drop(reply.send(Ok(())));
                    goes_on = false;
                }
                CheckpointRequest::Final(reply) => {
                    drop(reply.send(self.finish()));
                    self.shared.queue.send(StoreCommand::End);
                    goes_on = false;
                }
            }
        }
        goes_on
    }

    /// Runs backups requested while loading.
    fn run_waiting_backups(&mut self) {
        let why_not = self.shared.why_not_loaded();
        if self.waiting.is_empty() || !self.shared.is_loaded() && why_not.is_none() {
            return;
        }
        let up_to_date = match why_not {
            Some(why) if !self.shared.is_loaded() => Err(why),
            _ => self.bring_up_to_date(),
        };
        for task in mem::take(&mut self.waiting) {
            task.execute(&self.database, up_to_date.clone());
        }
    }

    /// Writes a checkpoint, or everything if that has been requested.
    fn try_all(&mut self) {
        self.retry_at = None;
        if self.shared.take_rewrite_request() {
            self.rewrite_all();
        }
        if self.retry_at.is_none() {
            self.catch_up();
        }
    }

    /// Writes the closed segments, some at a time.
    fn catch_up(&mut self) {
        let closed = self.shared.closed();
        let todo: Vec<Segment> = closed.into_iter().filter(|segment| segment.number > self.done).collect();
        let mut todo = &*todo;
        while !todo.is_empty() {
            let (now, rest) = todo.split_at(how_many(todo));
            todo = rest;
            if let Err(failure) = self.checkpoint(now) {
                self.on_failure(&failure, (now.len() + rest.len()) as u64);
                return;
            }
            self.shared.checkpoint_done(self.clock.now(), rest.len() as u64, self.rows());
        }
    }

    fn checkpoint(&mut self, segments: &[Segment]) -> Result<(), CheckpointError> {
        let stamp = self.clock.stamp();
        let pace = self.pace();
        let store = open_store(&mut self.store, &self.database)?;
        store.set_pace(pace);
        let oddities = write_segments(&self.reader, store, segments, &stamp)?;
        if oddities != CheckpointFindings::default() {
            self.on_findings(oddities);
        }
        self.on_checkpoint(segments);
        Ok(())
    }

    /// Returns the write pace. Syncs of the journal must not wait for many megabytes of the database's, unless the
    /// server is stopping.
    fn pace(&self) -> Option<WritePace> {
        (!self.shared.is_stopping()).then_some(WritePace { rows: ROWS_AT_ONCE, pause: BETWEEN })
    }

    fn on_findings(&mut self, CheckpointFindings { bad, orphans, damaged }: CheckpointFindings) {
        let now = self.clock.now();
        let is_soon = self.rewritten_at.is_some_and(|at| now.saturating_since(at) < REWRITE_INTERVAL);
        let what = if is_soon { "they stay in memory only" } else { "the whole table is rewritten" };
        tracing::error!(
            "of the registrations in the journal, {bad} cannot be read, {orphans} refresh missing bindings, and {damaged} rows are \
             damaged; {what}"
        );
        if !is_soon {
            self.rewritten_at = Some(now);
            self.shared.request_rewrite();
        }
    }

    /// Removes files, which is safe only once the database durably contains them.
    fn on_checkpoint(&mut self, segments: &[Segment]) {
        self.read_failures = 0;
        for segment in segments {
            if let Err(fault) = self.reader.remove(*segment) {
                tracing::debug!("a journal segment that is not needed remains for now: {fault}");
            }
            self.done = self.done.max(segment.number);
        }
        self.shared.queue.send(StoreCommand::RemoveThrough(self.done));
    }

    fn on_failure(&mut self, failure: &CheckpointError, behind: u64) {
        self.retry_at = Some(self.clock.now() + self.shared.limits.recover_every);
        self.shared.checkpoint_failed(&failure.to_string(), behind);
        match failure {
            CheckpointError::Store(StoreError::Disk { .. }) => self.store = None,
            CheckpointError::Journal(error) => {
                self.read_failures += 1;
                if matches!(error, JournalError::Changed { .. }) || self.read_failures >= READ_TRIES {
                    self.shared.request_rewrite();
                }
            }
            CheckpointError::Store(_) | CheckpointError::Rotate(_) => {}
        }
    }

    /// Writes the table in memory to the database, because files of the journal are lost or unreadable and the table
    /// has their contents.
    fn rewrite_all(&mut self) {
        let begun = self.clock.now();
        match self.try_rewrite_all() {
            Ok(rows) => {
                tracing::info!("all {rows} registered addresses were rewritten to the database");
                self.shared.checkpoint_done(self.clock.now(), 0, self.rows());
            }
            Err(failure) => {
                self.on_failure(&failure, 1);
                // Copying the whole table is expensive and must not become this thread's only work.
                let took = self.clock.now().saturating_since(begun);
                self.retry_at = self.retry_at.max(Some(self.clock.now() + took * EVERYTHING_SHARE));
                self.shared.request_rewrite();
            }
        }
    }

    fn try_rewrite_all(&mut self) -> Result<u64, CheckpointError> {
        let rotated = self.rotate().map_err(CheckpointError::Rotate)?;
        // Everything committed before must be in the table, however long a worker takes to apply it.
        self.await_workers().map_err(CheckpointError::Rotate)?;
        let all = snapshot_states(&self.locations, self.clock.now());
        let checkpoint = Checkpoint { segment: rotated.through.max(self.done), stamp: encode(&self.clock.stamp()) };
        let pace = self.pace();
        let store = open_store(&mut self.store, &self.database)?;
        let mut gone: Vec<Vec<u8>> = Vec::new();
        let read = store.for_each(&SlotRange::ALL, |row| {
            if !all.contains(row.aor) {
                gone.push(row.aor.to_vec());
            }
            ControlFlow::Continue(())
        });
        match read {
            // What cannot be read cannot be removed either.
            Ok(_) | Err(StoreError::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        store.set_pace(pace);
        let changes = all.sorted_by(LocationStore::slot).filter_map(|(aor, state)| change_to(aor, state));
        let removals = gone.iter().map(|aor| LocationChange::Remove { aor });
        store.write(changes.chain(removals), &checkpoint)?;
        self.floor_after(rotated);
        let covered: Vec<Segment> = self.shared.closed_through(checkpoint.segment);
        self.done = checkpoint.segment;
        self.retry_at = None;
        self.on_checkpoint(&covered);
        self.shared.queue.send(StoreCommand::Rewritten(checkpoint.segment));
        Ok(all.len() as u64)
    }

    /// Waits until the workers have applied all results sent so far.
    fn await_workers(&self) -> Result<(), String> {
        let undealt = self.shared.queue.until_dealt_with();
        let until = Instant::now() + ROTATE_TIMEOUT;
        while undealt.strong_count() > 0 {
            if Instant::now() >= until || self.shared.is_stopping() {
                return Err("a worker does not handle the results of stored records".to_owned());
            }
            self.shared.pause(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Closes the segment being written.
    fn rotate(&self) -> Result<Rotation, String> {
        let (reply, answer) = mpsc::channel();
        self.shared.queue.send(StoreCommand::Rotate(reply));
        let stuck = |_| "the disk does not respond".to_owned();
        answer.recv_timeout(ROTATE_TIMEOUT).map_err(stuck).flatten()
    }

    fn floor_after(&mut self, rotated: Rotation) {
        // Valid once the segments before it are in the database; purging checks that each time.
        self.floor_ms = rotated.floor_ms;
        self.purge_at.get_or_insert(self.clock.now());
    }

    fn purge(&mut self) {
        self.purge_at = None;
        let before = self.floor_ms.saturating_sub(PURGE_MARGIN_MS);
        if before == 0 {
            return;
        }
        if self.shared.is_behind(self.done) {
            self.purge_at = Some(self.clock.now() + self.shared.limits.recover_every);
            return;
        }
        let purged = open_store(&mut self.store, &self.database).and_then(|store| store.purge(before, PURGE_ROWS));
        match purged {
            Ok(purged) => {
                self.shared.purged(purged.removed, self.rows());
                if !purged.is_finished {
                    self.purge_at = Some(self.clock.now() + PURGE_PAUSE);
                }
            }
            Err(error) => tracing::debug!("expired registrations stay in the database for now: {error}"),
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        if !self.shared.is_loaded() {
            return Err("the stored registrations were not read completely".to_owned());
        }
        self.bring_up_to_date()
    }

    /// Brings everything acknowledged into the database.
    fn bring_up_to_date(&mut self) -> Result<(), String> {
        let rotated = self.rotate()?;
        self.try_all();
        // A rewrite has been requested, and there is no reason to delay it.
        if self.shared.is_rewrite_requested() && self.retry_at.is_none() {
            self.try_all();
        }
        if self.shared.is_rewrite_requested() {
            return Err(self.shared.why_behind());
        }
        if self.done < rotated.through && self.shared.is_behind(self.done) {
            return Err(self.shared.why_behind());
        }
        self.floor_ms = rotated.floor_ms;
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.store.as_ref().and_then(|store| store.count().ok()).unwrap_or(0)
    }
}

fn open_store<'a>(store: &'a mut Option<LocationStore>, database: &Path) -> Result<&'a mut LocationStore, StoreError> {
    match store {
        Some(store) => Ok(store),
        None => {
            let opened = LocationStore::open(database)?;
            // After a failed sync, reads may return data from the page cache alone, where another sync does nothing.
            if !opened.flush_log()? {
                return Err(StoreError::Locked { path: database.to_owned() });
            }
            Ok(store.insert(opened))
        }
    }
}

/// Returns the number of `segments` to read at once.
fn how_many(segments: &[Segment]) -> usize {
    let mut bytes = 0;
    let fits = segments.iter().take_while(|segment| {
        bytes += segment.len;
        bytes <= BYTES_AT_ONCE
    });
    fits.count().clamp(1, segments.len())
}

/// Returns the states of all addresses.
fn snapshot_states(locations: &Locations, now: Timestamp) -> LatestStates {
    let mut all = LatestStates::default();
    locations.for_each_state(now, |state| {
        all.add(state);
    });
    all
}
