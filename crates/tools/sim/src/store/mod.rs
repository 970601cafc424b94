//! Store of a world: the work of the real store's threads, in virtual time, with the real journal on a simulated
//! disk.

mod clock;
mod medium;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use strowger_foundation::Timestamp;
use strowger_journal::simulated::{Crash, Failure, SimDisk};
use strowger_journal::{CommitError, Journal, JournalContents, Operation, Segment, Settings, Stamp};
use strowger_registrar::record::{self, Record};

use crate::mutant::Bug;
use crate::rng::Rng;
use crate::server::PendingRecord;
use clock::Clocks;
use medium::SimulatedDisk;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// Time after its expiry at which a row may be removed, in ms.
const PURGED_AFTER_MS: u64 = 120_000;

/// Failure of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFailure {
    /// The disk is full.
    Full,
    /// Writes fail, possibly after a part was written.
    Write,
    /// One sync fails, and unsynced data is lost.
    SyncOnce,
    /// Every sync fails.
    Sync,
    /// Nothing can be written or created.
    ReadOnly,
}

/// How a process ends, and the state that the next one finds.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnd {
    /// Whether power fails; otherwise the process is killed.
    pub power: bool,
    /// Whether the machine reboots; a power failure implies it.
    pub reboot: bool,
    /// Step of the wall clock meanwhile, in ms.
    pub wall_jump_ms: i64,
    /// Downtime.
    pub down: Duration,
}

/// Stand-in for the database: always consistent and durable.
#[derive(Clone, Debug, Default)]
struct Checkpoint {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Number of the last segment that it contains.
    number: Option<u64>,
    stamp: Option<Stamp>,
}

/// State that a process finds at its start.
#[derive(Debug)]
pub struct RecoveredState {
    /// Store time at the start, in ns.
    pub store_ns: u64,
    /// Store time if the previous process had continued, in ns.
    pub expected_ns: u64,
    /// Allowed range of the difference: steps of the wall clock, if no other clock spans a reboot.
    pub allowed_ns: (i128, i128),
    /// Whether the store was empty.
    pub is_new: bool,
    /// Records to restore, one state per address.
    pub records: VecDeque<Vec<u8>>,
    /// Records in the journal, in order.
    pub found: Vec<Vec<u8>>,
}

/// Simulated store.
#[derive(Debug)]
pub struct Store {
    bug: Option<Bug>,
    rng: Rng,
    medium: SimulatedDisk,
    settings: Settings,
    journal: Option<Journal<SimulatedDisk>>,
    checkpoint: Checkpoint,
    /// Checkpoint in progress.
    next: Option<Checkpoint>,
    clocks: Clocks,
    waiting: VecDeque<PendingRecord>,
    /// Group being committed.
    group: Option<Vec<PendingRecord>>,
    /// Share of commits that take seconds, in ‰.
    slow_per_mille: u64,
    /// Remaining process ends during a commit.
    fatal_left: u64,
    /// Whether the last commit was rejected for lack of space.
    wants_checkpoint: bool,
    /// Statistics.
    pub done: StoreStats,
}

/// State of a store besides the disk that outlives the process.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    settings: Settings,
    checkpoint: Checkpoint,
    clocks: Clocks,
}

/// Statistics of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    /// Committed groups.
    pub groups: u64,
    /// Rejected groups.
    pub refused: u64,
    /// Recoveries from a fault.
    pub recovered: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Torn tails that were cut at a start.
    pub torn: u64,
    /// Records read at starts.
    pub restored: u64,
}

impl Store {
    /// Creates an empty store.
    #[must_use]
    pub fn new(mut rng: Rng, slow_per_mille: u64, bug: Option<Bug>) -> Self {
        let mut settings = Settings::new([0x57; 16]);
        settings.segment_bytes = *rng.pick(&[600, 2000, 8000, 1 << 20]);
        settings.max_bytes = *rng.pick(&[12_000, 1 << 30, 1 << 30]);
        Self {
            bug,
            medium: SimulatedDisk { disk: SimDisk::new(), bug },
            settings,
            journal: None,
            checkpoint: Checkpoint::default(),
            next: None,
            clocks: Clocks::new(),
            waiting: VecDeque::new(),
            group: None,
            slow_per_mille,
            fatal_left: 4,
            wants_checkpoint: false,
            done: StoreStats::default(),
            rng,
        }
    }

    /// Creates the store as it is after a process has ended, with `disk` as the remaining disk.
    pub(crate) fn from_image(image: Image, disk: SimDisk, bug: Option<Bug>) -> Self {
        let mut store = Self::new(Rng::new(0), 0, bug);
        store.medium.disk = disk;
        Image { settings: store.settings, checkpoint: store.checkpoint, clocks: store.clocks } = image;
        store
    }

    /// Returns the state that outlives the process now. `checkpointed` includes the checkpoint in progress.
    pub(crate) fn image(&self, checkpointed: bool) -> Image {
        let next = self.next.as_ref().filter(|_| checkpointed);
        let checkpoint = next.unwrap_or(&self.checkpoint).clone();
        Image { settings: self.settings.clone(), checkpoint, clocks: self.clocks.clone() }
    }

    /// Returns the disk.
    pub(crate) const fn disk(&self) -> &SimDisk {
        &self.medium.disk
    }

    /// Sets the size of a segment; the last group may exceed it.
    pub(crate) const fn set_segment_bytes(&mut self, bytes: u64) {
        self.settings.segment_bytes = bytes;
        self.settings.max_bytes = 1 << 30;
    }

    /// Reboots the machine, possibly with another wall clock time.
    pub(crate) fn reboot(&mut self, now: Timestamp) {
        self.clocks.reboot(now);
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The journal cannot be read, or is not as it was left.
    pub fn open(&mut self, now: Timestamp) -> Result<RecoveredState, String> {
        let expected_ns = self.clocks.store_ns(now);
        let (bug, clocks, in_checkpoint) = (self.bug, &mut self.clocks, self.checkpoint.stamp);
        let (mut store_ns, mut is_new) = (0, true);
        let allowed_ns = clocks.allowed_ns();
        let medium = self.medium.clone();
        let opened = Journal::open(medium, self.settings.clone(), self.checkpoint.number, |in_journal| {
            let last = in_journal.into_iter().chain(in_checkpoint).max_by_key(|stamp| stamp.store_ms);
            is_new = last.is_none();
            store_ns = clocks.begin(now, last, bug);
            clocks.stamp(now)
        });
        let (journal, opened) = opened.map_err(|why| format!("the journal does not open: {why}"))?;
        if let Some(damage) = opened.damage.iter().find(|damage| damage.is_loss()) {
            return Err(format!("something is lost: {damage}"));
        }
        self.done.torn += u64::try_from(opened.damage.len()).unwrap_or(0);
        let found = Self::read(&journal, &opened)?;
        let records = self.merged(&found);
        self.done.restored += u64::try_from(records.len()).unwrap_or(0);
        if journal.fault().is_none() {
            self.clocks.sync();
        }
        self.journal = Some(journal);
        Ok(RecoveredState { store_ns, expected_ns, allowed_ns, is_new, records, found })
    }

    fn read(journal: &Journal<SimulatedDisk>, opened: &JournalContents) -> Result<Vec<Vec<u8>>, String> {
        let (mut found, mut reader) = (Vec::new(), journal.reader());
        for segment in &opened.segments {
            let read = reader.read(*segment, |record| found.push(record.to_vec()));
            read.map_err(|why| format!("a segment that was verified cannot be read: {why}"))?;
        }
        match found.iter().find(|record| Record::parse(record).is_err()) {
            Some(record) => Err(format!("what was kept is no record: {}", record.escape_ascii())),
            None => Ok(found),
        }
    }

    /// Merges each address's row with its later records into one state.
    fn merged(&self, found: &[Vec<u8>]) -> VecDeque<Vec<u8>> {
        let mut all = self.checkpoint.clone();
        found.iter().for_each(|record| all.merge(record, false));
        all.rows.into_values().collect()
    }

    /// Ends the process.
    pub fn end(&mut self, now: Timestamp, end: ProcessEnd) {
        // Power may fail during a commit.
        if let (Some(group), true) = (self.group.take(), self.rng.chance(900)) {
            let operations = *self.rng.pick(&[0, 1, 1, 1, 2]);
            self.medium.disk.stop_at(self.medium.disk.operations() + operations);
            let stamp = self.clocks.stamp(now);
            if let Some(journal) = &mut self.journal {
                let _ = group.iter().try_for_each(|kept| journal.push(&kept.record));
                let _ = journal.commit(stamp);
            }
        }
        let disk = &self.medium.disk;
        self.medium.disk = if end.power { disk.crash(Crash::Random(self.rng.next_u64())) } else { disk.restarted() };
        if end.power || end.reboot {
            self.clocks.reboot(now);
        }
        self.clocks.set_wall(end.wall_jump_ms);
        (self.journal, self.next) = (None, None);
        self.waiting.clear();
        self.wants_checkpoint = false;
    }

    /// Queues records.
    pub fn add(&mut self, records: impl IntoIterator<Item = PendingRecord>) {
        self.waiting.extend(records);
    }

    /// Starts to commit all queued records, unless a commit is in progress, and returns its duration.
    pub fn begin(&mut self) -> Option<Duration> {
        if self.group.is_some() || self.waiting.is_empty() || self.journal.is_none() {
            return None;
        }
        self.group = Some(self.waiting.drain(..).collect());
        if self.journal.as_ref().is_some_and(|journal| journal.fault().is_some()) {
            return Some(Duration::from_micros(self.rng.between(10, 200)));
        }
        let slow = self.rng.chance(self.slow_per_mille);
        let (from, to) = if slow { (1_000_000, 8_000_000) } else { (200, 30_000) };
        Some(Duration::from_micros(self.rng.between(from, to)))
    }

    /// Ends the commit and returns its records and whether they are stored. Records without a ticket are retried
    /// later.
    pub fn finish(&mut self, now: Timestamp) -> (Vec<PendingRecord>, bool) {
        let (group, stamp) = (self.group.take().unwrap_or_default(), self.clocks.stamp(now));
        let Some(journal) = &mut self.journal else { return (Vec::new(), false) };
        for kept in &group {
            let removes = Record::parse(&kept.record).is_ok_and(|record| record.is_removal());
            if !(removes && self.bug == Some(Bug::ForgetsRemovals)) {
                // A small world never fills a group.
                let _ = journal.push(&kept.record);
            }
        }
        let result = journal.commit(stamp);
        if result.is_ok() {
            self.done.groups += 1;
            return (group, true);
        }
        self.done.refused += 1;
        self.wants_checkpoint |= matches!(result, Err(CommitError::Full { .. }));
        let (told, again): (Vec<_>, Vec<_>) = group.into_iter().partition(|kept| kept.ticket.is_some());
        again.into_iter().rev().for_each(|kept| self.waiting.push_front(kept));
        (told, false)
    }

    /// Returns whether there was a fault or lack of space that needs recovery.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.wants_checkpoint || self.has_fault()
    }

    /// Returns whether the disk has failed and nothing was written since.
    #[must_use]
    pub fn has_fault(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.fault().is_some())
    }

    /// Tries to recover the disk; returns `false` if it still fails.
    ///
    /// # Errors
    /// Segments are missing that were not removed.
    pub fn recover(&mut self, now: Timestamp) -> Result<bool, String> {
        let stamp = self.clocks.stamp(now);
        let Some(journal) = &mut self.journal else { return Ok(false) };
        let was_failing = journal.fault().is_some();
        match journal.recover(stamp) {
            Ok(recovered) if recovered.lost.is_empty() => {
                self.done.recovered += u64::from(was_failing);
                Ok(true)
            }
            Ok(recovered) => Err(format!("segments are gone: {:?}", recovered.lost)),
            Err(_) => Ok(false),
        }
    }

    /// Makes the disk fail.
    pub fn fail(&mut self, failing: DiskFailure) {
        let disk = &self.medium.disk;
        let always = |on| disk.fail(Failure::always(on, EIO));
        match failing {
            DiskFailure::Full => {
                let used: usize = disk.names().iter().filter_map(|name| disk.contents(name)).map(|one| one.len()).sum();
                let room = self.rng.between(0, 400);
                disk.set_capacity(Some(u64::try_from(used).unwrap_or(0) + room));
            }
            DiskFailure::Write => {
                let short = usize::try_from(self.rng.between(0, 300)).unwrap_or(0);
                let errno = *self.rng.pick(&[EIO, ENOSPC]);
                disk.fail(Failure { short, ..Failure::always(Operation::Append, errno) });
            }
            DiskFailure::SyncOnce => disk.fail(Failure { lose: true, ..Failure::once(Operation::Sync, EIO) }),
            DiskFailure::Sync => {
                disk.fail(Failure { lose: true, ..Failure::always(Operation::Sync, EIO) });
                always(Operation::SyncFolder);
            }
            DiskFailure::ReadOnly => {
                use Operation::{Append, Create, Remove, Rename, Sync, SyncFolder, Truncate};
                for on in [Append, Create, Remove, Rename, Sync, SyncFolder, Truncate] {
                    disk.fail(Failure::always(on, EROFS));
                }
            }
        }
    }

    /// Ends the failure of the disk.
    pub fn heal(&mut self) {
        self.medium.disk.heal();
        self.medium.disk.set_capacity(None);
    }

    /// Starts a checkpoint of what was committed, and returns the time until it is durable.
    ///
    /// Returns `None` if there is nothing to do, or if a checkpoint is in progress.
    ///
    /// # Errors
    /// What was committed cannot be read.
    pub fn begin_checkpoint(&mut self, now: Timestamp) -> Result<Option<Duration>, String> {
        let stamp = self.clocks.stamp(now);
        let Some(journal) = self.journal.as_mut().filter(|_| self.next.is_none()) else { return Ok(None) };
        // Closed segments can be included even after a fault.
        let _ = journal.rotate(stamp);
        let mut next = self.checkpoint.clone();
        let (mut reader, closed) = (journal.reader(), journal.closed().to_vec());
        let is_new = |segment: &Segment| next.number.is_none_or(|number| number < segment.number);
        let taken: Vec<Segment> = closed.into_iter().filter(is_new).collect();
        let Some(last) = taken.last().map(|segment| segment.number) else { return Ok(None) };
        let drops_others = self.bug == Some(Bug::DropsOthers);
        for segment in taken {
            let read = reader.read(segment, |record| next.merge(record, drops_others));
            read.map_err(|why| format!("a closed segment cannot be read: {why}"))?;
        }
        (next.number, next.stamp) = (Some(last), Some(stamp));
        // A record that refreshes the row may still be in transit.
        let past_ms = stamp.store_ms.saturating_sub(PURGED_AFTER_MS);
        next.rows.retain(|_, row| Record::parse(row).is_ok_and(|record| record.expires_ms() > past_ms));
        if self.bug == Some(Bug::RemovesSegmentsEarly) {
            let _ = journal.remove_through(last);
        }
        self.next = Some(next);
        Ok(Some(Duration::from_millis(self.rng.between(1, 2000))))
    }

    /// Completes the checkpoint.
    pub fn end_checkpoint(&mut self) {
        let (Some(next), Some(journal)) = (self.next.take(), &mut self.journal) else { return };
        let number = next.number.unwrap_or(0);
        self.checkpoint = next;
        self.wants_checkpoint = false;
        self.done.checkpoints += 1;
        // A failed removal is retried with the next checkpoint.
        let _ = journal.remove_through(number);
    }

    /// Draws whether the process ends during a commit, with a probability of `fatal_per_mille` ‰, and how.
    pub fn draw_process_end(&mut self, fatal_per_mille: u64) -> Option<ProcessEnd> {
        if self.fatal_left == 0 || !self.rng.chance(fatal_per_mille) {
            return None;
        }
        self.fatal_left -= 1;
        let (power, down) = (self.rng.chance(750), self.pause(Duration::from_secs(5)));
        Some(ProcessEnd { power, reboot: false, wall_jump_ms: 0, down: down + Duration::from_millis(1) })
    }

    /// Steps the wall clock.
    pub const fn set_wall_clock(&mut self, jump_ms: i64) {
        self.clocks.set_wall(jump_ms);
    }

    /// Draws a duration of at most `most`.
    pub fn pause(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.rng.between(0, most))
    }

    /// Returns whether a commit was rejected for lack of space.
    #[must_use]
    pub const fn wants_checkpoint(&self) -> bool {
        self.wants_checkpoint
    }
}

impl Checkpoint {
    fn merge(&mut self, newer: &[u8], drops_others: bool) {
        let Ok(record) = Record::parse(newer) else { return };
        let (aor, mut row) = (record.aor().to_vec(), Vec::new());
        let base = self.rows.get(&aor).map(Vec::as_slice).filter(|_| !(drops_others && record.is_refresh()));
        if record::merge(base, newer, &mut row) {
            self.rows.insert(aor, row);
        } else {
            self.rows.remove(&aor);
        }
    }
}

impl StoreStats {
    /// Adds another store's statistics.
    pub const fn add(&mut self, other: &Self) {
        self.groups += other.groups;
        self.refused += other.refused;
        self.recovered += other.recovered;
        self.checkpoints += other.checkpoints;
        self.torn += other.torn;
        self.restored += other.restored;
    }
}
