//! Applying changes and undoing them.

use std::io;

use strowger_net::{Policy, Scheduling};

use crate::error::TuneError;
use crate::host::Host;
use crate::place::Place;
use crate::state::{Record, StateFile};

/// A value to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Place of the value.
    pub place: Place,
    /// The value.
    pub value: Wanted,
}

impl Change {
    /// Sets a place to a text.
    #[must_use]
    pub fn new(place: Place, value: impl Into<String>) -> Self {
        Self { place, value: Wanted::Exactly(value.into()) }
    }
}

/// The value that a place shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This one.
    Exactly(String),
    /// The current scheduling with another slice, in nanoseconds.
    Slice(u64),
    /// The current scheduling with another nice value.
    Nice(i32),
    /// The current scheduling with another policy, and the priority that belongs to it.
    Policy(Policy, u32),
}

impl Wanted {
    /// Returns the value, given the current one.
    fn value(&self, current: &str) -> io::Result<String> {
        if let Self::Exactly(value) = self {
            return Ok(value.clone());
        }
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut scheduling: Scheduling = current.parse().map_err(wrong)?;
        match self {
            Self::Slice(slice_ns) if !scheduling.policy.is_real_time() => scheduling.slice_ns = *slice_ns,
            Self::Nice(nice) if !scheduling.policy.is_real_time() => scheduling.nice = *nice,
            Self::Policy(policy, priority) => {
                (scheduling.policy, scheduling.priority) = (*policy, *priority);
                if policy.is_real_time() {
                    // The kernel shows neither for such a thread.
                    (scheduling.slice_ns, scheduling.nice) = (0, 0);
                }
            }
            Self::Exactly(_) | Self::Slice(_) | Self::Nice(_) => {}
        }
        Ok(scheduling.to_string())
    }
}

/// What became of a change.
#[derive(Debug)]
pub struct Applied {
    /// The place.
    pub place: Place,
    /// Value before, if it could be read.
    pub former: Option<String>,
    /// Value that was set.
    pub value: String,
    /// `Ok(true)` if the value was changed, `Ok(false)` if it was in force already.
    pub outcome: Result<bool, TuneError>,
}

/// Makes changes for the tuning of this name. A failed change does not prevent the others.
///
/// # Errors
/// If the state file cannot be written: then this change and those after it have not been made.
pub fn apply(host: &Host, state: &mut StateFile, tuning: &str, changes: &[Change]) -> Result<Vec<Applied>, TuneError> {
    let mut all = Vec::new();
    for Change { place, value } in changes {
        let read = place.read(host).and_then(|former| Ok((value.value(&former)?, former)));
        let applied = |former, value, outcome| Applied { place: place.clone(), former, value, outcome };
        let (value, former) = match read {
            Ok(read) => read,
            Err(cause) => {
                all.push(applied(None, String::new(), Err(TuneError::reading(place, cause))));
                continue;
            }
        };
        if former == value {
            all.push(applied(Some(former), value, Ok(false)));
            continue;
        }
        let record =
            Record { tuning: tuning.to_owned(), place: place.clone(), former: former.clone(), applied: value.clone() };
        state.push(record)?;
        let outcome = set(host, place, &value);
        if outcome.is_err() && place.read(host).is_ok_and(|current| current == former) {
            // Nothing changed, so there is nothing to undo.
            state.pop()?;
        }
        all.push(applied(Some(former), value, outcome.map(|()| true)));
    }
    Ok(all)
}

/// Sets a value and checks that it is in force.
fn set(host: &Host, place: &Place, value: &str) -> Result<(), TuneError> {
    place.write(host, value).map_err(|cause| TuneError::setting(place, value, cause))?;
    let found = place.read(host).map_err(|cause| TuneError::reading(place, cause))?;
    if found == value {
        return Ok(());
    }
    Err(TuneError::NotKept { place: place.to_string(), wanted: value.to_owned(), found })
}

/// What undoing did with a record.
#[derive(Debug)]
pub enum Undone {
    /// The former value is in force again.
    Restored,
    /// The former value was in force already.
    Unchanged,
    /// Someone else had set another value meanwhile, given here; the former value is in force again.
    ChangedByOthers(String),
    /// The process has ended.
    Ended,
    /// The machine has started again since, which ended the change.
    Restarted,
    /// The former value could not be set. The record is kept.
    Failed(TuneError),
}

/// Restores all recorded values, the latest first, and removes the state file. Records of values that could not be
/// restored are kept, for another attempt.
///
/// # Errors
/// If the state file cannot be written.
pub fn undo(host: &Host, mut state: StateFile) -> Result<Vec<(Record, Undone)>, TuneError> {
    let records: Vec<Record> = state.records().rev().cloned().collect();
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for record in records {
        let undone = if state.is_stale() { Undone::Restarted } else { restore(host, &record) };
        if matches!(undone, Undone::Failed(_)) {
            failed.push(record.clone());
        } else if failed.is_empty() {
            // The file ends with this record.
            state.pop()?;
        }
        all.push((record, undone));
    }
    failed.reverse();
    if failed.is_empty() {
        state.remove()?;
    } else {
        state.replace(&failed)?;
    }
    Ok(all)
}

fn restore(host: &Host, record: &Record) -> Undone {
    let Record { place, former, applied, .. } = record;
    let current = match place.read(host) {
        Ok(current) => current,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Undone::Ended,
        Err(cause) => return Undone::Failed(TuneError::reading(place, cause)),
    };
    if current == *former {
        return Undone::Unchanged;
    }
    match set(host, place, former) {
        Err(error) => Undone::Failed(error),
        Ok(()) if current == *applied => Undone::Restored,
        Ok(()) => Undone::ChangedByOthers(current),
    }
}
