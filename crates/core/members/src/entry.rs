//! Entries of a member's log.

use crate::length_prefixed;

/// Position of an entry in its member's log. Each process starts a new incarnation, whose entries are numbered from
/// 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Process start in ms since 1970, or later if the clock has gone back. Later processes have higher values.
    pub incarnation: u64,
    /// Number within the incarnation, from 1.
    pub number: u64,
}

impl Position {
    /// Position before all entries.
    pub const BEGIN: Self = Self { incarnation: 0, number: 0 };

    /// Returns the next position of the same process.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

/// Changes that are appended together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position of this entry.
    pub position: Position,
    /// Position of the previous entry in the log, written by this process or an earlier one.
    pub after: Position,
    /// [Records](strowger_registrar::Record) of changes.
    pub records: Vec<Box<[u8]>>,
}

impl Entry {
    /// Encodes the entry: the position of the previous entry, then each record preceded by its length.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.records.iter().map(|record| record.len() + 4).sum::<usize>());
        bytes.extend_from_slice(&self.after.incarnation.to_be_bytes());
        bytes.extend_from_slice(&self.after.number.to_be_bytes());
        self.records.iter().for_each(|record| length_prefixed::write(&mut bytes, record));
        bytes
    }

    /// Decodes the entry at `position`. Returns `None` if [`to_bytes`](Self::to_bytes) did not write `bytes`.
    #[must_use]
    pub fn from_bytes(position: Position, bytes: &[u8]) -> Option<Self> {
        let (incarnation, rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let after = Position { incarnation: u64::from_be_bytes(*incarnation), number: u64::from_be_bytes(*number) };
        Some(Self { position, after, records: length_prefixed::read(rest)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_decodes_whole_or_not_at_all() {
        let position = Position { incarnation: 7, number: 3 };
        let after = Position { incarnation: 6, number: 900 };
        let records = vec![b"one".as_slice().into(), b"".as_slice().into(), b"three".as_slice().into()];
        let entry = Entry { position, after, records };
        let bytes = entry.to_bytes();
        assert_eq!(Entry::from_bytes(position, &bytes), Some(entry));
        assert_eq!(Entry::from_bytes(position, &bytes[..bytes.len() - 1]), None);
        assert_eq!(Entry::from_bytes(position, &bytes[..12]), None);
    }
}
