//! Computation of the update of a record set from the zone's contents and the state of the servers.

use crate::plan::{RecordData, RecordSet};

/// An atomic update of one record set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Index of the record set in the plan.
    pub set: usize,
    /// All records that the set must have as a precondition, since it may have changed after it was read.
    pub expected: Vec<RecordData>,
    /// Records to remove.
    pub remove: Vec<RecordData>,
    /// Records to add. Existing ones get the set's TTL.
    pub add: Vec<RecordData>,
}

/// Desired state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesiredState {
    /// The server's state is unknown: leave the record as it is.
    Unknown,
    /// The server was just found alive: the record must be present exactly as planned.
    Publish,
    /// The server is alive: the record must be present. Another watcher may have changed its priority.
    Present,
    /// The server is dead: remove the record.
    Remove,
    /// The record was removed. If somebody restores it, they are assumed to know better.
    Removed,
}

/// Differences between a record set and its desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) remove: Vec<RecordData>,
    pub(crate) add: Vec<RecordData>,
    /// Whether all servers of the set are dead, so that their records stay.
    pub(crate) is_last_kept: bool,
    /// Entries that somebody has restored although their servers are dead.
    pub(crate) restored: Vec<usize>,
}

impl Difference {
    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

/// Compares `found` with the desired state.
pub(crate) fn difference(set: &RecordSet, desired: &[DesiredState], found: &RecordSetContents) -> Difference {
    let mut difference = Difference::default();
    for (index, (entry, desired)) in set.entries.iter().zip(desired).enumerate() {
        let same = || found.records.iter().filter(|data| data.is_of_same_server(&entry.data));
        match desired {
            DesiredState::Unknown => {}
            DesiredState::Publish => {
                difference.remove.extend(same().filter(|data| **data != entry.data).cloned());
                if !found.records.contains(&entry.data) {
                    difference.add.push(entry.data.clone());
                }
            }
            DesiredState::Present if same().next().is_none() => difference.add.push(entry.data.clone()),
            DesiredState::Present => {}
            DesiredState::Remove => difference.remove.extend(same().cloned()),
            DesiredState::Removed if same().next().is_some() => difference.restored.push(index),
            DesiredState::Removed => {}
        }
    }
    let stays = |data: &&RecordData| !difference.remove.contains(data);
    let left: Vec<RecordData> = found.records.iter().filter(stays).cloned().collect();
    if left.is_empty() && difference.add.is_empty() && !found.records.is_empty() {
        // A zone without any server is worse than one with a dead server.
        difference.remove.clear();
        difference.is_last_kept = true;
        return difference;
    }
    if desired.contains(&DesiredState::Publish) && found.ttl_s != set.ttl_s {
        // All records of a set have the same TTL (RFC 2181 §5.2).
        difference.add.extend(left);
    }
    difference
}

/// Contents of a record set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSetContents {
    /// Its records; empty if the name does not exist.
    pub records: Vec<RecordData>,
    /// TTL in seconds; zero if there are no records.
    pub ttl_s: u32,
}
