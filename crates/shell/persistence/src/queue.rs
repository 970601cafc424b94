//! Queue between the workers and the store thread.

use std::collections::VecDeque;
use std::mem;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_registrar::Record;

use crate::backlog::{AddResult, Backlog};
use crate::batch::{Batch, QueuedBatch};
use crate::group_commit::{ENOUGH, GroupCommit};
use crate::{Limits, Mode};

/// Maximum number of addresses merged while the workers wait.
const FEW: usize = 64;
/// How long an overflow is shown after the last refused record.
pub(crate) const OVERFLOW_SHOWN: Duration = Duration::from_secs(2);

/// Commands to the store thread, other than batches.
#[derive(Debug)]
pub(crate) enum StoreCommand {
    /// Close the segment after everything waiting has been written.
    Rotate(Sender<Result<Rotation, String>>),
    /// The checkpoint contains all segments up to this one.
    RemoveThrough(u64),
    /// The database contains the whole table as of the closing of this segment.
    Rewritten(u64),
    /// Write what is waiting now.
    Commit,
    /// Write what is waiting and stop.
    End,
}

/// Result of closing a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Everything written so far is in segments up to this one.
    pub(crate) through: u64,
    /// Store time in ms before which everything staged has been written; 0 if unknown.
    pub(crate) floor_ms: u64,
}

/// Work for the store thread, oldest first: `batches`, then `unwritten`, then `commands`.
#[derive(Debug)]
pub(crate) struct Work<B> {
    pub(crate) batches: Vec<QueuedBatch<B>>,
    pub(crate) unwritten: Option<Backlog>,
    pub(crate) commands: VecDeque<StoreCommand>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) waiting: u64,
    pub(crate) unwritten: u64,
    pub(crate) refused: u64,
    pub(crate) late: u64,
    pub(crate) lost: u64,
    /// First and last refusal of a record because too many were waiting.
    pub(crate) overflow_period: Option<(Timestamp, Timestamp)>,
}

/// Bounded queue of batches. Past the bound, and while the journal is broken, a batch is refused at once; of its
/// records without a waiting request, the latest state of each address is kept.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    state: Mutex<State<B>>,
    work: Condvar,
    mode: Mode,
    limits: Limits,
}

#[derive(Debug)]
struct State<B> {
    batches: Vec<QueuedBatch<B>>,
    records: usize,
    bytes: usize,
    grouping: GroupCommit,
    /// Whether the store thread is in a short wait from which a record must not wake it.
    is_dozing: bool,
    /// Newer than all of `batches`; no batch is accepted while there are any.
    unwritten: Backlog,
    /// Number of further ones that are being merged.
    merging: usize,
    /// First and last refusal because too many were waiting.
    overflow_period: Option<(Timestamp, Timestamp)>,
    /// A batch holds a clone until its result has been handled.
    token: Arc<()>,
    commands: VecDeque<StoreCommand>,
    is_broken: bool,
    is_closed: bool,
    /// Removals received while the table is loading, since loading may restore what they removed.
    removals: Option<Backlog>,
    refused: u64,
    late: u64,
    lost: u64,
}

impl<B: Batch> Queue<B> {
    pub(crate) fn new(mode: Mode, limits: Limits, is_broken: bool) -> Self {
        let company = if mode == Mode::WriteThrough { limits.company } else { Duration::ZERO };
        let state = State {
            batches: Vec::new(),
            records: 0,
            bytes: 0,
            grouping: GroupCommit::new(company),
            is_dozing: false,
            unwritten: Backlog::new(limits.unwritten_addresses, limits.unwritten_bytes),
            merging: 0,
            overflow_period: None,
            token: Arc::new(()),
            commands: VecDeque::new(),
            is_broken,
            is_closed: false,
            removals: Some(Backlog::new(limits.unwritten_addresses, limits.unwritten_bytes)),
            refused: 0,
            late: 0,
            lost: 0,
        };
        Self { state: Mutex::new(state), work: Condvar::new(), mode, limits }
    }

    /// Accepts or refuses a batch; never waits for the disk.
    pub(crate) fn push(&self, batch: B, now: Timestamp) {
        let mut arrived = QueuedBatch::new(batch, now);
        let mut state = self.lock();
        arrived.batch.hold_token(Arc::clone(&state.token));
        state.note_removals(&arrived.batch);
        let is_over = state.records + arrived.records > self.limits.waiting_records
            || state.bytes.saturating_add(arrived.bytes) > self.limits.waiting_bytes;
        if state.is_broken || state.is_closed || is_over || !state.unwritten.is_empty() {
            if is_over && arrived.awaited > 0 {
                state.note_overflow(now);
            }
            let lost = state.refuse(&arrived);
            drop(state);
            self.work.notify_one();
            arrived.batch.acknowledge(false);
            if lost == 1 {
                tracing::error!(
                    "registrations arrive faster than the disk can store them, and the queue is full: some are lost"
                );
            }
            return;
        }
        let before = state.records;
        state.records += arrived.records;
        state.bytes += arrived.bytes;
        let is_news = match self.mode {
            Mode::WriteThrough if state.is_dozing => before < ENOUGH && state.records >= ENOUGH,
            Mode::WriteThrough => state.batches.is_empty(),
            Mode::WriteBehind => state.batches.is_empty() || state.bytes > self.limits.eager_bytes(),
        };
        state.batches.push(arrived);
        drop(state);
        if is_news {
            self.work.notify_one();
        }
    }

    pub(crate) fn send(&self, order: StoreCommand) {
        self.lock().commands.push_back(order);
        self.work.notify_one();
    }

    /// Waits for work, at most for `tick`; the result may be empty.
    pub(crate) fn wait(&self, tick: Duration, now: &dyn Fn() -> Timestamp) -> Work<B> {
        let begun = now();
        let mut state = self.lock();
        let ready = state.records;
        let (mut is_over, mut has_waited) = (false, false);
        loop {
            let at = now();
            let due = state.due(self.mode, &self.limits, at);
            if is_over || due == Some(Duration::ZERO) {
                state.begin_group(at, has_waited.then_some(ready));
                return state.take();
            }
            // Refused batches wake this thread too and must not postpone the tick indefinitely.
            let left = tick.saturating_sub(at.saturating_since(begun));
            let lull = if due.is_none() { state.grouping.idle_wait(at) } else { Duration::ZERO };
            let until = due.or((!lull.is_zero()).then_some(lull));
            state.is_dozing = self.mode == Mode::WriteThrough && until.is_some();
            let pause = until.map_or(left, |until| until.min(left));
            let is_tick = pause == left;
            let (next, timeout) = self.work.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
            state = next;
            has_waited = state.is_dozing && !state.batches.is_empty();
            state.is_dozing = false;
            is_over = is_tick && timeout.timed_out();
        }
    }

    /// Marks the queue as broken: nothing is accepted until [`mark_recovered`](Self::mark_recovered). Waiting batches
    /// are refused; `failed`, which is older, and their records without a waiting request are kept here.
    pub(crate) fn mark_broken(&self, mut failed: Backlog) {
        let mut state = self.lock();
        let refused = mem::take(&mut state.batches);
        state.refused += refused.iter().map(|arrived| arrived.awaited as u64).sum::<u64>();
        (state.records, state.bytes, state.is_broken) = (0, 0, true);
        let is_older = !failed.is_empty() || refused.iter().any(|arrived| arrived.awaited < arrived.records);
        // There may be very many, and no worker must wait for that. What arrives in the meantime is newer and handled
        // in `put_under`.
        let newer = is_older.then(|| state.put_aside());
        drop(state);
        let mut lost = 0;
        for arrived in refused {
            arrived.refuse(|record| lost += u64::from(failed.add(record) == AddResult::Full));
        }
        if let Some(newer) = newer {
            lost += self.put_under(failed, newer);
        }
        self.count_lost(lost);
    }

    /// Puts `older`, merged with `newer`, below what arrived since `newer` was set aside; returns the number of
    /// addresses without room.
    fn put_under(&self, mut older: Backlog, mut newer: Backlog) -> u64 {
        let mut lost = 0;
        loop {
            lost += older.merge_owned(newer);
            let mut state = self.lock();
            if state.unwritten.len() <= FEW {
                lost += older.merge_owned(state.unwritten.take());
                state.unwritten = older;
                state.merging = 0;
                return lost;
            }
            newer = state.put_aside();
        }
    }

    pub(crate) fn mark_recovered(&self) {
        self.lock().is_broken = false;
    }

    /// Returns a token that expires once all batches received so far have been acknowledged and the results handled.
    pub(crate) fn until_dealt_with(&self) -> Weak<()> {
        let old = mem::replace(&mut self.lock().token, Arc::new(()));
        Arc::downgrade(&old)
    }

    /// Refuses everything from this point.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    pub(crate) fn count_refused(&self, records: usize, is_late: bool) {
        let mut state = self.lock();
        state.refused += records as u64;
        state.late += if is_late { records as u64 } else { 0 };
    }

    /// Creates a backlog with this queue's limits.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog::new(self.limits.unwritten_addresses, self.limits.unwritten_bytes)
    }

    pub(crate) fn count_lost(&self, records: u64) {
        self.lock().lost += records;
    }

    /// Returns the removals received since the last call. Once there are none, returns `None` and stops collecting
    /// them.
    pub(crate) fn next_removals(&self) -> Option<Backlog> {
        let mut state = self.lock();
        match &mut state.removals {
            Some(removals) if !removals.is_empty() => Some(removals.take()),
            removals => {
                *removals = None;
                None
            }
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let state = self.lock();
        let State { records, merging, refused, late, lost, overflow_period: crowded, .. } = *state;
        let unwritten = (state.unwritten.len() + merging) as u64;
        Counters { waiting: records as u64, unwritten, refused, late, lost, overflow_period: crowded }
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Batch> State<B> {
    /// Returns the time until there is work; `None` if none is in sight.
    fn due(&self, mode: Mode, limits: &Limits, now: Timestamp) -> Option<Duration> {
        if !self.commands.is_empty() || !self.unwritten.is_empty() && !self.is_broken {
            return Some(Duration::ZERO);
        }
        let first = self.batches.first()?;
        Some(match mode {
            Mode::WriteThrough => self.grouping.pause(first.at, self.records, now),
            Mode::WriteBehind if self.bytes > limits.eager_bytes() => Duration::ZERO,
            // The other half is left for the commit itself.
            Mode::WriteBehind => (first.at + limits.behind / 2).saturating_since(now),
        })
    }

    /// Begins a group of all waiting records; if it waited for more, `ready` is the number of records before the
    /// wait.
    fn begin_group(&mut self, now: Timestamp, ready: Option<usize>) {
        let Some(first) = self.batches.first() else { return };
        let joined = ready.map(|ready| self.records.saturating_sub(ready.max(first.records)));
        self.grouping.begin(now, self.records, joined);
    }

    fn take(&mut self) -> Work<B> {
        self.records = 0;
        self.bytes = 0;
        let unwritten = (!self.is_broken && !self.unwritten.is_empty()).then(|| self.unwritten.take());
        Work { batches: mem::take(&mut self.batches), unwritten, commands: mem::take(&mut self.commands) }
    }

    /// Takes the contents of `unwritten`, to be put back later.
    fn put_aside(&mut self) -> Backlog {
        let unwritten = self.unwritten.take();
        self.merging += unwritten.len();
        unwritten
    }

    fn note_overflow(&mut self, now: Timestamp) {
        let last = self.overflow_period.filter(|(_, last)| now.saturating_since(*last) < OVERFLOW_SHOWN);
        self.overflow_period = Some((last.map_or(now, |(first, _)| first), now));
    }

    /// Refuses a batch; returns the total of lost records if it has increased, else 0.
    fn refuse(&mut self, arrived: &QueuedBatch<B>) -> u64 {
        self.refused += arrived.awaited as u64;
        let before = self.lost;
        if arrived.awaited < arrived.records {
            arrived.batch.for_each(&mut |record, is_awaited| {
                if !is_awaited && self.unwritten.add(record) == AddResult::Full {
                    self.lost += 1;
                }
            });
        }
        if self.lost > before { self.lost } else { 0 }
    }

    fn note_removals(&mut self, batch: &B) {
        let Some(removals) = &mut self.removals else { return };
        batch.for_each(&mut |record, _| {
            let is_removal = Record::parse(record).is_ok_and(|record| record.is_removal());
            if is_removal && removals.add(record) == AddResult::Full {
                self.lost += 1;
            }
        });
    }
}
