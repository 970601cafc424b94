//! The bindings to remove when a connection closes.

use core::hash::BuildHasher as _;

use strowger_foundation::ConnId;
use strowger_foundation::map::SeededState;

use crate::index::{Index, Indices, low_half};

/// The indices of the bindings on each connection, by hash; the caller must check the bindings themselves.
#[derive(Debug)]
pub(crate) struct Connections {
    slots: Index,
    hasher: SeededState,
}

impl Connections {
    pub(crate) fn new(hasher: SeededState) -> Self {
        Self { slots: Index::new(), hasher }
    }

    pub(crate) fn insert(&mut self, connection: Option<ConnId>, index: u32) {
        let Some(connection) = connection else { return };
        self.slots.insert(self.hash(connection), index);
    }

    pub(crate) fn remove(&mut self, connection: Option<ConnId>, index: u32) {
        let Some(connection) = connection else { return };
        self.slots.remove(self.hash(connection), index);
    }

    /// Updates the index of a binding that moved from `from` to `to`.
    pub(crate) fn relocate(&mut self, connection: Option<ConnId>, from: u32, to: u32) {
        let Some(connection) = connection else { return };
        self.slots.relocate(self.hash(connection), from, to);
    }

    /// Returns the bindings that may be on `connection`; because of hash collisions, some may be on another.
    pub(crate) fn candidates(&self, connection: ConnId) -> Indices {
        self.slots.of(self.hash(connection)).collect()
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    fn hash(&self, connection: ConnId) -> u32 {
        low_half(self.hasher.hash_one(connection.to_bits()))
    }
}
