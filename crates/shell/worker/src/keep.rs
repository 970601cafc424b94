//! Records on their way from the shards to the store, and back.

use std::mem;
use std::sync::Arc;

use strowger_foundation::ShardId;

use crate::contact::Contact;

/// Who keeps the records of all workers.
pub trait Keep: Send + Sync {
    /// Takes records, which are to be kept in the order in which they come; of one address of record they come from one
    /// worker. Called on a worker's thread: it must not wait. It may finish the batch at once.
    fn keep(&self, batch: KeepBatch);
}

/// What the shards of one worker gave in one round. Dropped without [`finish`](Self::finish) none of it was kept.
#[derive(Debug)]
pub struct KeepBatch {
    contact: Arc<Contact>,
    records: Vec<Stored>,
    token: Option<Arc<()>>,
}

/// One record and whose it is.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) shard: ShardId,
    /// `None` where nobody waits for it.
    pub(crate) ticket: Option<u64>,
    pub(crate) record: Vec<u8>,
    pub(crate) kept: bool,
}

impl KeepBatch {
    pub(crate) fn new(contact: Arc<Contact>, records: Vec<Stored>) -> Self {
        Self { contact, records, token: None }
    }

    /// The records in their order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.records.iter().map(|stored| &*stored.record)
    }

    /// The records in their order, each with whether somebody waits for it: what nobody waits for is applied already.
    pub fn each(&self) -> impl ExactSizeIterator<Item = (&[u8], bool)> {
        self.records.iter().map(|stored| (&*stored.record, stored.ticket.is_some()))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Keeps `token` alive until the shards have dealt with what [`finish`](Self::finish) told them: what was kept is in the
    /// table then.
    pub fn follow(&mut self, token: Arc<()>) {
        self.token = Some(token);
    }

    /// Tells the shards that all of it was kept, or that none was. From any thread; never waits.
    pub fn finish(mut self, kept: bool) {
        self.deliver(kept);
    }

    fn deliver(&mut self, kept: bool) {
        let mut records = mem::take(&mut self.records);
        records.retain(|stored| stored.ticket.is_some());
        if records.is_empty() {
            return;
        }
        records.iter_mut().for_each(|stored| stored.kept = kept);
        self.contact.tell_stored(records, self.token.take());
    }
}

impl Drop for KeepBatch {
    fn drop(&mut self) {
        self.deliver(false);
    }
}
