//! Entries of a member's log.

use crate::length_prefixed;

/// Where an entry stands in its member's log. A process begins a new incarnation, in which entries are numbered from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Later processes have higher ones: milliseconds since 1970, or more where the clock has gone back.
    pub incarnation: u64,
    /// From 1.
    pub number: u64,
}

impl Position {
    /// Before all entries.
    pub const BEGIN: Self = Self { incarnation: 0, number: 0 };

    /// The next one of the same process.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

/// Some changes that are appended as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub position: Position,
    /// Where the entry stands that was appended before it, by this process or an earlier one.
    pub after: Position,
    /// [Records](strowger_registrar::Record) of changes.
    pub records: Vec<Box<[u8]>>,
}

impl Entry {
    /// The entry as bytes: where the one before stands, and each record behind its length.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.records.iter().map(|record| record.len() + 4).sum::<usize>());
        bytes.extend_from_slice(&self.after.incarnation.to_be_bytes());
        bytes.extend_from_slice(&self.after.number.to_be_bytes());
        self.records.iter().for_each(|record| length_prefixed::write(&mut bytes, record));
        bytes
    }

    /// The entry at `position` that [`to_bytes`](Self::to_bytes) wrote; `None` where it did not.
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
    fn an_entry_comes_back_whole_or_not_at_all() {
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
