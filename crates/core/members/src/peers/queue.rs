//! Queue of changes for a peer; the newest of each contact.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strowger_registrar::{Record, Version};

/// Limits of what waits for each peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimits {
    /// Maximum number of contacts with a waiting change.
    pub changes: usize,
    /// Maximum number of bytes.
    pub bytes: usize,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self { changes: 65_536, bytes: 32 << 20 }
    }
}

/// A change of one contact.
#[derive(Clone, Debug)]
pub(super) struct Change {
    contact: u64,
    pub(super) version: Version,
    pub(super) record: Arc<[u8]>,
}

impl Change {
    /// Splits a record into its changes.
    pub(super) fn of_record(record: &[u8]) -> Vec<Self> {
        let mut changes = Vec::new();
        if let Ok(record) = Record::parse(record) {
            record.for_each_change(|change| {
                let (contact, version) = (change.contact, change.version);
                changes.push(Self { contact, version, record: change.record.into() });
            });
        }
        changes
    }
}

/// Queue of one peer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    limits: PeerLimits,
    changes: BTreeMap<u64, Change>,
    order: VecDeque<u64>,
    bytes: usize,
}

impl Queue {
    pub(super) fn new(limits: PeerLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Queues a change in place of an older one of the same contact. Returns `false` if there is no room.
    pub(super) fn push(&mut self, change: &Change) -> bool {
        if let Some(known) = self.changes.get_mut(&change.contact) {
            if known.version < change.version {
                self.bytes = self.bytes - known.record.len() + change.record.len();
                *known = change.clone();
            }
            return true;
        }
        if self.changes.len() >= self.limits.changes || self.bytes + change.record.len() > self.limits.bytes {
            return false;
        }
        self.bytes += change.record.len();
        self.order.push_back(change.contact);
        self.changes.insert(change.contact, change.clone());
        true
    }

    /// Returns the change that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Change> {
        let change = self.changes.remove(&self.order.pop_front()?)?;
        self.bytes -= change.record.len();
        debug_assert_eq!(self.changes.len(), self.order.len(), "each contact stands in the order once");
        Some(change)
    }

    /// Drops all changes and returns their number.
    pub(super) fn clear(&mut self) -> usize {
        let count = self.len();
        *self = Self::new(self.limits);
        count
    }
}
