//! Records sent from the shards to the store, and their results.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use crate::record_result::RecordResult;
use crate::worker_handle::WorkerHandle;

/// Stores the records of all workers.
pub trait RecordSink: Send + Sync {
    /// Stores records in order of arrival; the records of one address of record come from one worker. Called on a
    /// worker's thread, so it must not block. It may acknowledge the batch at once.
    fn store(&self, batch: RecordBatch);
}

/// Records that the shards of one worker produced in one round. Dropping it without
/// [`acknowledge`](Self::acknowledge) reports that none were stored.
#[derive(Debug)]
pub struct RecordBatch {
    handle: Arc<WorkerHandle>,
    records: Vec<RecordResult>,
    token: Option<Arc<()>>,
    /// Shared with a second sink, if there is one.
    joint_ack: Option<Arc<Mutex<JointAck>>>,
}

/// Acknowledgement by the second sink of a [`RecordBatch`]. Dropping it without [`acknowledge`](Self::acknowledge)
/// reports that none were stored.
#[derive(Debug)]
pub struct SecondaryAck {
    joint_ack: Arc<Mutex<JointAck>>,
}

/// State shared by two sinks of the same records. The shards are notified once both have acknowledged.
#[derive(Debug, Default)]
struct JointAck {
    /// The batch and the first sink's result, once it has acknowledged.
    first: Option<(RecordBatch, bool)>,
    second: Option<bool>,
}

impl RecordBatch {
    pub(crate) fn new(contact: Arc<WorkerHandle>, records: Vec<RecordResult>) -> Self {
        Self { handle: contact, records, token: None, joint_ack: None }
    }

    /// Returns a copy that nothing waits for.
    #[must_use]
    pub fn to_unawaited(&self) -> Self {
        let copy = |stored: &RecordResult| RecordResult { ticket: None, record: stored.record.clone(), ..*stored };
        Self::new(Arc::clone(&self.handle), self.records.iter().map(copy).collect())
    }

    /// Makes the result depend on a second sink as well.
    #[must_use]
    pub fn with_secondary(mut self) -> (Self, SecondaryAck) {
        let meeting: Arc<Mutex<JointAck>> = Arc::default();
        self.joint_ack = Some(Arc::clone(&meeting));
        (self, SecondaryAck { joint_ack: meeting })
    }

    /// Returns the records in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.records.iter().map(|stored| &*stored.record)
    }

    /// Returns the records in order, each with whether a request waits for it. Records without one are already
    /// applied.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], bool)> {
        self.records.iter().map(|stored| (&*stored.record, stored.ticket.is_some()))
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Keeps `token` alive until the shards have handled the result of [`acknowledge`](Self::acknowledge). Stored
    /// records are in the table by then.
    pub fn hold_token(&mut self, token: Arc<()>) {
        self.token = Some(token);
    }

    /// Reports to the shards whether all records were stored or none. Callable from any thread; never blocks.
    pub fn acknowledge(mut self, kept: bool) {
        self.deliver(kept);
    }

    fn deliver(&mut self, kept: bool) {
        let Some(meeting) = self.joint_ack.take() else { return self.notify(kept) };
        let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
        match meeting.second {
            Some(second) => self.notify(kept && second),
            None => {
                let (contact, records) = (Arc::clone(&self.handle), mem::take(&mut self.records));
                let batch = Self { handle: contact, records, token: self.token.take(), joint_ack: None };
                meeting.first = Some((batch, kept));
            }
        }
    }

    fn notify(&mut self, kept: bool) {
        let mut records = mem::take(&mut self.records);
        records.retain(|stored| stored.ticket.is_some());
        if records.is_empty() {
            return;
        }
        records.iter_mut().for_each(|stored| stored.is_stored = kept);
        self.handle.notify_store_results(records, self.token.take());
    }
}

impl SecondaryAck {
    /// Reports whether the second sink has stored all records. Callable from any thread; never blocks.
    pub fn acknowledge(self, kept: bool) {
        self.join(kept);
    }

    fn join(&self, kept: bool) {
        let mut meeting = self.joint_ack.lock().unwrap_or_else(PoisonError::into_inner);
        if meeting.second.is_some() {
            return;
        }
        meeting.second = Some(kept);
        if let Some((batch, first)) = meeting.first.take() {
            batch.acknowledge(first && kept);
        }
    }
}

impl Drop for SecondaryAck {
    fn drop(&mut self) {
        self.join(false);
    }
}

impl Drop for RecordBatch {
    fn drop(&mut self) {
        self.deliver(false);
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};

    use strowger_foundation::ShardId;

    use super::*;
    use crate::handover::WorkerWaker;

    fn batch(contact: &Arc<WorkerHandle>) -> RecordBatch {
        let stored = |ticket| RecordResult { shard: ShardId(0), ticket, record: vec![1], is_stored: false };
        RecordBatch::new(Arc::clone(contact), vec![stored(Some(1)), stored(None)])
    }

    #[test]
    fn two_sinks_must_both_store_a_record() {
        let poll = Poll::new().expect("a poller");
        let waker = WorkerWaker::new(poll.registry(), Token(0)).expect("a doorbell");
        let contact = Arc::new(WorkerHandle::new(waker, Arc::default()));
        let told = || {
            contact
                .take_mailbox()
                .map(|post| post.store_results.iter().map(|stored| stored.is_stored).collect::<Vec<_>>())
        };
        for (first, second) in [(true, true), (true, false), (false, true)] {
            for is_first_earlier in [true, false] {
                let (own, other) = batch(&contact).with_secondary();
                if is_first_earlier {
                    own.acknowledge(first);
                    assert!(told().unwrap_or_default().is_empty(), "the second one is still at it");
                    other.acknowledge(second);
                } else {
                    other.acknowledge(second);
                    assert!(told().unwrap_or_default().is_empty(), "the first one is still at it");
                    own.acknowledge(first);
                }
                assert_eq!(told(), Some(vec![first && second]), "of what somebody waits for, once");
            }
        }
        let (own, other) = batch(&contact).with_secondary();
        drop(other);
        own.acknowledge(true);
        assert_eq!(told(), Some(vec![false]), "who lets it go has not kept it");
        let own = batch(&contact);
        own.to_unawaited().acknowledge(false);
        assert!(told().unwrap_or_default().is_empty(), "nobody waits for a copy");
        own.acknowledge(true);
        assert_eq!(told(), Some(vec![true]));
    }
}
