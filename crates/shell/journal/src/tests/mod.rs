//! Properties that hold whatever the disk does.

mod crash;
mod damage;
mod folder;
mod journal;
mod lost;
pub(crate) mod planted;

use crate::simulated::SimDisk;
use crate::{Disk, Journal, JournalContents, Settings, Stamp};

const STORE: [u8; 16] = *b"the store of now";
const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// Returns settings with small segments, so that a short run has many.
fn settings() -> Settings {
    Settings { segment_bytes: 2048, max_bytes: 1 << 20, ..Settings::new(STORE) }
}

fn at(store_ms: u64) -> Stamp {
    Stamp { store_ms, wall_ms: store_ms + 7, boot_ms: store_ms / 2, boot_id: *b"this boot's name" }
}

/// Returns the record with that number; it is unique and contains no zero byte.
fn record(number: u64, len: usize) -> Vec<u8> {
    let mut record = format!("{number:08}").into_bytes();
    record.extend((0..len).map(|at| (number as usize * 31 + at * 7) as u8 | 1));
    record
}

fn open<D: Disk>(disk: D, checkpointed: Option<u64>) -> (Journal<D>, JournalContents) {
    Journal::open(disk, settings(), checkpointed, |last| at(last.map_or(1, |last| last.store_ms + 1))).expect("opens")
}

fn replayed<D: Disk>(journal: &Journal<D>, opened: &JournalContents) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut reader = journal.reader();
    for &segment in &opened.segments {
        reader.read(segment, |record| records.push(record.to_owned())).expect("was verified");
    }
    assert_eq!(records.len() as u64, opened.records);
    records
}

fn commit<D: Disk>(journal: &mut Journal<D>, records: &[Vec<u8>], now: u64) {
    for record in records {
        journal.push(record).expect("has room");
    }
    journal.commit(at(now)).expect("is committed");
}

fn shown(disk: &SimDisk) -> Vec<Vec<u8>> {
    let (journal, opened) = open(disk.clone(), None);
    replayed(&journal, &opened)
}
