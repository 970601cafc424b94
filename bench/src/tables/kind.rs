//! The tables that are compared.

use std::fmt;

use strowger_foundation::Timestamp;

use crate::tables::chained::ChainedTable;
use crate::tables::striped::StripedTable;
use crate::tables::table::{Table, ThreadIndex, Waits};

/// Kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Chains in this many buckets.
    Buckets(usize),
    /// The server's own table.
    Ours,
    /// No table, to show the cost of the rest of a server.
    Nothing,
}

impl Kind {
    /// All compared tables.
    pub const ALL: [Self; 3] = [Self::Buckets(512), Self::Buckets(1 << 17), Self::Ours];

    /// Returns the name in options.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Buckets(count) => count.to_string(),
            Self::Ours => "ours".to_owned(),
            Self::Nothing => "none".to_owned(),
        }
    }

    /// Parses a name.
    ///
    /// # Errors
    /// If there is no table of this name.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "ours" => Ok(Self::Ours),
            "none" => Ok(Self::Nothing),
            count => count.parse().map(Self::Buckets).map_err(|_| "a number of buckets, ours, or none".to_owned()),
        }
    }

    /// Creates an empty table for `threads` threads.
    #[must_use]
    pub fn make(self, threads: usize) -> Box<dyn Table> {
        match self {
            Self::Buckets(count) => Box::new(ChainedTable::new(count, 7)),
            Self::Ours => Box::new(StripedTable::new(16 * threads, 7)),
            Self::Nothing => Box::new(NullTable),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buckets(512) => f.write_str("512 buckets"),
            Self::Buckets(131_072) => f.write_str("131,072 buckets"),
            Self::Buckets(count) => write!(f, "{count} buckets"),
            Self::Ours => f.write_str("ours"),
            Self::Nothing => f.write_str("no table"),
        }
    }
}

/// Stores nothing.
pub(crate) struct NullTable;

impl Table for NullTable {
    fn put(&self, _: Timestamp, _: &[u8], _: &[u8], _: u32) {}

    fn lookup(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> bool {
        false
    }

    fn step(&self, _: Timestamp, _: ThreadIndex) -> Option<usize> {
        None
    }

    fn sweep(&self, _: Timestamp, _: usize, _: usize) -> usize {
        0
    }

    fn owner(&self, _: &[u8], _: usize) -> Option<usize> {
        None
    }

    fn len(&self) -> usize {
        0
    }

    fn waits(&self) -> Waits {
        Waits::default()
    }
}
