//! Recovery after a disk error: reports lost files and begins a new segment.

use std::mem;

use super::{Journal, RecoveryReport, SegmentLink, WriterState, quarantine};
use crate::disk::{Disk, Operation};
use crate::error::DiskError;
use crate::format::{HEADER, Header};
use crate::inspect::{FolderContents, TEMP_SUFFIX};
use crate::reader::{self, DAMAGED_SUFFIX, Segment, name_of};
use crate::stamp::Stamp;

/// A lost file, replaced by a gap segment because later headers refer to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    number: u64,
    previous: u64,
    previous_len: u64,
}

/// Cleanup that opening could not do because writing failed.
#[derive(Debug, Default)]
pub(super) struct PendingCleanup {
    /// Segments to be quarantined.
    aside: Vec<u64>,
    /// Segments to be removed once a newer header is durable.
    strays: Vec<u64>,
    /// File that is being replayed and must stay until that is done.
    tail: Option<u64>,
}

impl PendingCleanup {
    pub(super) fn new(found: &FolderContents) -> Self {
        let tail = found.tail.map(|tail| (tail.header.number, tail.damaged));
        let damaged = tail.filter(|(_, damaged)| *damaged).map(|(number, _)| number);
        Self {
            aside: found.quarantined.iter().copied().chain(damaged).collect(),
            strays: found.orphans.clone(),
            tail: tail.filter(|(_, damaged)| !damaged).map(|(number, _)| number),
        }
    }

    pub(super) fn is_replayed_from(&self, number: u64) -> bool {
        self.tail == Some(number)
    }
}

impl<D: Disk> Journal<D> {
    /// Begins a new segment after a disk error; does nothing without one. If files of the journal have been lost, the
    /// contents of the others stay valid.
    ///
    /// # Errors
    /// When the disk still refuses.
    pub fn recover(&mut self, stamp: Stamp) -> Result<RecoveryReport, DiskError> {
        let WriterState::Failed(_, plan) = &self.writer else { return Ok(RecoveryReport::default()) };
        let mut plan = *plan;
        match self.missing(&plan) {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                plan = self.bridge(plan, &missing);
                if let WriterState::Failed(_, old) = &mut self.writer {
                    *old = plan;
                }
            }
            Err(fault) => return Err(self.refuse(fault, plan)),
        }
        if let Err(fault) = self.make_gaps(stamp) {
            return Err(self.refuse(fault, plan));
        }
        self.begin(stamp)?;
        Ok(RecoveryReport { lost: mem::take(&mut self.lost), quarantined_as: self.clean_up_late() })
    }

    /// Returns the segments that should exist but do not.
    fn missing(&self, plan: &SegmentLink) -> Result<Vec<u64>, DiskError> {
        let names = match self.disk.list() {
            Ok(names) => names,
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(cause) => return Err(DiskError::new(&self.disk, Operation::List, "", &cause)),
        };
        // Read after listing: a file that is being removed is recorded here first, so it does not count as lost.
        let removed = self.removed();
        let carried = plan.carried.map(|carried| carried.segment);
        let closed = self.closed.iter().map(|segment| segment.number);
        let wanted = closed.chain([plan.previous]).chain(carried).filter(|&number| {
            number > removed && !self.gaps.iter().any(|gap| gap.number == number) && !names.contains(&name_of(number))
        });
        let mut missing: Vec<u64> = wanted.collect();
        missing.sort_unstable();
        missing.dedup();
        Ok(missing)
    }

    /// Adjusts the plan for missing segments: gap segments replace lost files, so that those before and after them
    /// stay valid. One gap is enough before the oldest remaining segment; none is needed if no segment remains.
    fn bridge(&mut self, plan: SegmentLink, missing: &[u64]) -> SegmentLink {
        self.lost.extend_from_slice(missing);
        let is_lost = |number: u64| missing.contains(&number);
        let removed = self.removed();
        let lost_carried = plan.carried.map(|carried| carried.segment).filter(|&number| is_lost(number));
        let in_checkpoint = self.closed.iter().take_while(|segment| segment.number <= removed).count();
        let mut row = self.closed.split_off(in_checkpoint);
        let closed = row.len();
        let newest = row.last().map_or(removed, |last| last.number);
        if plan.previous > newest {
            row.push(Segment { number: plan.previous, len: plan.previous_len });
        }
        if let Some(number) = lost_carried.filter(|number| *number > plan.previous) {
            row.push(Segment { number, len: HEADER as u64 });
        }
        let Some(oldest) = row.iter().position(|segment| !is_lost(segment.number)) else {
            return SegmentLink { first_group: self.next_group, ..SegmentLink::default() };
        };
        let first = oldest.saturating_sub(1);
        let mut before = Segment { number: 0, len: 0 };
        for segment in row.iter_mut().skip(first) {
            if is_lost(segment.number) {
                let Segment { number: previous, len: previous_len } = before;
                self.gaps.push(Gap { number: segment.number, previous, previous_len });
                segment.len = HEADER as u64;
            }
            before = *segment;
        }
        let is_tail_lost = lost_carried.is_some() || is_lost(plan.previous);
        self.closed.extend(row.into_iter().take(closed).skip(first));
        if !is_tail_lost {
            return plan;
        }
        SegmentLink {
            previous: before.number,
            previous_len: before.len,
            first_group: self.next_group,
            carried: None,
            superseded: plan.superseded.filter(|&number| !is_lost(number)),
        }
    }

    fn make_gaps(&mut self, stamp: Stamp) -> Result<(), DiskError> {
        while let Some(&Gap { number, previous, previous_len }) = self.gaps.first() {
            let (store_id, first_group) = (self.settings.store_id, self.next_group);
            let header = Header { number, store_id, previous, previous_len, first_group, stamp, is_gap: true };
            let mut bytes = Vec::with_capacity(HEADER);
            header.write(&mut bytes);
            if let Err(fault) = self.make_file(number, &bytes) {
                let _ = self.disk.remove(&format!("{}{TEMP_SUFFIX}", name_of(number)));
                return Err(fault);
            }
            self.gaps.remove(0);
        }
        Ok(())
    }

    /// Does the cleanup deferred by opening, once a new segment exists; returns the paths of quarantined files.
    fn clean_up_late(&mut self) -> Vec<String> {
        for number in mem::take(&mut self.pending_cleanup.strays) {
            let _ = reader::remove(&self.disk, &name_of(number));
        }
        let mut kept_as = Vec::new();
        for number in mem::take(&mut self.pending_cleanup.aside) {
            if quarantine(&self.disk, number, &mut []) {
                kept_as.push(self.disk.path_of(&format!("{}{DAMAGED_SUFFIX}", name_of(number))));
            }
        }
        kept_as
    }

    /// Removes the superseded tail once nothing is replayed from it.
    pub(super) fn remove_superseded(&mut self) {
        let Some(number) = self.pending_cleanup.tail.take() else { return };
        let counts = self.closed.iter().chain(&self.unremoved).any(|segment| segment.number == number);
        match &self.writer {
            WriterState::Open(_) if !counts => drop(reader::remove(&self.disk, &name_of(number))),
            WriterState::Open(_) => {}
            // The next segment will carry it over or refer to it.
            WriterState::Failed(..) => self.pending_cleanup.tail = Some(number),
        }
    }
}
