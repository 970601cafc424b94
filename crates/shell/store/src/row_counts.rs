//! Expected numbers of rows.

use std::ops::RangeInclusive;

use rusqlite::Connection;

use crate::error::Fault;
use crate::settings::{self, ROWS_KEY, Setting};

/// Number of slots of the location table.
pub(crate) const SLOTS: usize = 256;

/// Number of rows per slot. Nothing else reveals rows lost with a damaged page.
pub(crate) struct RowCounts(Box<[u64; SLOTS]>);

impl RowCounts {
    /// Reads the counts; `None` if they are damaged.
    pub(crate) fn read(connection: &Connection) -> Result<Option<Self>, Fault> {
        let mut counts = Box::new([0; SLOTS]);
        match settings::read(connection, ROWS_KEY)? {
            Setting::Absent => {}
            Setting::Sound(value) if value.len() == SLOTS * 8 => {
                for (count, bytes) in counts.iter_mut().zip(value.as_chunks().0) {
                    *count = u64::from_be_bytes(*bytes);
                }
            }
            Setting::Sound(_) | Setting::Damaged => return Ok(None),
        }
        Ok(Some(Self(counts)))
    }

    /// Reads the counts, or counts the rows if necessary.
    pub(crate) fn read_or_count(connection: &Connection) -> Result<Self, Fault> {
        Self::read(connection)?.map_or_else(|| Self::count(connection), Ok)
    }

    /// Counts the rows.
    pub(crate) fn count(connection: &Connection) -> Result<Self, Fault> {
        let mut counts = Self(Box::new([0; SLOTS]));
        let mut statement = connection.prepare_cached("SELECT slot, count(*) FROM locations GROUP BY slot")?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let slot = row.get_ref(0)?.as_i64().ok().and_then(|slot| counts.0.get_mut(usize::try_from(slot).ok()?));
            if let Some(count) = slot {
                *count = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
            }
        }
        Ok(counts)
    }

    pub(crate) fn write(&self, connection: &Connection) -> Result<(), Fault> {
        let value: Vec<u8> = self.0.iter().flat_map(|count| count.to_be_bytes()).collect();
        settings::write(connection, ROWS_KEY, &value)
    }

    pub(crate) fn add(&mut self, slot: u8) {
        self.0[usize::from(slot)] += 1;
    }

    pub(crate) fn subtract(&mut self, slot: u8) {
        let count = &mut self.0[usize::from(slot)];
        *count = count.saturating_sub(1);
    }

    pub(crate) fn sum(&self, slots: RangeInclusive<u8>) -> u64 {
        self.0[usize::from(*slots.start())..=usize::from(*slots.end())].iter().sum()
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
