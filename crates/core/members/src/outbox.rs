//! Changes that the engine has not confirmed.

use core::time::Duration;
use std::collections::VecDeque;

use strowger_foundation::Timestamp;

use crate::entry::{Entry, Position};

/// Id of records that are queued and confirmed together.
pub type BatchId = u64;

/// Limits of the outbox.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of waiting records.
    pub records: usize,
    /// Maximum number of their bytes.
    pub bytes: usize,
    /// Maximum number of records in an entry. A larger batch becomes one entry regardless.
    pub entry_records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { records: 65_536, bytes: 64 << 20, entry_records: 1_024 }
    }
}

/// How long a confirmed entry is remembered. Its changes enter the table once the disk has them too, within two
/// seconds; after that they are refused.
const CONFIRMED_TTL: Duration = Duration::from_secs(4);

#[derive(Debug)]
struct Batch {
    id: Option<BatchId>,
    records: Vec<Box<[u8]>>,
}

/// Waiting changes and the one entry in flight.
#[derive(Debug)]
pub(crate) struct Outbox {
    limits: Limits,
    waiting: VecDeque<Batch>,
    records: usize,
    bytes: usize,
    /// Entry in flight and its batches.
    entry: Option<(Entry, Vec<BatchId>)>,
    /// Recently confirmed entries, with the time of confirmation.
    confirmed: VecDeque<(Timestamp, Entry)>,
    confirmed_bytes: usize,
    /// End of the log.
    end: Position,
    /// Position of the newest entry created.
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

    /// Returns the number of unconfirmed records.
    pub(crate) fn len(&self) -> usize {
        self.records
    }

    /// Whether at least half of the room is free.
    pub(crate) fn has_room(&self) -> bool {
        self.records < self.limits.records / 2 && self.bytes < self.limits.bytes / 2
    }

    /// Queues a batch. Returns `false` if there is no room. `id` is `None` if nobody waits for the batch.
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

    /// Returns the entry to append to this member's log: the last one again if the engine has not confirmed it, else a
    /// new one made of the waiting changes. The first entry of a process follows `begin`; each new entry gets the next
    /// number.
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

    /// Marks the entry as stored and returns the batches it confirms.
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

    /// Drops entries that were confirmed long ago; their changes are in the table.
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

    /// Returns the end of the log as confirmed by the engine.
    pub(crate) const fn end(&self) -> Position {
        self.end
    }

    /// Returns the position of the entry that is unconfirmed but may be in the engine.
    pub(crate) fn unconfirmed(&self) -> Option<Position> {
        self.entry.as_ref().map(|(entry, _)| entry.position)
    }

    /// Handles a log that ends elsewhere: the engine has lost entries, or another server has written to the log.
    /// `begin` is the position before all entries created from here on.
    pub(crate) fn rebase_to(&mut self, end: Position, begin: Position) {
        self.end = end;
        if let Some((entry, _)) = &mut self.entry {
            self.last_entry = self.last_entry.max(begin).next();
            (entry.position, entry.after) = (self.last_entry, end);
        }
        self.requeue_forgotten(end);
    }

    /// Queues confirmed entries again that the engine has lost. The table may not have all of their changes yet.
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
    fn recently_confirmed_but_lost_entries_are_queued_again() {
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
