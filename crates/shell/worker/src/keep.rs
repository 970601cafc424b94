//! Records on their way from the shards to the store, and back.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Where somebody else keeps the records too.
    second: Option<Arc<Mutex<Meeting>>>,
}

/// The other one who keeps the records of a [`KeepBatch`]. Dropped without [`finish`](Self::finish) none of it was kept.
#[derive(Debug)]
pub struct SecondKeep {
    meeting: Arc<Mutex<Meeting>>,
}

/// Two who keep the same records: the shards hear of it when both are done.
#[derive(Debug, Default)]
struct Meeting {
    /// The batch whose own part is done, and whether it was kept.
    first: Option<(KeepBatch, bool)>,
    second: Option<bool>,
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
        Self { contact, records, token: None, second: None }
    }

    /// A copy that nobody waits for.
    #[must_use]
    pub fn to_unawaited(&self) -> Self {
        let copy = |stored: &Stored| Stored { ticket: None, record: stored.record.clone(), ..*stored };
        Self::new(Arc::clone(&self.contact), self.records.iter().map(copy).collect())
    }

    /// Has the shards hear that the records were kept when somebody else has kept them too.
    #[must_use]
    pub fn with_second(mut self) -> (Self, SecondKeep) {
        let meeting: Arc<Mutex<Meeting>> = Arc::default();
        self.second = Some(Arc::clone(&meeting));
        (self, SecondKeep { meeting })
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
        let Some(meeting) = self.second.take() else { return self.tell(kept) };
        let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
        match meeting.second {
            Some(second) => self.tell(kept && second),
            None => {
                let (contact, records) = (Arc::clone(&self.contact), mem::take(&mut self.records));
                let batch = Self { contact, records, token: self.token.take(), second: None };
                meeting.first = Some((batch, kept));
            }
        }
    }

    fn tell(&mut self, kept: bool) {
        let mut records = mem::take(&mut self.records);
        records.retain(|stored| stored.ticket.is_some());
        if records.is_empty() {
            return;
        }
        records.iter_mut().for_each(|stored| stored.kept = kept);
        self.contact.tell_stored(records, self.token.take());
    }
}

impl SecondKeep {
    /// Tells whether the second one has kept all of it. From any thread; never waits.
    pub fn finish(self, kept: bool) {
        self.meet(kept);
    }

    fn meet(&self, kept: bool) {
        let mut meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        if meeting.second.is_some() {
            return;
        }
        meeting.second = Some(kept);
        if let Some((batch, first)) = meeting.first.take() {
            batch.finish(first && kept);
        }
    }
}

impl Drop for SecondKeep {
    fn drop(&mut self) {
        self.meet(false);
    }
}

impl Drop for KeepBatch {
    fn drop(&mut self) {
        self.deliver(false);
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};

    use super::*;
    use crate::handover::Doorbell;

    fn batch(contact: &Arc<Contact>) -> KeepBatch {
        let stored = |ticket| Stored { shard: ShardId(0), ticket, record: vec![1], kept: false };
        KeepBatch::new(Arc::clone(contact), vec![stored(Some(1)), stored(None)])
    }

    #[test]
    fn what_two_keep_is_kept_when_both_have_it() {
        let poll = Poll::new().expect("a poller");
        let doorbell = Doorbell::new(poll.registry(), Token(0)).expect("a doorbell");
        let contact = Arc::new(Contact::new(doorbell, Arc::default()));
        let told = || contact.take_post().map(|post| post.stored.iter().map(|stored| stored.kept).collect::<Vec<_>>());
        for (first, second) in [(true, true), (true, false), (false, true)] {
            for is_first_earlier in [true, false] {
                let (own, other) = batch(&contact).with_second();
                if is_first_earlier {
                    own.finish(first);
                    assert!(told().unwrap_or_default().is_empty(), "the second one is still at it");
                    other.finish(second);
                } else {
                    other.finish(second);
                    assert!(told().unwrap_or_default().is_empty(), "the first one is still at it");
                    own.finish(first);
                }
                assert_eq!(told(), Some(vec![first && second]), "of what somebody waits for, once");
            }
        }
        let (own, other) = batch(&contact).with_second();
        drop(other);
        own.finish(true);
        assert_eq!(told(), Some(vec![false]), "who lets it go has not kept it");
        let own = batch(&contact);
        own.to_unawaited().finish(false);
        assert!(told().unwrap_or_default().is_empty(), "nobody waits for a copy");
        own.finish(true);
        assert_eq!(told(), Some(vec![true]));
    }
}
