//! The journal: group commit, rotation and recovery.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, DiskFile as _, Operation};
use crate::error::{CommitError, Damage, DiskError, JournalError, PushError};
use crate::format::{self, GroupBuffer, HEADER, Header, MAX_RECORD};
use crate::inspect::{self, CheckpointPosition, FolderContents, TEMP_SUFFIX, Tail};
use crate::reader::{self, DAMAGED_SUFFIX, Reader, Segment, name_of};
use crate::stamp::Stamp;

mod recover;

use recover::{Gap, PendingCleanup};

/// Maximum length of a segment before the next group starts a new one; the last group may exceed it.
const MAX_SEGMENT: u64 = 256 << 20;

/// Settings of a journal.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Identifies the store that this journal belongs to: random bytes kept elsewhere. Segments of another store are
    /// not read.
    pub store_id: [u8; 16],
    /// Length at which a segment is closed before the next group; at most 256 MiB.
    pub segment_bytes: u64,
    /// Bytes of all segments above which groups are refused.
    pub max_bytes: u64,
}

impl Settings {
    /// Creates settings with segments of 32 MiB and 1 GiB in total.
    #[must_use]
    pub fn new(store_id: [u8; 16]) -> Self {
        Self { store_id, segment_bytes: 32 << 20, max_bytes: 1 << 30 }
    }
}

/// Contents of the journal when it was opened.
#[derive(Clone, Debug, Default)]
pub struct JournalContents {
    /// Latest stamp in the journal; the caller's checkpoint may have a later one.
    pub last_stamp: Option<Stamp>,
    /// Segments to replay with [`Reader::read`], in this order and before the first [`Journal::remove_through`]. The
    /// last one may be the segment being written, up to its length at this point.
    pub segments: Vec<Segment>,
    /// Damage found.
    pub damage: Vec<Damage>,
    /// Number of groups in `segments`.
    pub groups: u64,
    /// Number of records in `segments`.
    pub records: u64,
    /// Bytes in `segments`.
    pub bytes: u64,
}

/// Result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments whose files are gone because the folder was removed. Their contents must be written again.
    pub lost: Vec<u64>,
    /// Paths of files quarantined late, because opening the journal could not do it.
    pub quarantined_as: Vec<String>,
}

/// Status for the operator. Counts start when the journal is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Number of valid files, including the one being written, or written until a disk error.
    pub segments: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// Number of the segment being written; 0 if none.
    pub current: u64,
    /// Committed groups.
    pub groups: u64,
    /// Committed records.
    pub records: u64,
    /// Syncs of files and of the folder.
    pub syncs: u64,
    /// Disk errors.
    pub faults: u64,
    /// Groups refused because too much waits for the checkpoint.
    pub full: u64,
}

/// A journal that is open for writing.
#[derive(Debug)]
pub struct Journal<D: Disk> {
    disk: D,
    settings: Settings,
    writer: WriterState<D::File>,
    closed: Vec<Segment>,
    /// Segments in the checkpoint whose files could not be removed.
    unremoved: Vec<Segment>,
    /// Last segment contained in the checkpoint. Readers update it before they remove files.
    removed: Arc<AtomicU64>,
    /// Lost files that must be replaced by gap segments before the next segment begins.
    gaps: Vec<Gap>,
    /// Segments found to be lost and not yet reported.
    lost: Vec<u64>,
    /// Cleanup that opening could not do.
    pending_cleanup: PendingCleanup,
    group: GroupBuffer,
    next_segment: u64,
    next_group: u64,
    status: Status,
}

#[derive(Debug)]
enum WriterState<F> {
    Open(CurrentSegment<F>),
    Failed(DiskError, SegmentLink),
}

/// The segment being written.
#[derive(Debug)]
struct CurrentSegment<F> {
    file: F,
    number: u64,
    /// Durable length in bytes.
    len: u64,
    salt: u32,
    /// Its link to the previous segments.
    plan: SegmentLink,
}

/// Link of the next segment to those before it.
#[derive(Clone, Copy, Debug, Default)]
struct SegmentLink {
    previous: u64,
    previous_len: u64,
    first_group: u64,
    /// Groups of the old tail to copy to its start.
    carried: Option<CarriedGroups>,
    /// Segment that becomes invalid once this one is durable.
    superseded: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct CarriedGroups {
    segment: u64,
    from: u64,
    end: u64,
}

impl<D: Disk> Journal<D> {
    /// Opens the journal. Verifies every segment that is not in the caller's checkpoint, cuts off torn or damaged
    /// data, removes what is in the checkpoint, and begins a new segment. `now` receives the last stamp in the
    /// journal and returns the current one.
    ///
    /// If only writing fails, the journal opens with a [disk error](Self::fault): it can be replayed, and
    /// [recovered](Self::recover) later.
    ///
    /// # Errors
    /// When the folder cannot be read, or a newer version of the program wrote it. Nothing has been changed then.
    pub fn open(
        disk: D,
        mut settings: Settings,
        checkpointed: impl Into<CheckpointPosition>,
        now: impl FnOnce(Option<Stamp>) -> Stamp,
    ) -> Result<(Self, JournalContents), JournalError> {
        settings.segment_bytes = settings.segment_bytes.min(MAX_SEGMENT);
        let mut found = inspect::inspect(&disk, settings.store_id, checkpointed.into())?;
        for name in &found.removable {
            // Files that cannot be removed are found again at the next start.
            let _ = disk.remove(name);
        }
        for number in mem::take(&mut found.quarantined) {
            if !quarantine(&disk, number, &mut found.damage) {
                found.quarantined.push(number);
            }
        }
        let mut journal = Self::from_contents(disk, settings, &found);
        let mut opened = contents_of(&found);
        if journal.begin(now(found.last_stamp)).is_ok() {
            journal.clean_up(&found, &mut opened);
        } else {
            journal.pending_cleanup = PendingCleanup::new(&found);
        }
        opened.bytes = opened.segments.iter().map(|segment| segment.len).sum();
        Ok((journal, opened))
    }

    /// Creates the journal from the folder contents, without a segment to write to.
    fn from_contents(disk: D, settings: Settings, found: &FolderContents) -> Self {
        let none = SegmentLink { previous: found.base, first_group: 1, ..SegmentLink::default() };
        let plan = found.tail.as_ref().map_or(none, plan_behind);
        let fault = DiskError::new(&disk, Operation::Create, "", &std::io::ErrorKind::NotFound.into());
        Self {
            writer: WriterState::Failed(fault, plan),
            closed: found.closed.clone(),
            unremoved: found.retained.clone(),
            removed: Arc::new(AtomicU64::new(found.base)),
            gaps: Vec::new(),
            lost: Vec::new(),
            pending_cleanup: PendingCleanup::default(),
            group: GroupBuffer::new(),
            next_segment: found.highest.saturating_add(1),
            next_group: found.tail.map_or(1, |tail| tail.scan.next_group),
            status: Status::default(),
            disk,
            settings,
        }
    }

    /// Removes or quarantines files that a new, durable segment does not refer to.
    fn clean_up(&mut self, found: &FolderContents, opened: &mut JournalContents) {
        let WriterState::Open(current) = &self.writer else { return };
        opened.segments.clone_from(&self.closed);
        opened.segments.push(Segment { number: current.number, len: current.len });
        for &number in &found.orphans {
            let _ = reader::remove(&self.disk, &name_of(number));
        }
        if let Some(tail) = found.tail.filter(|tail| tail.damaged) {
            quarantine(&self.disk, tail.header.number, &mut opened.damage);
        } else if let Some(number) = current.plan.superseded {
            let _ = reader::remove(&self.disk, &name_of(number));
        }
    }

    /// Adds a record to the group without I/O.
    ///
    /// # Errors
    /// When the record is too long or the group is full.
    pub fn push(&mut self, record: &[u8]) -> Result<(), PushError> {
        if record.len() > MAX_RECORD {
            return Err(PushError::TooLong);
        }
        if !self.group.has_room_for(record) {
            return Err(PushError::GroupFull);
        }
        self.group.push(record);
        Ok(())
    }

    /// Returns the number of records in the group.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.group.records() as usize
    }

    /// Discards the group.
    pub fn discard(&mut self) {
        self.group.clear();
    }

    /// Writes and syncs the group; first begins a new segment if the current one is long enough. An empty group
    /// causes no I/O and no error.
    ///
    /// # Errors
    /// The group is discarded. After [`recover`](Self::recover) of this journal has succeeded, it cannot reappear.
    /// After a restart before that it may reappear, and is durable then.
    pub fn commit(&mut self, stamp: Stamp) -> Result<(), CommitError> {
        if self.group.records() == 0 {
            return Ok(());
        }
        let result = self.commit_group(stamp);
        self.group.clear();
        result
    }

    fn commit_group(&mut self, stamp: Stamp) -> Result<(), CommitError> {
        let bytes = self.bytes();
        if let WriterState::Failed(fault, _) = &self.writer {
            return Err(fault.clone().into());
        }
        if bytes.saturating_add(self.group.len() as u64) > self.settings.max_bytes {
            self.status.full += 1;
            return Err(CommitError::Full { bytes, limit: self.settings.max_bytes });
        }
        if matches!(&self.writer, WriterState::Open(current) if current.len >= self.settings.segment_bytes) {
            self.rotate(stamp)?;
        }
        let WriterState::Open(current) = &mut self.writer else { return Ok(()) };
        let records = self.group.records();
        let bytes = self.group.seal(current.salt, self.next_group, &stamp);
        let written = current.file.append(bytes).map_err(|cause| (Operation::Append, cause));
        let synced = written.and_then(|()| {
            self.status.syncs += 1;
            current.file.sync().map_err(|cause| (Operation::Sync, cause))
        });
        if let Err((operation, cause)) = synced {
            return Err(self.on_failed_write(operation, &cause).into());
        }
        current.len += bytes.len() as u64;
        self.next_group += 1;
        self.status.groups += 1;
        self.status.records += u64::from(records);
        Ok(())
    }

    /// Abandons the current file after a failed write, since the contents after the last acknowledged group are
    /// unknown.
    fn on_failed_write(&mut self, operation: Operation, cause: &std::io::Error) -> DiskError {
        let WriterState::Open(current) = &self.writer else {
            return DiskError::new(&self.disk, operation, "", cause);
        };
        let name = name_of(current.number);
        let fault = DiskError::new(&self.disk, operation, &name, cause);
        // The next header records the valid length durably; this helps if the server is restarted before there is
        // one.
        let _ = self.disk.truncate(&name, current.len);
        let plan = current.next_plan(self.next_group);
        self.refuse(fault, plan)
    }

    fn refuse(&mut self, fault: DiskError, plan: SegmentLink) -> DiskError {
        self.status.faults += 1;
        self.writer = WriterState::Failed(fault.clone(), plan);
        fault
    }

    /// Closes the segment, so that a checkpoint can take everything committed, and begins the next one. A segment
    /// without a group stays open. Returns the number of the last closed segment.
    ///
    /// # Errors
    /// When there is a disk error, from before or new.
    pub fn rotate(&mut self, stamp: Stamp) -> Result<u64, DiskError> {
        match &self.writer {
            WriterState::Failed(fault, _) => return Err(fault.clone()),
            WriterState::Open(current) if current.len == HEADER as u64 => return Ok(current.number - 1),
            WriterState::Open(current) => {
                let plan = current.next_plan(self.next_group);
                // Until the next segment exists, the journal is in the state of a disk error.
                let nothing = DiskError::new(&self.disk, Operation::Create, "", &std::io::ErrorKind::NotFound.into());
                self.writer = WriterState::Failed(nothing, plan);
            }
        }
        self.begin(stamp)
    }

    /// Creates the next segment. It is durable, with all groups carried over, before it gets its name.
    fn begin(&mut self, stamp: Stamp) -> Result<u64, DiskError> {
        let WriterState::Failed(_, plan) = &self.writer else { return Ok(0) };
        let plan = *plan;
        let number = self.next_segment;
        self.next_segment = self.next_segment.saturating_add(1);
        match self.make(number, &plan, stamp) {
            Ok(current) => {
                let newest = self.closed.last().map_or(self.removed(), |last| last.number);
                if plan.previous > newest {
                    self.closed.push(Segment { number: plan.previous, len: plan.previous_len });
                }
                if let (Some(number), None) = (plan.superseded, plan.carried)
                    && !self.pending_cleanup.is_replayed_from(number)
                {
                    let _ = self.disk.remove(&name_of(number));
                }
                self.writer = WriterState::Open(current);
                Ok(number - 1)
            }
            Err(fault) => {
                let name = name_of(number);
                let _ = self.disk.remove(&format!("{name}{TEMP_SUFFIX}"));
                let _ = self.disk.remove(&name);
                Err(self.refuse(fault, plan))
            }
        }
    }

    fn make(&mut self, number: u64, plan: &SegmentLink, stamp: Stamp) -> Result<CurrentSegment<D::File>, DiskError> {
        let SegmentLink { previous, previous_len, first_group, .. } = *plan;
        let store_id = self.settings.store_id;
        let header = Header { number, store_id, previous, previous_len, first_group, stamp, is_gap: false };
        let mut bytes = Vec::with_capacity(HEADER);
        let salt = header.write(&mut bytes);
        if let Some(carried) = plan.carried {
            self.carry(carried, salt, stamp, &mut bytes)?;
        }
        let file = self.make_file(number, &bytes)?;
        Ok(CurrentSegment { file, number, len: bytes.len() as u64, salt, plan: *plan })
    }

    /// Creates a file that is complete and durable before it gets its name.
    fn make_file(&mut self, number: u64, bytes: &[u8]) -> Result<D::File, DiskError> {
        let name = name_of(number);
        let unfinished = format!("{name}{TEMP_SUFFIX}");
        let disk = &self.disk;
        let fault = |operation, name: &str| {
            let name = name.to_owned();
            move |cause: std::io::Error| DiskError::new(disk, operation, &name, &cause)
        };
        let mut file = disk.create(&unfinished).map_err(fault(Operation::Create, &unfinished))?;
        file.append(bytes).map_err(fault(Operation::Append, &unfinished))?;
        file.sync().map_err(fault(Operation::Sync, &unfinished))?;
        disk.rename(&unfinished, &name).map_err(fault(Operation::Rename, &unfinished))?;
        disk.sync_folder().map_err(fault(Operation::SyncFolder, ""))?;
        self.status.syncs += 2;
        Ok(file)
    }

    /// Copies groups of the old tail into the new segment.
    fn carry(&self, carried: CarriedGroups, salt: u32, stamp: Stamp, out: &mut Vec<u8>) -> Result<(), DiskError> {
        let name = name_of(carried.segment);
        let unreadable = |cause: std::io::Error| DiskError::new(&self.disk, Operation::Read, &name, &cause);
        let mut old = Vec::new();
        self.disk.read(&name, carried.end, &mut old).map_err(unreadable)?;
        let changed = || unreadable(std::io::Error::other("it has changed since it was verified"));
        let (_, old_salt) = Header::parse(&old).map_err(|_| changed())?;
        let mut gathered = GroupBuffer::new();
        let mut at = carried.from;
        for group in format::groups(&old, old_salt, carried.from, carried.end) {
            group.iter().for_each(|record| gathered.push(record));
            out.extend_from_slice(gathered.seal(salt, group.number, &stamp));
            gathered.clear();
            at += group.len() as u64;
        }
        if at == carried.end { Ok(()) } else { Err(changed()) }
    }

    /// Removes segments that are in a durable checkpoint: those up to `number`, but never the one being written. A
    /// file that cannot be removed is retried at the next call.
    ///
    /// # Errors
    /// When a file cannot be removed. The journal continues.
    pub fn remove_through(&mut self, number: u64) -> Result<(), DiskError> {
        let count = self.closed.iter().take_while(|segment| segment.number <= number).count();
        self.unremoved.extend(self.closed.drain(..count));
        let newest = self.unremoved.iter().map(|segment| segment.number).max().unwrap_or(0);
        self.removed.fetch_max(newest, Ordering::SeqCst);
        self.remove_superseded();
        let mut result = Ok(());
        let disk = &self.disk;
        self.unremoved.retain(|segment| match reader::remove(disk, &name_of(segment.number)) {
            Ok(()) => false,
            Err(fault) => {
                result = Err(fault);
                true
            }
        });
        result
    }

    /// Returns the segments that a checkpoint may take, oldest first.
    #[must_use]
    pub fn closed(&self) -> &[Segment] {
        &self.closed
    }

    /// Returns the disk error because of which commits fail, if any.
    #[must_use]
    pub fn fault(&self) -> Option<&DiskError> {
        match &self.writer {
            WriterState::Failed(fault, _) => Some(fault),
            WriterState::Open(_) => None,
        }
    }

    /// Returns a reader for segments, usable on another thread.
    #[must_use]
    pub fn reader(&self) -> Reader<D> {
        Reader::new(self.disk.clone(), self.settings.store_id, Arc::clone(&self.removed))
    }

    /// Returns the status for the operator.
    #[must_use]
    pub fn status(&self) -> Status {
        let current = match &self.writer {
            WriterState::Open(current) => current.number,
            WriterState::Failed(..) => 0,
        };
        let segments = self.closed.len() + self.unremoved.len() + usize::from(self.tail().is_some());
        Status { segments: segments as u64, bytes: self.bytes(), current, ..self.status }
    }

    fn removed(&self) -> u64 {
        self.removed.load(Ordering::SeqCst)
    }

    fn bytes(&self) -> u64 {
        let tail = self.tail();
        self.closed.iter().chain(&self.unremoved).chain(&tail).map(|segment| segment.len).sum()
    }

    /// Returns the file being written; after a disk error, the one that was being written, which is closed when the
    /// next one begins.
    fn tail(&self) -> Option<Segment> {
        match &self.writer {
            WriterState::Open(current) => Some(Segment { number: current.number, len: current.len }),
            WriterState::Failed(_, plan) => {
                let newest = self.closed.last().map_or(self.removed(), |last| last.number);
                let carried = plan.carried.map(|carried| Segment { number: carried.segment, len: carried.end });
                let previous = Segment { number: plan.previous, len: plan.previous_len };
                let empty = plan.superseded.map(|number| Segment { number, len: HEADER as u64 });
                carried.or(empty).or((previous.number > newest).then_some(previous))
            }
        }
    }
}

impl<F> CurrentSegment<F> {
    /// Returns the link of the segment after this one. A segment without groups is skipped, so that repeated failures
    /// leave no empty segments behind.
    fn next_plan(&self, next_group: u64) -> SegmentLink {
        if self.len > HEADER as u64 {
            return SegmentLink {
                previous: self.number,
                previous_len: self.len,
                first_group: next_group,
                ..SegmentLink::default()
            };
        }
        SegmentLink { carried: None, superseded: Some(self.number), ..self.plan }
    }
}

/// Returns the link of a segment after `tail`. The last group of the tail is carried over; all others are durable,
/// because a group is begun only when the previous one is. Of a damaged file, all groups are carried over.
fn plan_behind(tail: &Tail) -> SegmentLink {
    let Tail { header, scan, damaged } = tail;
    let from = if *damaged { HEADER as u64 } else { scan.last };
    let carried = (from < scan.end).then_some(CarriedGroups { segment: header.number, from, end: scan.end });
    if header.is_gap {
        let (previous, first_group) = (header.number, scan.next_group);
        return SegmentLink { previous, previous_len: scan.end, first_group, ..SegmentLink::default() };
    }
    if from == HEADER as u64 {
        let Header { previous, previous_len, first_group, .. } = *header;
        let superseded = (!damaged).then_some(header.number);
        return SegmentLink { previous, previous_len, first_group, carried, superseded };
    }
    let first_group = scan.next_group.saturating_sub(1);
    SegmentLink { previous: header.number, previous_len: from, first_group, carried, superseded: None }
}

/// Returns the contents as found, for when nothing can be written.
fn contents_of(found: &FolderContents) -> JournalContents {
    let tail = found.tail.map(|tail| Segment { number: tail.header.number, len: tail.scan.end });
    JournalContents {
        last_stamp: found.last_stamp,
        segments: found.closed.iter().copied().chain(tail).collect(),
        damage: found.damage.clone(),
        groups: found.groups,
        records: found.records,
        bytes: 0,
    }
}

/// Quarantines a file for inspection; returns whether that succeeded.
fn quarantine(disk: &impl Disk, number: u64, damage: &mut [Damage]) -> bool {
    let name = name_of(number);
    let aside = format!("{name}{DAMAGED_SUFFIX}");
    if disk.rename(&name, &aside).is_err() {
        return false;
    }
    for damage in damage.iter_mut().filter(|damage| damage.segment == number) {
        damage.quarantined_as = Some(disk.path_of(&aside));
    }
    true
}
