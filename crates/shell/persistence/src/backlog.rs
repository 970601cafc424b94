//! Pending records, merged to the latest state of each address of record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;

use strowger_registrar::{Record, record};

/// Overhead per entry, in bytes.
const ENTRY_BYTES: usize = 96;

/// The merged state of each address, or a refresh if the state itself is elsewhere.
#[derive(Debug)]
pub(crate) struct Backlog {
    states: HashMap<Box<[u8]>, Vec<u8>>,
    bytes: usize,
    max_addresses: usize,
    max_bytes: usize,
    scratch: Vec<u8>,
}

/// Result of adding a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddResult {
    Added,
    /// No room for another address.
    Full,
    /// Not a valid record.
    Bad,
}

impl Backlog {
    pub(crate) fn new(max_addresses: usize, max_bytes: usize) -> Self {
        Self { states: HashMap::new(), bytes: 0, max_addresses, max_bytes, scratch: Vec::new() }
    }

    pub(crate) fn unbounded() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }

    /// Takes the contents and leaves an empty backlog with the same limits.
    pub(crate) fn take(&mut self) -> Self {
        let empty = Self::new(self.max_addresses, self.max_bytes);
        mem::replace(self, empty)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> AddResult {
        let Ok(record) = Record::parse(bytes) else { return AddResult::Bad };
        if let Some(state) = self.states.get_mut(record.aor()) {
            record::merge(Some(state), bytes, &mut self.scratch);
            self.bytes = self.bytes - state.len() + self.scratch.len();
            state.clear();
            state.extend_from_slice(&self.scratch);
            return AddResult::Added;
        }
        let cost = ENTRY_BYTES + record.aor().len() + bytes.len();
        if self.states.len() >= self.max_addresses || self.bytes.saturating_add(cost) > self.max_bytes {
            return AddResult::Full;
        }
        self.bytes += cost;
        self.states.insert(record.aor().into(), bytes.to_vec());
        AddResult::Added
    }

    /// Merges all of `newer`; returns the number of addresses without room.
    pub(crate) fn merge(&mut self, newer: &Self) -> u64 {
        newer.states.values().map(|state| u64::from(self.add(state) == AddResult::Full)).sum()
    }

    /// Does the same as [`merge`](Self::merge), moving states where possible.
    pub(crate) fn merge_owned(&mut self, newer: Self) -> u64 {
        if self.is_empty() && newer.max_addresses == self.max_addresses && newer.max_bytes == self.max_bytes {
            *self = newer;
            return 0;
        }
        let mut lost = 0;
        for (aor, state) in newer.states {
            let cost = ENTRY_BYTES + aor.len() + state.len();
            let has_room = self.states.len() < self.max_addresses && self.bytes.saturating_add(cost) <= self.max_bytes;
            match self.states.entry(aor) {
                Entry::Vacant(vacant) if has_room => {
                    self.bytes += cost;
                    vacant.insert(state);
                }
                Entry::Vacant(_) => lost += 1,
                Entry::Occupied(mut occupied) => {
                    record::merge(Some(occupied.get()), &state, &mut self.scratch);
                    self.bytes = self.bytes - occupied.get().len() + self.scratch.len();
                    occupied.get_mut().clone_from(&self.scratch);
                }
            }
        }
        lost
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.states.values().map(Vec::as_slice)
    }
}
