//! The store thread: one group, one sync and one acknowledgement for everything waiting.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_journal::{CommitError, Disk, Journal, MAX_GROUP, MAX_RECORD, PushError};

use crate::backlog::{AddResult, Backlog};
use crate::batch::{Batch, QueuedBatch};
use crate::failure::StoreFailure;
use crate::queue::{Rotation, StoreCommand, Work};
use crate::shared::Shared;
use crate::time::StoreClock;

/// Size at which a group is committed although more is waiting, so that no record waits for much more than one sync.
const GROUP_TARGET: usize = MAX_GROUP / 2;
/// Duration from which a commit is logged as slow.
const SLOW: Duration = Duration::from_secs(1);
/// Interval at which a persistent condition is logged again.
const WARN_AGAIN: Duration = Duration::from_secs(60);

/// Owns the journal. It blocks only in the queue and on the disk; [`step`](Self::step) is its work.
pub(crate) struct Writer<D: Disk, B> {
    journal: Journal<D>,
    shared: Arc<Shared<B>>,
    clock: StoreClock,
    is_broken: bool,
    /// Whether it is broken only because the journal is full.
    is_full: bool,
    /// Set after files of the journal were lost. Until the database contains the whole table, including all segments
    /// up to this one, records that depend on lost ones must not be acknowledged.
    rewriting: Option<u64>,
    /// Number of lost records when a rewrite was last requested.
    lost: u64,
    try_at: Timestamp,
    /// Batches with records in the current group, or in one committed on the way to it.
    group: Vec<QueuedBatch<B>>,
    group_bytes: usize,
    /// States that could not be written in this step.
    failed: Backlog,
    warned_at: Option<Timestamp>,
    too_long_at: Option<Timestamp>,
}

impl<D: Disk, B: Batch> Writer<D, B> {
    pub(crate) fn new(journal: Journal<D>, shared: Arc<Shared<B>>, clock: StoreClock) -> Self {
        let fault = journal.fault().map(StoreFailure::from);
        let failed = shared.queue.backlog();
        let (group, try_at) = (Vec::new(), clock.now());
        let mut writer = Self {
            journal,
            shared,
            clock,
            is_broken: false,
            is_full: false,
            rewriting: None,
            lost: 0,
            try_at,
            group,
            group_bytes: 0,
            failed,
            warned_at: None,
            too_long_at: None,
        };
        match fault {
            Some(trouble) => {
                writer.mark_broken(trouble);
                writer.shared.queue.mark_broken(writer.shared.queue.backlog());
            }
            None => writer.shared.queue.mark_recovered(),
        }
        writer.publish();
        writer
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let tick = if self.is_broken { self.shared.limits.recover_every } else { Duration::MAX };
            let clock = self.clock.clone();
            let work = self.shared.queue.wait(tick, &|| clock.now());
            if !self.step(work) {
                return;
            }
        }
    }

    /// Writes waiting work and acknowledges it; returns `false` when told to stop.
    pub(crate) fn step(&mut self, mut work: Work<B>) -> bool {
        self.remove_first(&mut work.commands);
        if self.is_broken && self.clock.now() >= self.try_at {
            self.try_again();
        }
        self.write_batches(work.batches);
        if let Some(unwritten) = work.unwritten {
            self.write_unwritten(&unwritten);
        }
        let goes_on = self.execute(work.commands);
        if self.is_broken || !self.failed.is_empty() {
            self.shared.queue.mark_broken(self.failed.take());
        }
        if !self.is_broken {
            self.shared.queue.mark_recovered();
            self.rewrite_after_loss();
        }
        self.publish();
        goes_on
    }

    /// Requests a rewrite from the table in memory, which also contains the records that were lost for lack of room.
    fn rewrite_after_loss(&mut self) {
        let counters = self.shared.queue.counters();
        if counters.lost > self.lost && counters.unwritten == 0 {
            self.lost = counters.lost;
            self.shared.request_rewrite();
        }
    }

    fn write_batches(&mut self, batches: Vec<QueuedBatch<B>>) {
        let late = self.shared.limits.late;
        for arrived in batches {
            if self.group_bytes + arrived.bytes > GROUP_TARGET {
                self.commit();
            }
            let is_late = self.clock.now().saturating_since(arrived.at) > late;
            if self.is_broken {
                self.refuse(arrived);
            } else if arrived.longest > MAX_RECORD {
                // A batch has one result, but its records without a waiting request are written anyway.
                self.warn_of_length(arrived.longest);
                self.refuse(arrived);
            } else if is_late && arrived.awaited > 0 {
                // The client has given up. Writing its records would only make others wait.
                self.push_late(&arrived);
                self.shared.queue.count_refused(arrived.awaited, true);
                arrived.batch.acknowledge(false);
            } else if self.push_all(&arrived) {
                self.group_bytes += arrived.bytes;
                self.group.push(arrived);
            } else {
                self.refuse(arrived);
            }
        }
        self.commit();
    }

    /// Adds a batch to the group; a batch larger than a group is split over several. Returns `false` if the journal
    /// broke.
    fn push_all(&mut self, arrived: &QueuedBatch<B>) -> bool {
        let Self { journal, clock, .. } = self;
        let mut outcome = Ok(());
        arrived.batch.for_each(&mut |record, _| {
            if outcome.is_ok() {
                outcome = push(journal, record, clock);
            }
        });
        self.is_well(&outcome)
    }

    /// Writes those records of a late batch that no request waits for.
    fn push_late(&mut self, arrived: &QueuedBatch<B>) {
        if arrived.awaited == arrived.records {
            return;
        }
        let mut kept = Backlog::unbounded();
        arrived.batch.for_each(&mut |record, is_awaited| {
            if !is_awaited {
                kept.add(record);
            }
        });
        self.write_unwritten(&kept);
    }

    /// Writes states that no request waits for.
    fn write_unwritten(&mut self, unwritten: &Backlog) {
        if !self.is_broken {
            let Self { journal, clock, .. } = self;
            let mut records = unwritten.records().filter(|record| record.len() <= MAX_RECORD);
            let outcome = records.try_for_each(|record| push(journal, record, clock));
            if self.is_well(&outcome) {
                self.commit();
            }
        }
        if self.is_broken {
            let lost = self.failed.merge(unwritten);
            self.shared.queue.count_lost(lost);
            return;
        }
        // A rewrite brings them into the database, which has no such limit.
        let (mut lost, mut longest) = (0, 0);
        for record in unwritten.records().filter(|record| record.len() > MAX_RECORD) {
            (lost, longest) = (lost + 1, longest.max(record.len()));
        }
        if lost > 0 {
            self.shared.queue.count_lost(lost);
            self.warn_of_length(longest);
        }
    }

    /// Commits the group with one sync and acknowledges it.
    fn commit(&mut self) {
        if self.is_broken || self.journal.pending() == 0 && self.group.is_empty() {
            return;
        }
        let begun = self.clock.now();
        self.shared.begin_commit(begun);
        let outcome = self.journal.commit(self.clock.stamp());
        let took = self.clock.now().saturating_since(begun);
        self.shared.end_commit(took);
        self.warn_if_slow(begun, took);
        match outcome {
            Ok(()) => {
                self.group_bytes = 0;
                self.group.drain(..).for_each(|arrived| arrived.batch.acknowledge(true));
            }
            Err(_) => {
                self.is_well(&outcome);
            }
        }
    }

    /// After an error, discards the group and refuses its batches; returns whether there was none.
    fn is_well(&mut self, outcome: &Result<(), CommitError>) -> bool {
        if let Err(error) = outcome {
            self.is_full = matches!(error, CommitError::Full { .. });
            self.mark_broken(StoreFailure::from(error));
            self.fail_group();
        }
        outcome.is_ok()
    }

    fn fail_group(&mut self) {
        self.journal.discard();
        self.group_bytes = 0;
        for arrived in std::mem::take(&mut self.group) {
            self.refuse(arrived);
        }
    }

    fn refuse(&mut self, arrived: QueuedBatch<B>) {
        self.shared.queue.count_refused(arrived.awaited, false);
        let (mut lost, failed) = (0, &mut self.failed);
        arrived.refuse(|record| lost += u64::from(failed.add(record) == AddResult::Full));
        self.shared.queue.count_lost(lost);
    }

    /// Handles removals first: what is in the checkpoint makes room and is not missed by a recovery.
    fn remove_first(&mut self, orders: &mut VecDeque<StoreCommand>) {
        orders.retain(|order| {
            if let StoreCommand::RemoveThrough(number) = order {
                self.remove_through(*number);
            }
            !matches!(order, StoreCommand::RemoveThrough(_))
        });
    }

    fn execute(&mut self, orders: VecDeque<StoreCommand>) -> bool {
        let mut goes_on = true;
        for order in orders {
            match order {
                StoreCommand::Rotate(reply) => drop(reply.send(self.rotate())),
                StoreCommand::RemoveThrough(number) => self.remove_through(number),
                StoreCommand::Rewritten(through) => self.rewritten(through),
                // It has been written before this.
                StoreCommand::Commit => {}
                StoreCommand::End => goes_on = false,
            }
        }
        goes_on
    }

    fn rotate(&mut self) -> Result<Rotation, String> {
        // The rewrite ends the failure, so rotation must work during it.
        let is_rewriting = self.rewriting.is_some() && self.journal.fault().is_none();
        if self.is_broken && !is_rewriting {
            return Err(self.shared.failure().map_or_else(String::new, |trouble| trouble.why));
        }
        let stamp = self.clock.stamp();
        let is_all_written = self.failed.is_empty() && self.shared.queue.counters().unwritten == 0;
        match self.journal.rotate(stamp) {
            Ok(through) => {
                self.publish();
                Ok(Rotation { through, floor_ms: if is_all_written { stamp.store_ms } else { 0 } })
            }
            Err(fault) => {
                self.is_full = false;
                self.mark_broken(StoreFailure::from(&fault));
                Err(fault.to_string())
            }
        }
    }

    fn remove_through(&mut self, number: u64) {
        if let Err(fault) = self.journal.remove_through(number) {
            tracing::warn!("a segment that is no longer needed cannot be removed before the next checkpoint: {fault}");
        }
        if self.is_broken && self.journal.fault().is_none() {
            // The journal was full.
            self.try_again();
        }
    }

    fn mark_broken(&mut self, trouble: StoreFailure) {
        self.try_at = self.clock.now() + self.shared.limits.recover_every;
        if !self.is_broken {
            self.is_broken = true;
            self.shared.mark_broken(self.clock.now(), trouble);
        } else {
            self.shared.still_broken(trouble);
        }
    }

    fn try_again(&mut self) {
        self.try_at = self.clock.now() + self.shared.limits.recover_every;
        match self.journal.recover(self.clock.stamp()) {
            Ok(recovered) => {
                for name in &recovered.quarantined_as {
                    tracing::info!("a damaged file of the journal is kept as {name}");
                }
                if !recovered.lost.is_empty() {
                    self.rewrite(recovered.lost.len());
                }
                if self.rewriting.is_some() || self.is_full && self.has_no_room() {
                    return;
                }
                self.mark_recovered();
            }
            Err(fault) => self.shared.still_broken(StoreFailure::from(&fault)),
        }
    }

    fn mark_recovered(&mut self) {
        (self.is_broken, self.is_full) = (false, false);
        self.shared.mark_recovered(self.clock.now());
    }

    /// Requests a rewrite of the table in memory, because `files` files are gone.
    fn rewrite(&mut self, files: usize) {
        tracing::error!("{files} files of the journal are missing, with registrations not yet in the database");
        self.rewriting = Some(self.journal.status().current.saturating_sub(1));
        let why =
            format!("{files} files of the journal are missing: all registrations are being rewritten to the database");
        let remedy =
            "if this persists, find out why there is no checkpoint; do not remove files of the journal".to_owned();
        self.shared.still_broken(StoreFailure { why, remedy });
        self.shared.request_rewrite();
    }

    fn rewritten(&mut self, through: u64) {
        // An older table lacks some of what the lost files contained.
        if self.rewriting.is_none_or(|wanted| through < wanted) {
            return;
        }
        self.rewriting = None;
        if self.is_broken && self.journal.fault().is_none() {
            self.try_again();
        }
    }

    /// Returns whether the journal would soon be full again.
    fn has_no_room(&self) -> bool {
        let limit = self.shared.limits.journal_bytes;
        self.journal.status().bytes > limit - limit / 4
    }

    fn warn_if_slow(&mut self, now: Timestamp, took: Duration) {
        let was_warned = self.warned_at.is_some_and(|at| now.saturating_since(at) < WARN_AGAIN);
        if took >= SLOW && !was_warned {
            self.warned_at = Some(now);
            let ms = took.as_millis();
            tracing::warn!("the journal's disk took {ms} ms for one commit: check its load and its health");
        }
    }

    fn warn_of_length(&mut self, bytes: usize) {
        let now = self.clock.now();
        let was_warned = self.too_long_at.is_some_and(|at| now.saturating_since(at) < WARN_AGAIN);
        if !was_warned {
            self.too_long_at = Some(now);
            tracing::error!(
                "the contacts of one address have {bytes} bytes, more than the journal's limit of {MAX_RECORD}, and are not in the journal; \
                 permit fewer contacts per address"
            );
        }
    }

    fn publish(&self) {
        self.shared.publish(self.journal.status(), self.journal.closed());
    }
}

/// Adds a record to the group, committing a full group first.
fn push<D: Disk>(journal: &mut Journal<D>, record: &[u8], clock: &StoreClock) -> Result<(), CommitError> {
    match journal.push(record) {
        Err(PushError::GroupFull) => {
            journal.commit(clock.stamp())?;
            // An empty group has room for any valid record.
            let _ = journal.push(record);
            Ok(())
        }
        // Records that are too long are rejected earlier.
        Ok(()) | Err(PushError::TooLong) => Ok(()),
    }
}
