//! Processes before this one that still have transactions, and what belongs to them.
//!
//! After a takeover this process has all sockets. The one before keeps the transactions that it has begun, until they
//! end. A response belongs to the process that its branch names. A request belongs to a predecessor if its transaction
//! was there when the sockets were handed over; all others are this process's.

use std::fmt::Debug;
use std::sync::Arc;

use hashbrown::HashTable;
use strowger_foundation::{Flow, ShardId, Timestamp};

/// Maximum number of predecessors that still have transactions. An upgrade that would make one more is refused: each
/// one is a process with its memory.
pub const MAX_PREDECESSORS: usize = 15;

/// A message that belongs to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedMessage<'m> {
    /// The shard that it belongs to; processes that succeed one another have the same number of shards.
    pub shard: ShardId,
    /// The flow it came on, or is to leave on.
    pub flow: Flow,
    /// When the kernel received it; the processes share the clock.
    pub arrival: Timestamp,
    /// The message.
    pub bytes: &'m [u8],
}

/// What another process does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayKind {
    /// Deliver it to the shard, in whichever process that has the transaction.
    Deliver,
    /// Send it on the flow's connection.
    Send,
    /// Learn that it could not be sent: the flow's connection is closed.
    Failed,
    /// Learn that the flow's connection is closed. There is no message.
    Closed,
    /// Learn that a way of requests to the peer of a secure connection is closed. There is no message.
    WayClosed,
}

/// The way to another process of the same chain of upgrades.
pub trait ProcessLink: Send + Sync + Debug {
    /// Sends it a message, and returns whether there was room. Called on a worker's thread, so it must not block.
    fn relay(&self, kind: RelayKind, message: RelayedMessage<'_>) -> bool;
}

/// A predecessor: a process and the transactions that it had.
#[derive(Clone, Debug)]
pub struct Predecessor {
    /// Its number, as in its [branches](strowger_shard::PROCESS_NUMBERS).
    pub process: u8,
    /// The way to it.
    pub link: Arc<dyn ProcessLink>,
}

/// All predecessors that still have transactions.
#[derive(Clone, Debug, Default)]
pub struct Predecessors {
    all: Vec<Predecessor>,
    /// [Halves of the keys](strowger_shard::ServerKey::half) of server transactions, each with the process.
    keys: HashTable<(u64, u8)>,
}

impl Predecessors {
    /// Adds a predecessor and the keys of its server transactions.
    pub fn add(&mut self, predecessor: Predecessor, keys: impl ExactSizeIterator<Item = u64>) {
        self.keys.reserve(keys.len(), |(key, _)| *key);
        let process = predecessor.process;
        for key in keys {
            self.keys.insert_unique(key, (key, process), |(key, _)| *key);
        }
        self.all.push(predecessor);
    }

    /// Removes a predecessor that has ended, and its keys.
    pub fn remove(&mut self, process: u8) {
        self.all.retain(|one| one.process != process);
        self.keys.retain(|(_, of)| *of != process);
        self.keys.shrink_to_fit(|(key, _)| *key);
    }

    /// Returns the predecessors.
    #[must_use]
    pub fn all(&self) -> &[Predecessor] {
        &self.all
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the keys of a predecessor's server transactions.
    pub fn keys_of(&self, process: u8) -> impl Iterator<Item = u64> {
        self.keys.iter().filter(move |(_, of)| *of == process).map(|(key, _)| *key)
    }

    /// Returns the way to the predecessor that has the server transaction of this key.
    pub(crate) fn of_request(&self, key: u64) -> Option<&Arc<dyn ProcessLink>> {
        let (_, process) = self.keys.find(key, |(other, _)| *other == key)?;
        self.of_process(*process)
    }

    /// Returns the way to a predecessor.
    pub(crate) fn of_process(&self, process: u8) -> Option<&Arc<dyn ProcessLink>> {
        self.all.iter().find(|one| one.process == process).map(|one| &one.link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl ProcessLink for Nowhere {
        fn relay(&self, _: RelayKind, _: RelayedMessage<'_>) -> bool {
            false
        }
    }

    #[test]
    fn requests_belong_to_the_process_that_had_their_transaction_until_it_ends() {
        let mut all = Predecessors::default();
        let one = |process| Predecessor { process, link: Arc::new(Nowhere) };
        all.add(one(3), [1, 2].into_iter());
        all.add(one(4), [5, 1 << 63].into_iter());
        let has = |all: &Predecessors, key| all.of_request(key).is_some();
        assert!([1, 2, 5, 1 << 63].into_iter().all(|key| has(&all, key)) && !has(&all, 3));
        assert!(all.of_process(3).is_some() && all.of_process(5).is_none());
        let mut keys: Vec<_> = all.keys_of(4).collect();
        keys.sort_unstable();
        assert_eq!(keys, [5, 1 << 63]);
        all.remove(3);
        assert!(!has(&all, 1) && has(&all, 5) && all.of_process(3).is_none());
        all.remove(4);
        assert!(all.is_empty() && !has(&all, 5));
    }
}
