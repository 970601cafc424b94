//! Changes that the engine has not confirmed yet.

use core::time::Duration;
use std::collections::VecDeque;

use strowger_foundation::Timestamp;

use crate::entry::{Entry, Position};

/// Names records that were handed over together, and are confirmed together.
pub type BatchId = u64;

/// Bounds of what waits for the engine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records that wait at most.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Records of one entry; a batch that has more is one entry all the same.
    pub entry_records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { records: 65_536, bytes: 64 << 20, entry_records: 1_024 }
    }
}

/// How long an entry is remembered after it was confirmed. Its changes come into the table once the disk has them too, which takes two
/// seconds at most; what has not come there by then is refused.
const CONFIRMED_TTL: Duration = Duration::from_secs(4);

#[derive(Debug)]
struct Batch {
    id: Option<BatchId>,
    records: Vec<Box<[u8]>>,
}

/// What waits, and the one entry that is on its way.
#[derive(Debug)]
pub(crate) struct Outbox {
    limits: Limits,
    waiting: VecDeque<Batch>,
    records: usize,
    bytes: usize,
    /// The entry that is being appended, and the batches in it.
    entry: Option<(Entry, Vec<BatchId>)>,
    /// Entries that were confirmed lately, and when.
    confirmed: VecDeque<(Timestamp, Entry)>,
    confirmed_bytes: usize,
    /// Where the log ends.
    end: Position,
    /// The entry that was made last.
    last_entry: Position,
}

impl Outbox {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            records: 0,
            bytes: 0,
            entry: None,
            confirmed: VecDeque::new(),
            confirmed_bytes: 0,
            end: Position::BEGIN,
            last_entry: Position::BEGIN,
        }
    }

    /// Records that the engine has not confirmed.
    pub(crate) fn len(&self) -> usize {
        self.records
    }

    /// Whether half of the room is free.
    pub(crate) fn has_room(&self) -> bool {
        self.records < self.limits.records / 2 && self.bytes < self.limits.bytes / 2
    }

    /// Takes a batch; `false` where there is no room. Where nobody waits for it, it has no name.
    pub(crate) fn push(&mut self, id: Option<BatchId>, records: Vec<Box<[u8]>>) -> bool {
        let bytes = bytes_of(&records);
        if self.records + records.len() > self.limits.records || self.bytes + bytes > self.limits.bytes {
            return false;
        }
        self.records += records.len();
        self.bytes += bytes;
        self.waiting.push_back(Batch { id, records });
        true
    }

    /// The entry that is to be appended: the one that was not confirmed, else a new one from what waits. `begin` is before the first one of
    /// this process. No number is used for two.
    pub(crate) fn entry(&mut self, begin: Position) -> Option<&Entry> {
        if self.entry.is_none() {
            let (mut records, mut batches) = (Vec::new(), Vec::new());
            while let Some(batch) = self.waiting.front()
                && (records.is_empty() || records.len() + batch.records.len() <= self.limits.entry_records)
            {
                let Some(batch) = self.waiting.pop_front() else { break };
                records.extend(batch.records);
                batches.extend(batch.id);
            }
            if !records.is_empty() {
                self.last_entry = self.last_entry.max(begin).next();
                self.entry = Some((Entry { position: self.last_entry, after: self.end, records }, batches));
            }
        }
        self.entry.as_ref().map(|(entry, _)| entry)
    }

    /// The entry is in the engine: the batches that are confirmed by it.
    pub(crate) fn confirm(&mut self, now: Timestamp, position: Position) -> Vec<BatchId> {
        let Some((entry, batches)) = self.entry.take_if(|(entry, _)| entry.position == position) else {
            return Vec::new();
        };
        self.records -= entry.records.len();
        self.bytes -= bytes_of(&entry.records);
        self.end = position;
        self.confirmed_bytes += bytes_of(&entry.records);
        self.confirmed.push_back((now, entry));
        self.expire_confirmed(now);
        batches
    }

    /// What was confirmed long ago is in the table.
    pub(crate) fn expire_confirmed(&mut self, now: Timestamp) {
        let is_over =
            |confirmed: Timestamp, bytes: usize| confirmed + CONFIRMED_TTL <= now || bytes > self.limits.bytes;
        while let Some((confirmed, entry)) = self.confirmed.front()
            && is_over(*confirmed, self.confirmed_bytes)
        {
            self.confirmed_bytes -= bytes_of(&entry.records);
            self.confirmed.pop_front();
        }
    }

    /// Where the log ends, by what the engine has confirmed.
    pub(crate) const fn end(&self) -> Position {
        self.end
    }

    /// Where the entry stands that may be in the engine and is not confirmed.
    pub(crate) fn unconfirmed(&self) -> Option<Position> {
        self.entry.as_ref().map(|(entry, _)| entry.position)
    }

    /// The log ends elsewhere than was thought: the engine has forgotten something, or somebody else has written to it. `begin` is before all
    /// entries that are made from now on.
    pub(crate) fn rebase_to(&mut self, end: Position, begin: Position) {
        self.end = end;
        if let Some((entry, _)) = &mut self.entry {
            self.last_entry = self.last_entry.max(begin).next();
            (entry.position, entry.after) = (self.last_entry, end);
        }
        self.requeue_forgotten(end);
    }

    /// Entries that were confirmed and are forgotten wait once more: not all of their changes need be in the table yet.
    fn requeue_forgotten(&mut self, end: Position) {
        while let Some((_, entry)) = self.confirmed.pop_back_if(|(_, entry)| entry.position > end) {
            let bytes = bytes_of(&entry.records);
            self.confirmed_bytes -= bytes;
            self.records += entry.records.len();
            self.bytes += bytes;
            self.waiting.push_front(Batch { id: None, records: entry.records });
        }
    }
}

fn bytes_of(records: &[Box<[u8]>]) -> usize {
    records.iter().map(|record| record.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Position = Position { incarnation: 5, number: 0 };

    fn records(count: usize) -> Vec<Box<[u8]>> {
        vec![[0; 10].as_slice().into(); count]
    }

    #[test]
    fn batches_share_an_entry_and_are_confirmed_with_it() {
        let now = Timestamp::from_millis(1);
        let mut outbox = Outbox::new(Limits { records: 20, bytes: 1_000, entry_records: 8 });
        outbox.rebase_to(Position { incarnation: 4, number: 9 }, BEGIN);
        assert!(outbox.push(Some(1), records(5)) && outbox.push(None, records(3)) && outbox.push(Some(2), records(12)));
        assert!(!outbox.push(Some(3), records(1)), "it is full");
        let entry = outbox.entry(BEGIN).expect("something waits").clone();
        assert_eq!((entry.records.len(), entry.position.number, entry.after.number), (8, 1, 9));
        assert_eq!(outbox.entry(BEGIN), Some(&entry), "until it is confirmed");
        assert!(outbox.confirm(now, Position { number: 7, ..BEGIN }).is_empty());
        assert_eq!(outbox.confirm(now, entry.position), [1]);
        let last = outbox.entry(BEGIN).expect("something waits").clone();
        assert_eq!((last.records.len(), last.position.number, last.after), (12, 2, entry.position));
        assert_eq!((outbox.confirm(now, last.position), outbox.len()), (vec![2], 0));
        assert_eq!(outbox.entry(BEGIN), None);
    }

    #[test]
    fn what_was_confirmed_lately_and_is_forgotten_waits_again() {
        let mut outbox = Outbox::new(Limits { records: 20, bytes: 1_000, entry_records: 8 });
        let mut ends = Vec::new();
        for second in [1, 8, 9] {
            let now = Timestamp::from_millis(second * 1_000);
            assert!(outbox.push(Some(second), records(8)));
            ends.push(outbox.entry(BEGIN).expect("something waits").position);
            assert_eq!(outbox.confirm(now, ends[ends.len() - 1]), [second]);
        }
        outbox.rebase_to(ends[1], BEGIN);
        assert_eq!(outbox.len(), 8, "the last one");
        outbox.rebase_to(Position::BEGIN, BEGIN);
        assert_eq!(outbox.len(), 16, "and the one before; the first one is in the table by now");
        let again = outbox.entry(BEGIN).expect("something waits");
        assert!(again.position > ends[2] && again.after == Position::BEGIN);
    }
}
