//! Changes of an entry as an engine stores them in addition to the logs.

use std::collections::BTreeMap;
use std::time::Duration;

use strowger_members::Entry;
use strowger_registrar::{Record, Version};

/// A change of a contact, stored in an engine.
#[derive(Debug)]
pub(crate) struct StoredChange {
    pub(crate) version: Version,
    /// Expiry in ms of store time. The change must outlive any older one of its contact, which would otherwise
    /// reappear.
    pub(crate) until_ms: u64,
    /// Record of one change.
    pub(crate) record: Vec<u8>,
}

/// Returns the newest change of each contact in an entry.
pub(crate) fn of_entry(entry: &Entry, longest: Duration) -> BTreeMap<u64, StoredChange> {
    let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let mut newest: BTreeMap<u64, StoredChange> = BTreeMap::new();
    for record in entry.records.iter().filter_map(|record| Record::parse(record).ok()) {
        record.for_each_change(|change| {
            if newest.get(&change.contact).is_none_or(|known| known.version <= change.version) {
                let until_ms = change.expires_ms.max(change.version.millis().saturating_add(longest_ms));
                let kept = StoredChange { version: change.version, until_ms, record: change.record.to_vec() };
                newest.insert(change.contact, kept);
            }
        });
    }
    newest
}
