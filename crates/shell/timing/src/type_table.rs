//! Table of the message types that have histograms of their own.

use crate::message_type::{MessageType, MethodName};

/// Maximum number of message types with histograms of their own; further ones are counted as [`MessageType::Other`].
pub const MAX_MESSAGE_TYPES: usize = 64;

/// Number of places of the table that finds the index of a type: a power of two, and several times the number of
/// types, so that probes are short.
const PLACES: usize = 256;

const _: () = assert!(PLACES.is_power_of_two() && PLACES > 2 * (MAX_MESSAGE_TYPES + 1));

/// A message type in a table, which finds its histograms at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeIndex(u8);

impl TypeIndex {
    /// Returns the index as a number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the index of a [number](Self::number).
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        Self(number)
    }

    pub(crate) fn position(self) -> usize {
        usize::from(self.0)
    }
}

/// The types, in the order in which they were first seen.
#[derive(Clone, Debug)]
pub(crate) struct TypeTable {
    types: Vec<MessageType>,
    /// Hash table with linear probing: one more than an index in `types`; 0 if empty.
    places: [u8; PLACES],
}

impl Default for TypeTable {
    fn default() -> Self {
        Self { types: Vec::new(), places: [0; PLACES] }
    }
}

impl TypeTable {
    /// Returns the index of a type, which is added if it is new. An index stays valid.
    pub(crate) fn index_of(&mut self, message: MessageType) -> TypeIndex {
        let mut place = place_of(message);
        loop {
            let index = match self.places[place] {
                0 => break,
                used => used - 1,
            };
            if self.types.get(usize::from(index)) == Some(&message) {
                return TypeIndex(index);
            }
            place = (place + 1) % PLACES;
        }
        self.add(message, place)
    }

    /// Adds a type, for which `place` is free.
    #[cold]
    fn add(&mut self, message: MessageType, place: usize) -> TypeIndex {
        // One beyond the limit, for `Other`.
        if self.types.len() >= MAX_MESSAGE_TYPES && message != MessageType::Other {
            return self.index_of(MessageType::Other);
        }
        self.types.push(message);
        self.places[place] = self.types.len() as u8;
        TypeIndex(self.places[place] - 1)
    }

    /// Returns the types by their position.
    pub(crate) fn types(&self) -> &[MessageType] {
        &self.types
    }
}

/// Returns where the search for a type begins.
fn place_of(message: MessageType) -> usize {
    let number = |method: MethodName| u32::from(method as u8);
    let key = match message {
        MessageType::KeepAlive => 1,
        MessageType::Other => 2,
        MessageType::Request(method) => 16 + number(method),
        MessageType::Response(status, method) => u32::from(status) * 64 + number(method),
    };
    (key.wrapping_mul(0x9E37_79B1) >> 24) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_keeps_its_index_and_those_beyond_the_limit_are_others() {
        let mut table = TypeTable::default();
        let types: Vec<_> = (0..200).map(|n| MessageType::Response(100 + n, MethodName::Bye)).collect();
        let indices: Vec<_> = types.iter().map(|message| table.index_of(*message)).collect();
        let (own, others) = indices.split_at(MAX_MESSAGE_TYPES);
        assert!(own.iter().enumerate().all(|(position, index)| index.position() == position));
        assert!(others.iter().all(|index| table.types()[index.position()] == MessageType::Other));
        assert_eq!(types.iter().map(|message| table.index_of(*message)).collect::<Vec<_>>(), indices);
        assert_eq!(table.types().len(), MAX_MESSAGE_TYPES + 1);
    }
}
