//! Which bindings go when a connection closes.

use core::hash::BuildHasher as _;

use hashbrown::HashTable;
use strowger_foundation::ConnId;
use strowger_foundation::map::Seeded;

use crate::plan::Indices;
use crate::stripe::{low_half, spread};
use crate::wheel::is_sparse;

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    index: u32,
}

/// The indices of the bindings that are bound to a connection. What it holds are hashes: who asks looks at the bindings.
#[derive(Debug)]
pub(crate) struct Connections {
    slots: HashTable<Slot>,
    hasher: Seeded,
}

impl Connections {
    pub(crate) const fn new(hasher: Seeded) -> Self {
        Self { slots: HashTable::new(), hasher }
    }

    pub(crate) fn insert(&mut self, connection: Option<ConnId>, index: u32) {
        let Some(connection) = connection else { return };
        let hash = self.hash(connection);
        self.slots.insert_unique(spread(hash), Slot { hash, index }, |slot| spread(slot.hash));
    }

    pub(crate) fn remove(&mut self, connection: Option<ConnId>, index: u32) {
        let Some(connection) = connection else { return };
        if let Ok(slot) = self.slots.find_entry(spread(self.hash(connection)), |slot| slot.index == index) {
            slot.remove();
        }
    }

    /// The binding at `from` is now at `to`.
    pub(crate) fn shift(&mut self, connection: Option<ConnId>, from: u32, to: u32) {
        let Some(connection) = connection else { return };
        if let Some(slot) = self.slots.find_mut(spread(self.hash(connection)), |slot| slot.index == from) {
            slot.index = to;
        }
    }

    /// Bindings that may be bound to `connection`: some may be bound to another one.
    pub(crate) fn candidates(&self, connection: ConnId) -> Indices {
        let hash = self.hash(connection);
        self.slots.iter_hash(spread(hash)).filter(|slot| slot.hash == hash).map(|slot| slot.index).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives memory back where most of it is unused.
    pub(crate) fn shrink(&mut self) {
        let len = self.slots.len();
        if is_sparse(len, self.slots.capacity()) {
            self.slots.shrink_to(len * 2, |slot| spread(slot.hash));
        }
    }

    fn hash(&self, connection: ConnId) -> u32 {
        low_half(self.hasher.hash_one(connection.to_bits()))
    }
}
