//! What is to be changed of a record set: a function of what is in the zone and what is known of the servers.

use crate::plan::{RecordData, RecordSet};
use crate::zone::RecordSetContents;

/// A change of one record set, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The place of the record set in the plan.
    pub set: usize,
    /// All records that the set has to have for the change to be made: somebody else may have changed it since it was read.
    pub expected: Vec<RecordData>,
    /// What is taken out.
    pub remove: Vec<RecordData>,
    /// What is put in. What is there already gets the set's TTL.
    pub add: Vec<RecordData>,
}

/// What is wanted of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesiredState {
    /// Its server is not known yet: it is left as it is.
    Unknown,
    /// Its server has just been found alive: it is to be there, exactly so.
    Publish,
    /// Its server is alive: it is to be there. Another watcher may have given it another priority.
    Present,
    /// Its server is dead: it is to go.
    Remove,
    /// It has gone. Who puts it back is believed to know more.
    Removed,
}

/// What is to be done with a record set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) remove: Vec<RecordData>,
    pub(crate) add: Vec<RecordData>,
    /// Every server in the set is dead, and its records stay.
    pub(crate) is_last_kept: bool,
    /// The entries that somebody has put back although their servers are dead.
    pub(crate) restored: Vec<usize>,
}

impl Difference {
    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

/// How `found` differs from what is wished.
pub(crate) fn difference(set: &RecordSet, wishes: &[DesiredState], found: &RecordSetContents) -> Difference {
    let mut difference = Difference::default();
    for (index, (entry, wish)) in set.entries.iter().zip(wishes).enumerate() {
        let same = || found.records.iter().filter(|data| data.is_of_same_server(&entry.data));
        match wish {
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
        // A zone without a server is worse than one with a dead server.
        difference.remove.clear();
        difference.is_last_kept = true;
        return difference;
    }
    if wishes.contains(&DesiredState::Publish) && found.ttl_s != set.ttl_s {
        // All records of a set have one TTL (RFC 2181 §5.2).
        difference.add.extend(left);
    }
    difference
}
