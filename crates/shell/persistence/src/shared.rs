//! State shared by the threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_journal::Segment;

use crate::backup::Task;
use crate::batch::Batch;
use crate::failure::StoreFailure;
use crate::queue::{Counters, OVERFLOW_SHOWN, Queue};
use crate::status::{CheckpointStatus, Histogram, LoadReport, State, Status};
use crate::time::NowFn;
use crate::{Limits, Mode};

/// Duration of a commit in progress from which it is shown.
const SLOW: Duration = Duration::from_secs(2);

/// Requests to the checkpoint thread.
#[derive(Debug)]
pub(crate) enum CheckpointRequest {
    Backup(Task),
    /// Checkpoint everything.
    Checkpoint(Sender<Result<(), String>>),
    /// Checkpoint everything, then stop.
    Final(Sender<Result<(), String>>),
    /// Stop as soon as everything is committed.
    Release(Sender<Result<(), String>>),
}

pub(crate) struct Shared<B> {
    pub(crate) queue: Queue<B>,
    pub(crate) limits: Limits,
    pub(crate) mode: Mode,
    pub(crate) now: NowFn,
    /// Checked by long loops.
    is_stopping: AtomicBool,
    checkpoints: Mutex<CheckpointQueue>,
    checkpoints_changed: Condvar,
    health: Mutex<Health>,
    /// Start of the commit in progress, in ns; 0 if none.
    commit_since: AtomicU64,
    is_loaded: AtomicBool,
    pub(crate) rows_done: AtomicU64,
    pub(crate) rows_of: AtomicU64,
}

/// Work of the checkpoint thread.
#[derive(Debug, Default)]
struct CheckpointQueue {
    closed: Vec<Segment>,
    requests: VecDeque<CheckpointRequest>,
    /// Whether files of the journal are lost, so that the table in memory must be written to the database.
    is_rewrite_requested: bool,
}

#[derive(Debug)]
struct Health {
    opening: Option<String>,
    failing: Option<(Timestamp, StoreFailure)>,
    /// Set when a thread has ended.
    ended: Option<(Timestamp, StoreFailure)>,
    loading: Option<String>,
    journal: strowger_journal::Status,
    commits: Histogram,
    faults: u64,
    recoveries: u64,
    checkpoint: CheckpointStatus,
    checkpoint_at: Option<Timestamp>,
    load_report: LoadReport,
}

impl<B: Batch> Shared<B> {
    pub(crate) fn new(mode: Mode, limits: Limits, now: NowFn) -> Self {
        let health = Health {
            opening: None,
            failing: None,
            ended: None,
            loading: None,
            journal: strowger_journal::Status::default(),
            commits: Histogram::new(),
            faults: 0,
            recoveries: 0,
            checkpoint: CheckpointStatus::default(),
            checkpoint_at: None,
            load_report: LoadReport::default(),
        };
        Self {
            queue: Queue::new(mode, limits.clone(), true),
            limits,
            mode,
            now,
            is_stopping: AtomicBool::new(false),
            checkpoints: Mutex::default(),
            checkpoints_changed: Condvar::new(),
            health: Mutex::new(health),
            commit_since: AtomicU64::new(0),
            is_loaded: AtomicBool::new(false),
            rows_done: AtomicU64::new(0),
            rows_of: AtomicU64::new(0),
        }
    }

    /// Ends long loops and pauses.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Waits, unless the server is stopping.
    pub(crate) fn pause(&self, pause: Duration) {
        let guard = self.desk();
        let goes_on = |_: &mut CheckpointQueue| !self.is_stopping();
        drop(self.checkpoints_changed.wait_timeout_while(guard, pause, goes_on));
    }

    /// Wakes all waiting threads to check their conditions.
    fn wake(&self) {
        let desk = self.desk();
        self.checkpoints_changed.notify_all();
        drop(desk);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    // Called by the store thread.

    pub(crate) fn cannot_open(&self, why: &str) {
        let before = self.health().opening.replace(why.to_owned());
        if before.as_deref() != Some(why) {
            tracing::error!("registrations are refused until this is fixed; the server keeps retrying: {why}");
        }
    }

    pub(crate) fn opened(&self) {
        let was_closed = self.health().opening.take().is_some();
        if was_closed {
            tracing::info!("the store of registrations was opened");
        }
    }

    pub(crate) fn begin_commit(&self, now: Timestamp) {
        self.commit_since.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    pub(crate) fn end_commit(&self, took: Duration) {
        self.commit_since.store(0, Ordering::Relaxed);
        self.health().commits.add(took);
    }

    pub(crate) fn mark_broken(&self, now: Timestamp, trouble: StoreFailure) {
        let StoreFailure { why, remedy } = &trouble;
        let what = match self.mode {
            Mode::WriteThrough => "registrations are refused with 503",
            Mode::WriteBehind => "registrations are not safe from a loss of power",
        };
        tracing::error!("{what}, calls continue: {why}; {remedy}");
        let mut health = self.health();
        health.faults += 1;
        health.failing = Some((now, trouble));
    }

    pub(crate) fn still_broken(&self, trouble: StoreFailure) {
        let line = format!("still broken: {}; {}", trouble.why, trouble.remedy);
        let mut health = self.health();
        let Some((_, known)) = &mut health.failing else { return };
        let is_news = *known != trouble;
        *known = trouble;
        drop(health);
        if is_news {
            tracing::error!("{line}");
        }
    }

    pub(crate) fn mark_recovered(&self, now: Timestamp) {
        let mut health = self.health();
        let Some((since, _)) = health.failing.take() else { return };
        health.recoveries += 1;
        let is_over = health.ended.is_none();
        drop(health);
        if !is_over {
            return;
        }
        let s = now.saturating_since(since).as_secs();
        tracing::info!("registrations are stored again after {s} s");
    }

    /// Ends storage for good; recovery does not resume it.
    pub(crate) fn end(&self, trouble: StoreFailure) {
        tracing::error!("registrations are refused with 503, calls continue: {}; {}", trouble.why, trouble.remedy);
        let mut health = self.health();
        health.faults += 1;
        health.ended.get_or_insert(((self.now)(), trouble));
    }

    pub(crate) fn failure(&self) -> Option<StoreFailure> {
        let health = self.health();
        health.ended.as_ref().or(health.failing.as_ref()).map(|(_, trouble)| trouble.clone())
    }

    pub(crate) fn publish(&self, journal: strowger_journal::Status, closed: &[Segment]) {
        self.health().journal = journal;
        let mut desk = self.desk();
        if desk.closed != closed {
            desk.closed.clear();
            desk.closed.extend_from_slice(closed);
            self.checkpoints_changed.notify_all();
        }
    }

    pub(crate) fn request_rewrite(&self) {
        self.desk().is_rewrite_requested = true;
        self.checkpoints_changed.notify_all();
    }

    // Called by the checkpoint thread.

    pub(crate) fn request(&self, desired: CheckpointRequest) {
        self.desk().requests.push_back(desired);
        self.checkpoints_changed.notify_all();
    }

    /// Waits for a request or the end of loading and, with `done`, also for a closed segment newer than that or a
    /// request to rewrite everything; at most for `pause`.
    pub(crate) fn wait_for_requests(&self, done: Option<u64>, pause: Duration) -> VecDeque<CheckpointRequest> {
        let was_loaded = self.is_loaded();
        let is_idle = |desk: &mut CheckpointQueue| {
            let is_behind =
                |done| desk.is_rewrite_requested || desk.closed.last().is_some_and(|last| last.number > done);
            desk.requests.is_empty() && !done.is_some_and(is_behind) && self.is_loaded() == was_loaded
        };
        let guard = self.desk();
        let (mut desk, _) =
            self.checkpoints_changed.wait_timeout_while(guard, pause, is_idle).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut desk.requests)
    }

    pub(crate) fn is_rewrite_requested(&self) -> bool {
        self.desk().is_rewrite_requested
    }

    /// Returns whether everything must be rewritten, and clears the request.
    pub(crate) fn take_rewrite_request(&self) -> bool {
        std::mem::take(&mut self.desk().is_rewrite_requested)
    }

    /// Returns the closed segments up to `number`.
    pub(crate) fn closed_through(&self, number: u64) -> Vec<Segment> {
        self.desk().closed.iter().copied().filter(|segment| segment.number <= number).collect()
    }

    pub(crate) fn checkpoint_done(&self, now: Timestamp, segments_behind: u64, rows: u64) {
        let mut health = self.health();
        health.checkpoint_at = Some(now);
        health.checkpoint.segments_behind = segments_behind;
        health.checkpoint.rows = rows;
        let was_failing = health.checkpoint.failing.take().is_some();
        drop(health);
        if was_failing {
            tracing::info!("checkpoints of the registrations succeed again");
        }
    }

    pub(crate) fn checkpoint_failed(&self, why: &str, segments_behind: u64) {
        let mut health = self.health();
        let before = health.checkpoint.failing.replace(why.to_owned());
        health.checkpoint.segments_behind = segments_behind;
        drop(health);
        if before.as_deref() != Some(why) {
            tracing::error!("the checkpoint of the registrations failed, so the journal grows; retrying: {why}");
        }
    }

    /// Records that `removed` expired rows were purged and `rows` remain.
    pub(crate) fn purged(&self, removed: u64, rows: u64) {
        let mut health = self.health();
        health.checkpoint.purged += removed;
        health.checkpoint.rows = rows;
    }

    pub(crate) fn closed(&self) -> Vec<Segment> {
        self.desk().closed.clone()
    }

    /// Returns whether there is a closed segment newer than `done`.
    pub(crate) fn is_behind(&self, done: u64) -> bool {
        self.desk().closed.last().is_some_and(|last| last.number > done)
    }

    /// Returns why the last checkpoint failed.
    pub(crate) fn why_behind(&self) -> String {
        let failing = self.health().checkpoint.failing.clone();
        failing.unwrap_or_else(|| "the database does not contain the whole journal yet".to_owned())
    }

    // Called by the loader threads.

    /// Marks the table as loaded; checkpoints may begin.
    pub(crate) fn loaded(&self) {
        self.is_loaded.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }

    pub(crate) fn cannot_load(&self, why: &str) {
        let before = self.health().loading.replace(why.to_owned());
        if before.as_deref() != Some(why) {
            tracing::error!("the registrations cannot be loaded; the server keeps retrying: {why}");
        }
    }

    /// Returns why loading is being retried.
    pub(crate) fn why_not_loaded(&self) -> Option<String> {
        self.health().loading.clone()
    }

    pub(crate) fn update_load_report(&self, update: impl FnOnce(&mut LoadReport)) {
        update(&mut self.health().load_report);
    }

    // For the operator.

    pub(crate) fn status(&self) -> Status {
        let now = (self.now)();
        let counters = self.queue.counters();
        let health = self.health();
        let state = self.state(&health, &counters, now);
        let last = health.checkpoint_at.map(|at| now.saturating_since(at));
        Status {
            mode: self.mode,
            state,
            journal_bytes: health.journal.bytes,
            journal_segments: health.journal.segments,
            groups: health.journal.groups,
            records: health.journal.records,
            syncs: health.journal.syncs,
            commit_p50: health.commits.percentile(50),
            commit_p99: health.commits.percentile(99),
            commit_longest: health.commits.longest(),
            waiting: counters.waiting,
            unwritten: counters.unwritten,
            refused: counters.refused,
            late: counters.late,
            lost: counters.lost,
            faults: health.faults,
            recoveries: health.recoveries,
            checkpoint: CheckpointStatus { last, ..health.checkpoint.clone() },
            load_report: health.load_report.clone(),
        }
    }

    fn state(&self, health: &Health, counters: &Counters, now: Timestamp) -> State {
        if let Some((since, trouble)) = &health.ended {
            return failing(now.saturating_since(*since), trouble);
        }
        if let Some(why) = &health.opening {
            return State::Opening { why: why.clone() };
        }
        if let Some((since, trouble)) = &health.failing {
            return failing(now.saturating_since(*since), trouble);
        }
        let commit = Timestamp::from_nanos(self.commit_since.load(Ordering::Relaxed));
        let under_way = now.saturating_since(commit);
        if commit != Timestamp::ZERO && under_way >= SLOW {
            let why = format!("a commit to the journal's disk has been in progress for {} s", under_way.as_secs());
            return State::Failing { since: under_way, why, remedy: "check its load and its health".into() };
        }
        if let Some((first, last)) = counters.overflow_period
            && now.saturating_since(last) < OVERFLOW_SHOWN
        {
            let why = "registrations arrive faster than the disk can store them: the queue is full, and further ones are refused".to_owned();
            let remedy = "give the journal a faster disk, or let phones register less often".to_owned();
            return State::Failing { since: now.saturating_since(first), why, remedy };
        }
        if health.load_report.is_complete {
            return State::Ok;
        }
        let (done, of) = (self.rows_done.load(Ordering::Relaxed), self.rows_of.load(Ordering::Relaxed));
        State::Loading { done, of, why: health.loading.clone() }
    }

    fn desk(&self) -> MutexGuard<'_, CheckpointQueue> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failing(since: Duration, StoreFailure { why, remedy }: &StoreFailure) -> State {
    State::Failing { since, why: why.clone(), remedy: remedy.clone() }
}
