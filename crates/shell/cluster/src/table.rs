//! The location table, as it takes what other members have changed.

use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_registrar::{Locations, Record};

use crate::Now;

/// What takes changes of others.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) locations: Arc<Locations>,
    pub(crate) now: Now,
}

impl Table {
    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Takes a record; where a change in it got another version, what is known now.
    pub(crate) fn put(&self, record: &[u8]) -> Option<Box<[u8]>> {
        let record = Record::parse(record).ok()?;
        let now = self.now();
        if !self.locations.take(now, &record) {
            return None;
        }
        let mut known = Vec::new();
        self.locations.write_known(now, &record, &mut known);
        Some(known.into())
    }
}
