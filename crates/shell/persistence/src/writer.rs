//! The store thread: what waits becomes one group, one sync, one answer.

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

/// Bytes at which a group is committed although more waits, so that nobody waits for much more than one sync.
const GROUP_TARGET: usize = MAX_GROUP / 2;
/// A commit that takes so long is worth a line in the log.
const SLOW: Duration = Duration::from_secs(1);
/// What goes on is logged so often.
const WARN_AGAIN: Duration = Duration::from_secs(60);

/// Owns the journal. All its waiting is in the queue and the disk; [`step`](Self::step) is what it does.
pub(crate) struct Writer<D: Disk, B> {
    journal: Journal<D>,
    shared: Arc<Shared<B>>,
    clock: StoreClock,
    is_broken: bool,
    /// Broken for want of a checkpoint only.
    is_full: bool,
    /// Files of the journal were lost: until the database has the whole table, with all that is in segments through this one, a
    /// record that only makes sense with one of theirs must not be promised.
    rewriting: Option<u64>,
    /// Records that were lost when everything was last wished to be written anew.
    lost: u64,
    try_at: Timestamp,
    /// The batches whose records are in the group, or in one that was committed for them.
    group: Vec<QueuedBatch<B>>,
    group_bytes: usize,
    /// What could not be written in this step.
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

    /// Works until it is told to end.
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

    /// Writes what there is and answers for it; `false` when it was told to end.
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

    /// What nobody waits for and found no room is in the table in memory all the same.
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
                // A batch has one answer. What of it nobody waits for is written all the same.
                self.warn_of_length(arrived.longest);
                self.refuse(arrived);
            } else if is_late && arrived.awaited > 0 {
                // Who waited has given up: what is written for nobody only makes the others wait.
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

    /// Puts all of a batch into the group; one that is greater than a group into several. `false` where that broke.
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

    /// Of a late batch, the records that nobody waits for.
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

    /// Writes states that nobody waits for.
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
        // With everything else they are written to the database, which has no such bound.
        let (mut lost, mut longest) = (0, 0);
        for record in unwritten.records().filter(|record| record.len() > MAX_RECORD) {
            (lost, longest) = (lost + 1, longest.max(record.len()));
        }
        if lost > 0 {
            self.shared.queue.count_lost(lost);
            self.warn_of_length(longest);
        }
    }

    /// One group, one sync, and the answers.
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

    /// After an error the group is lost, and all who wait for it hear so.
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

    /// What is in the checkpoint makes room, and is not missed by a recovery.
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
                StoreCommand::End => goes_on = false,
            }
        }
        goes_on
    }

    fn rotate(&mut self) -> Result<Rotation, String> {
        // With everything rewritten it is well, so that must be possible.
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
            tracing::warn!("a segment that is not needed any more stays until the next checkpoint: {fault}");
        }
        if self.is_broken && self.journal.fault().is_none() {
            // It was full.
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

    /// So many files are gone: has all that is in memory written to the database.
    fn rewrite(&mut self, files: usize) {
        tracing::error!("{files} files of the journal are gone, with registrations that were not in the database yet");
        self.rewriting = Some(self.journal.status().current.saturating_sub(1));
        let why = format!("{files} files of the journal are gone: all registrations are written to the database anew");
        let remedy = "if that lasts, see why there is no checkpoint; let nobody remove files of the journal".to_owned();
        self.shared.still_broken(StoreFailure { why, remedy });
        self.shared.request_rewrite();
    }

    fn rewritten(&mut self, through: u64) {
        // An older table has not all that the lost files had.
        if self.rewriting.is_none_or(|wanted| through < wanted) {
            return;
        }
        self.rewriting = None;
        if self.is_broken && self.journal.fault().is_none() {
            self.try_again();
        }
    }

    /// Whether it would soon be full again.
    fn has_no_room(&self) -> bool {
        let limit = self.shared.limits.journal_bytes;
        self.journal.status().bytes > limit - limit / 4
    }

    fn warn_if_slow(&mut self, now: Timestamp, took: Duration) {
        let was_warned = self.warned_at.is_some_and(|at| now.saturating_since(at) < WARN_AGAIN);
        if took >= SLOW && !was_warned {
            self.warned_at = Some(now);
            let ms = took.as_millis();
            tracing::warn!("the journal's disk took {ms} ms for one commit: look what else uses it, and at its health");
        }
    }

    fn warn_of_length(&mut self, bytes: usize) {
        let now = self.clock.now();
        let was_warned = self.too_long_at.is_some_and(|at| now.saturating_since(at) < WARN_AGAIN);
        if !was_warned {
            self.too_long_at = Some(now);
            tracing::error!(
                "the contacts of one address have {bytes} bytes, and the journal takes {MAX_RECORD}: it is not in the journal; \
                 permit fewer contacts an address"
            );
        }
    }

    fn publish(&self) {
        self.shared.publish(self.journal.status(), self.journal.closed());
    }
}

/// Puts a record into the group, which is committed before where it is full.
fn push<D: Disk>(journal: &mut Journal<D>, record: &[u8], clock: &StoreClock) -> Result<(), CommitError> {
    match journal.push(record) {
        Err(PushError::GroupFull) => {
            journal.commit(clock.stamp())?;
            // Into an empty group a record of any permitted length goes.
            let _ = journal.push(record);
            Ok(())
        }
        // Those that are too long are held back before.
        Ok(()) | Err(PushError::TooLong) => Ok(()),
    }
}
