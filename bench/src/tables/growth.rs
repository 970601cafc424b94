//! A table that grows from empty and shrinks to empty: the longest operation, and the memory that the system gets
//! back.

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strowger_foundation::Timestamp;

use super::clock::processor_time;
use super::striped::StripedTable;
use super::table::{EXPIRES, Names, RegistrationOrder, Table};

/// Number of steps up, and of steps down.
pub const STEPS: u32 = 100;

/// Kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Kind {
    /// The server's table.
    Ours,
    /// The standard library's map, which grows by doubling.
    Std,
}

/// Results of growing and shrinking.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Growth {
    /// Kind of table.
    pub kind: Kind,
    /// Maximum number of contacts.
    pub contacts: u32,
    /// Longest operation of each step in microseconds of processor time, up, then down.
    pub longest_us: Vec<f64>,
    /// Mean duration of an operation on the way up and on the way down, in microseconds.
    pub mean_us: [f64; 2],
    /// Resident memory in bytes: before, at the maximum, at the end; for the standard map also after `shrink_to_fit`.
    pub resident: Vec<u64>,
    /// Time of `shrink_to_fit` in microseconds.
    pub told_us: Option<f64>,
}

/// A user's entry in the standard library's map.
struct Contact {
    _uri: Box<[u8]>,
    _expires: Timestamp,
}

/// Runs the measurement in a new process, so that the figures include no other memory.
///
/// # Errors
/// If that fails.
pub fn apart(kind: Kind, contacts: u32) -> Result<Growth, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let name = kind.to_possible_value().ok_or("no such table")?;
    let mut command = Command::new(program);
    command.args(["--contacts", &contacts.to_string(), "grow", name.get_name()]);
    let output = command.output().map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Fills a table and empties it.
#[must_use]
pub fn run(kind: Kind, contacts: u32) -> Growth {
    // Users are added in sequence and removed in an unrelated order.
    let order = RegistrationOrder::new(contacts);
    let by_number = |place: u32| place;
    let scattered = |place: u32| order.user_at(u64::from(place));
    match kind {
        Kind::Ours => {
            let table = StripedTable::new(16, 7);
            let now = Timestamp::from_millis(1_000);
            let before = resident();
            let up = walk(contacts, by_number, |aor, contact| table.put(now, aor, contact, 1));
            let top = resident();
            let down = walk(contacts, scattered, |aor, _| table.remove(now, aor, 2));
            settle();
            Growth::new(kind, contacts, [up, down], vec![before, top, resident()])
        }
        Kind::Std => {
            let mut table: HashMap<Box<[u8]>, Contact> = HashMap::new();
            let before = resident();
            let up = walk(contacts, by_number, |aor, contact| {
                table.insert(aor.into(), Contact { _uri: contact.into(), _expires: Timestamp::ZERO + EXPIRES });
            });
            let top = resident();
            let down = walk(contacts, scattered, |aor, _| drop(table.remove(aor)));
            settle();
            let mut resident_bytes = vec![before, top, resident()];
            let began = processor_time();
            table.shrink_to_fit();
            let told_us = Some(micros(processor_time() - began));
            settle();
            resident_bytes.push(resident());
            Growth { told_us, ..Growth::new(kind, contacts, [up, down], resident_bytes) }
        }
    }
}

impl Growth {
    fn new(kind: Kind, contacts: u32, [up, down]: [(Vec<f64>, f64); 2], resident: Vec<u64>) -> Self {
        let mean_us = [up.1, down.1];
        let longest_us = [up.0, down.0].concat();
        Self { kind, contacts, longest_us, mean_us, resident, told_us: None }
    }

    /// Returns the duration of the longest operation.
    #[must_use]
    pub fn longest(&self) -> f64 {
        self.longest_us.iter().copied().fold(0.0, f64::max)
    }
}

/// Applies `change` to all users in this order and returns the longest operation of each step and the mean.
fn walk(contacts: u32, user_at: impl Fn(u32) -> u32, mut change: impl FnMut(&[u8], &[u8])) -> (Vec<f64>, f64) {
    let mut names = Names::default();
    let mut longest = vec![Duration::ZERO; STEPS as usize];
    let mut sum = Duration::ZERO;
    let mut last = processor_time();
    for place in 0..contacts {
        let (aor, contact) = names.both(user_at(place));
        change(aor, contact);
        // One clock reading per operation: it includes the time to build the next name.
        let now = processor_time();
        let took = now - last;
        last = now;
        sum += took;
        let step = (u64::from(place) * u64::from(STEPS) / u64::from(contacts)) as usize;
        longest[step] = longest[step].max(took);
    }
    (longest.into_iter().map(micros).collect(), micros(sum) / f64::from(contacts))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Triggers the allocator to return freed memory to the system, which it does with a delay on a later request.
fn settle() {
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(10));
        drop(black_box(vec![0_u8; 1 << 16]));
    }
}

fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_and_shrinkage_are_measured() {
        for kind in [Kind::Ours, Kind::Std] {
            let growth = run(kind, 5_000);
            assert_eq!(growth.longest_us.len(), 2 * STEPS as usize);
            assert!(growth.longest() > 0.0 && growth.resident.iter().all(|bytes| *bytes > 0), "{growth:?}");
        }
    }
}
