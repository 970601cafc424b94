//! What is to be changed of a record set: a function of what is in the zone and what is known of the servers.

use crate::plan::{Data, RecordSet};
use crate::zone::Found;

/// A change of one record set, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The place of the record set in the plan.
    pub set: usize,
    /// All records that the set has to have for the change to be made: somebody else may have changed it since it was read.
    pub expected: Vec<Data>,
    /// What is taken out.
    pub remove: Vec<Data>,
    /// What is put in. What is there already gets the set's TTL.
    pub add: Vec<Data>,
}

/// What is wanted of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Its server is not known yet: it is left as it is.
    Unknown,
    /// Its server has just been found alive: it is to be there, exactly so.
    Put,
    /// Its server is alive: it is to be there. Another watcher may have given it another priority.
    Stay,
    /// Its server is dead: it is to go.
    Go,
    /// It has gone. Who puts it back is believed to know more.
    Gone,
}

/// What is to be done with a record set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) remove: Vec<Data>,
    pub(crate) add: Vec<Data>,
    /// Every server in the set is dead, and its records stay.
    pub(crate) is_last_kept: bool,
    /// The entries that somebody has put back although their servers are dead.
    pub(crate) put_back: Vec<usize>,
}

impl Difference {
    pub(crate) fn is_nothing(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

/// How `found` differs from what is wished.
pub(crate) fn difference(set: &RecordSet, wishes: &[Wish], found: &Found) -> Difference {
    let mut difference = Difference::default();
    for (index, (entry, wish)) in set.entries.iter().zip(wishes).enumerate() {
        let same = || found.records.iter().filter(|data| data.is_of_same_server(&entry.data));
        match wish {
            Wish::Unknown => {}
            Wish::Put => {
                difference.remove.extend(same().filter(|data| **data != entry.data).cloned());
                if !found.records.contains(&entry.data) {
                    difference.add.push(entry.data.clone());
                }
            }
            Wish::Stay if same().next().is_none() => difference.add.push(entry.data.clone()),
            Wish::Stay => {}
            Wish::Go => difference.remove.extend(same().cloned()),
            Wish::Gone if same().next().is_some() => difference.put_back.push(index),
            Wish::Gone => {}
        }
    }
    let stays = |data: &&Data| !difference.remove.contains(data);
    let left: Vec<Data> = found.records.iter().filter(stays).cloned().collect();
    if left.is_empty() && difference.add.is_empty() && !found.records.is_empty() {
        // A zone without a server is worse than one with a dead server.
        difference.remove.clear();
        difference.is_last_kept = true;
        return difference;
    }
    if wishes.contains(&Wish::Put) && found.ttl_s != set.ttl_s {
        // All records of a set have one TTL (RFC 2181 §5.2).
        difference.add.extend(left);
    }
    difference
}
