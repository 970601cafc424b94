//! The table of the paper's server: a fixed number of buckets, each a chain of records behind a lock.
//!
//! A lookup walks the chain and compares strings, as that server does. The strings are allocated separately from the
//! records, as there. Expired records stay until a sweep over all records removes them.

use std::hash::BuildHasher as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};

use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededState, seeded};

use super::table::{EXPIRES, LockTimer, Table, ThreadIndex, Waits};

/// A hash table with a fixed number of chains.
#[derive(Debug)]
pub struct ChainedTable {
    buckets: Box<[Bucket]>,
    hasher: SeededState,
    patience: LockTimer,
}

#[derive(Debug, Default)]
struct Bucket {
    chain: Mutex<Chain>,
    contended: AtomicU64,
}

#[derive(Debug, Default)]
struct Chain {
    first: Option<Box<Record>>,
    len: usize,
}

#[derive(Debug)]
struct Record {
    aor: Box<[u8]>,
    contact: Box<[u8]>,
    expires: Timestamp,
    cseq: u32,
    next: Option<Box<Record>>,
}

impl ChainedTable {
    /// Creates a table of empty buckets, a power of two.
    #[must_use]
    pub fn new(buckets: usize, seed: u64) -> Self {
        Self {
            buckets: (0..buckets.next_power_of_two()).map(|_| Bucket::default()).collect(),
            hasher: seeded(seed),
            patience: LockTimer::default(),
        }
    }

    fn chain_of(&self, aor: &[u8]) -> MutexGuard<'_, Chain> {
        let place = (self.hasher.hash_one(aor) >> 32) as usize & (self.buckets.len() - 1);
        self.lock(&self.buckets[place])
    }

    fn lock<'a>(&self, bucket: &'a Bucket) -> MutexGuard<'a, Chain> {
        self.patience.take(&bucket.chain, &bucket.contended)
    }

    /// Returns the number of records before an address in its chain.
    #[cfg(test)]
    pub(super) fn depth(&self, aor: &[u8]) -> usize {
        let chain = self.chain_of(aor);
        let records = std::iter::successors(chain.first.as_deref(), |record| record.next.as_deref());
        records.take_while(|record| *record.aor != *aor).count()
    }
}

impl Chain {
    fn find(&mut self, aor: &[u8]) -> Option<&mut Record> {
        let mut next = self.first.as_deref_mut();
        while let Some(record) = next {
            if *record.aor == *aor {
                return Some(record);
            }
            next = record.next.as_deref_mut();
        }
        None
    }

    fn push(&mut self, now: Timestamp, aor: &[u8], contact: &[u8], cseq: u32) {
        let (expires, next) = (now + EXPIRES, self.first.take());
        self.first = Some(Box::new(Record { aor: aor.into(), contact: contact.into(), expires, cseq, next }));
        self.len += 1;
    }

    /// Removes expired records.
    fn sweep(&mut self, now: Timestamp) -> usize {
        let before = self.len;
        let mut place = &mut self.first;
        while let Some(record) = place {
            if record.expires <= now {
                *place = record.next.take();
                self.len -= 1;
            } else {
                place = &mut place.as_mut().expect("it is there").next;
            }
        }
        before - self.len
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // Drops records one by one: dropping a long chain recursively could overflow the stack.
        let mut next = self.first.take();
        while let Some(mut record) = next {
            next = record.next.take();
        }
    }
}

impl Table for ChainedTable {
    fn put(&self, now: Timestamp, aor: &[u8], contact: &[u8], cseq: u32) {
        let mut chain = self.chain_of(aor);
        let Some(record) = chain.find(aor) else { return chain.push(now, aor, contact, cseq) };
        if *record.contact != *contact {
            record.contact = contact.into();
        } else if record.cseq >= cseq && now < record.expires {
            return;
        }
        (record.expires, record.cseq) = (now + EXPIRES, cseq);
    }

    fn load(&self, now: Timestamp, aor: &[u8], contact: &[u8], cseq: u32) {
        self.chain_of(aor).push(now, aor, contact, cseq);
    }

    fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut Vec<u8>) -> bool {
        let mut chain = self.chain_of(aor);
        let found = chain.find(aor).filter(|record| now < record.expires);
        if let Some(record) = &found {
            out.extend_from_slice(&record.contact);
        }
        found.is_some()
    }

    fn step(&self, _: Timestamp, _: ThreadIndex) -> Option<usize> {
        None
    }

    fn sweep(&self, now: Timestamp, part: usize, of: usize) -> usize {
        let count = self.buckets.len();
        let part = &self.buckets[count * part / of..count * (part + 1) / of];
        part.iter().map(|bucket| self.lock(bucket).sweep(now)).sum()
    }

    fn owner(&self, _: &[u8], _: usize) -> Option<usize> {
        None
    }

    fn len(&self) -> usize {
        self.buckets.iter().map(|bucket| self.lock(bucket).len).sum()
    }

    fn waits(&self) -> Waits {
        self.patience.waits(self.buckets.iter().map(|bucket| &bucket.contended))
    }
}
