//! Storage of a worker's connections: slots with stable numbers, allocated in blocks so that growth neither moves nor
//! wastes memory.

use crate::connection::Connection;

/// Slots per block.
const BLOCK: usize = 128;

/// A slot for a connection.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Number of earlier uses of the slot, starting at a value chosen per process.
    pub(crate) generation: u32,
    pub(crate) connection: Option<Connection>,
}

/// All slots of one worker.
#[derive(Debug)]
pub(crate) struct Slots {
    first_generation: u32,
    blocks: Vec<Box<[Slot]>>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) const fn new(first_generation: u32) -> Self {
        Self { first_generation, blocks: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of used slots.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len() * BLOCK - self.free.len()
    }

    /// Returns a free slot; `None` if its number would reach `limit`.
    pub(crate) fn take(&mut self, limit: u32) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let first = u32::try_from(self.blocks.len() * BLOCK).ok().filter(|first| *first < limit)?;
        let generation = self.first_generation;
        self.blocks.push((0..BLOCK).map(|_| Slot { generation, connection: None }).collect());
        self.free.extend((first + 1..first + BLOCK as u32).rev());
        Some(first)
    }

    /// Frees a slot.
    pub(crate) fn release(&mut self, slot: u32) {
        debug_assert!(self.get(slot as usize).is_some_and(|place| place.connection.is_none()), "it is empty");
        self.free.push(slot);
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Slot> {
        self.blocks.get(slot / BLOCK)?.get(slot % BLOCK)
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Slot> {
        self.blocks.get_mut(slot / BLOCK)?.get_mut(slot % BLOCK)
    }

    /// Returns the existing connections, mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.blocks.iter_mut().flatten().filter_map(|slot| slot.connection.as_mut())
    }

    /// Returns the slots that have a connection.
    pub(crate) fn used(&self) -> Vec<u32> {
        let all = (0_u32..).zip(self.blocks.iter().flatten());
        all.filter(|(_, slot)| slot.connection.is_some()).map(|(number, _)| number).collect()
    }

    /// Returns the existing connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.blocks.iter().flatten().filter_map(|slot| slot.connection.as_ref())
    }
}
