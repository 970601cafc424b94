//! Every byte of a journal changed in turn, truncation to every length, and inconsistent segments with correct
//! checksums.

use proptest::prelude::*;

use super::{STORE, at, commit, open, record, replayed, settings, shown};
use crate::format::{GroupBuffer, Header};
use crate::simulated::SimDisk;
use crate::{DamageKind, Journal, JournalError, Settings, Stamp};

/// Returns a journal of three segments as left by a kill, and its records.
fn written() -> (SimDisk, Vec<Vec<u8>>) {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    let records: Vec<_> = (0..9).map(|number| record(number, 20 + number as usize * 3)).collect();
    for (at, group) in records.chunks(2).enumerate() {
        commit(&mut journal, group, 10 + at as u64);
        if at % 2 == 1 {
            journal.rotate(super::at(20)).expect("the next segment begins");
        }
    }
    assert_eq!(disk.names().len(), 3);
    (disk, records)
}

fn with(disk: &SimDisk, name: &str, bytes: &[u8]) -> SimDisk {
    let other = SimDisk::new();
    for old in disk.names() {
        other.put(&old, &disk.contents(&old).expect("is there"));
    }
    other.put(name, bytes);
    other
}

/// Opens the journal and checks that replay returns a prefix of what was written, a shorter one only with a report.
fn check(disk: &SimDisk, records: &[Vec<u8>]) -> usize {
    let (journal, opened) = open(disk.clone(), None);
    let shown = replayed(&journal, &opened);
    assert!(records.starts_with(&shown), "what was never written is shown");
    assert!(shown.len() == records.len() || !opened.damage.is_empty(), "a loss is not reported");
    // What was cut off once stays cut off and is not reported as a loss again.
    drop(journal);
    let (journal, opened) = open(disk.clone(), None);
    assert_eq!(replayed(&journal, &opened), shown);
    assert!(!opened.damage.iter().any(crate::Damage::is_loss), "{:?}", opened.damage);
    shown.len()
}

#[test]
fn every_bit_flip_is_detected() {
    let (disk, records) = written();
    for name in disk.names() {
        let bytes = disk.contents(&name).expect("is there");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let shown = check(&with(&disk, &name, &bytes), &records);
                assert!(shown < records.len(), "bit {bit} of byte {at} of {name} counts for nothing");
            }
        }
    }
}

#[test]
fn byte_changes_give_no_bad_record() {
    let (disk, records) = written();
    for name in disk.names() {
        let bytes = disk.contents(&name).expect("is there");
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff, b'g'] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                check(&with(&disk, &name, &bytes), &records);
            }
        }
    }
}

#[test]
fn truncation_anywhere_is_handled() {
    let (disk, records) = written();
    let last = disk.names().pop();
    for name in disk.names() {
        let bytes = disk.contents(&name).expect("is there");
        for len in 0..bytes.len() {
            let disk = with(&disk, &name, &bytes[..len]);
            // Missing complete groups at the very end cannot be detected.
            if Some(&name) == last.as_ref() {
                let (journal, opened) = open(disk, None);
                assert!(records.starts_with(&replayed(&journal, &opened)));
            } else {
                assert!(check(&disk, &records) < records.len());
            }
        }
    }
}

#[test]
fn damage_is_reported_and_kept() {
    let (disk, records) = written();
    let name = &disk.names()[1];
    let mut bytes = disk.contents(name).expect("is there");
    bytes[140] ^= 1;
    let disk = with(&disk, name, &bytes);
    let (journal, opened) = open(disk.clone(), None);
    assert_eq!(replayed(&journal, &opened), records[..4]);
    let kinds: Vec<_> = opened.damage.iter().map(|damage| (damage.kind, damage.segment, damage.offset)).collect();
    assert_eq!(kinds, [(DamageKind::Corrupt, 2, 128), (DamageKind::Cut, 3, 0)]);
    let words = opened.damage[0].to_string();
    assert!(words.starts_with("simulated/journal-0000000000000002.log is damaged at byte 128: "), "{words}");
    assert!(words.ends_with("(kept as simulated/journal-0000000000000002.log.damaged)"), "{words}");
    assert_eq!(disk.contents(&format!("{name}.damaged")), Some(bytes));
    assert!(disk.names().iter().any(|name| name == "journal-0000000000000003.log.damaged"));
}

#[test]
fn a_torn_tail_is_no_loss() {
    let (disk, records) = written();
    let name = disk.names().pop().expect("has files");
    let bytes = disk.contents(&name).expect("is there");
    let mut torn = bytes.clone();
    torn.extend_from_slice(&bytes[128..bytes.len() - 9]);
    let disk = with(&disk, &name, &torn);
    let (journal, opened) = open(disk, None);
    assert_eq!(replayed(&journal, &opened), records);
    let [damage] = opened.damage.as_slice() else { panic!("{:?}", opened.damage) };
    assert_eq!((damage.kind, damage.offset), (DamageKind::Torn, bytes.len() as u64));
    assert!(!damage.is_loss());
}

#[test]
fn a_missing_segment_cuts_off_later_segments() {
    let (disk, records) = written();
    let [first, second, third] = [0, 1, 2].map(|at| disk.names()[at].clone());
    let other = SimDisk::new();
    other.put(&first, &disk.contents(&first).expect("is there"));
    other.put(&third, &disk.contents(&third).expect("is there"));
    let (journal, opened) = open(other, None);
    assert_eq!(replayed(&journal, &opened), records[..4]);
    let kinds: Vec<_> = opened.damage.iter().map(|damage| (damage.kind, damage.segment)).collect();
    assert_eq!(kinds, [(DamageKind::Missing, 2), (DamageKind::Cut, 3)]);
    // Segments in the checkpoint are not reported as missing.
    let other = SimDisk::new();
    other.put(&second, &disk.contents(&second).expect("is there"));
    other.put(&third, &disk.contents(&third).expect("is there"));
    let (journal, opened) = open(other, Some(1));
    assert_eq!((replayed(&journal, &opened), opened.damage), (records[4..].to_vec(), vec![]));
}

#[test]
fn an_empty_folder_after_a_checkpoint_is_a_loss() {
    let (_, opened) = open(SimDisk::new(), Some(4));
    assert_eq!(opened.damage[0].kind, DamageKind::Missing);
    let (journal, opened) = open(SimDisk::new(), None);
    assert_eq!((opened.damage, journal.status().current), (vec![], 1));
}

#[test]
fn a_segment_of_another_store_is_not_read() {
    let (disk, _) = written();
    let settings = Settings { store_id: [1; 16], ..settings() };
    let (journal, opened) = Journal::open(disk.clone(), settings, None, |_| at(1)).expect("opens");
    assert_eq!(replayed(&journal, &opened), Vec::<Vec<u8>>::new());
    assert!(opened.damage.iter().all(|damage| damage.kind == DamageKind::Foreign) && opened.damage.len() == 3);
    assert_eq!(disk.names().iter().filter(|name| name.ends_with(".damaged")).count(), 3);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let (disk, _) = written();
    let name = disk.names().pop().expect("has files");
    let mut bytes = disk.contents(&name).expect("is there");
    bytes[8] = 2;
    let sum = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&sum.to_le_bytes());
    let disk = with(&disk, &name, &bytes);
    let before: Vec<_> = disk.names().into_iter().map(|name| (disk.contents(&name), name)).collect();
    let Err(fault) = Journal::open(disk.clone(), settings(), None, |_| at(1)) else { panic!("it opens") };
    assert!(matches!(fault, JournalError::Newer { version: 2, known: 1, .. }), "{fault}");
    let after: Vec<_> = disk.names().into_iter().map(|name| (disk.contents(&name), name)).collect();
    assert_eq!(before, after);
}

/// Returns a segment with a valid header, and the checksum seed of its groups.
fn header(first_group: u64) -> (Vec<u8>, u32) {
    let mut bytes = Vec::new();
    let header =
        Header { number: 1, store_id: STORE, previous: 0, previous_len: 0, first_group, stamp: at(1), is_gap: false };
    let salt = header.write(&mut bytes);
    (bytes, salt)
}

fn group(salt: u32, number: u64, records: &[&[u8]]) -> Vec<u8> {
    let mut group = GroupBuffer::new();
    records.iter().for_each(|record| group.push(record));
    group.seal(salt, number, &at(2)).to_vec()
}

/// Recomputes the checksums.
fn resum(group: &mut [u8], salt: u32) {
    let sum = crc32c::crc32c_append(salt, &group[52..]);
    group[44..48].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32c::crc32c_append(salt, &group[..48]);
    group[48..52].copy_from_slice(&sum.to_le_bytes());
}

fn segment(bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    disk.put("journal-0000000000000001.log", bytes);
    disk
}

#[test]
fn bad_fields_with_good_crc_fail() {
    let (head, salt) = header(1);
    let good = group(salt, 1, &[b"good"]);
    let lies: [(&str, usize, u32); 6] = [
        ("a record longer than the group", 52, 9),
        ("a record shorter than the group", 52, 3),
        ("a record of four gigabytes", 52, u32::MAX),
        ("more records than there are", 40, 2),
        ("fewer records than there are", 40, 0),
        ("the number of the one before", 8, 1),
    ];
    for (lie, at, value) in lies {
        let mut bad = group(salt, 2, &[b"bad!"]);
        bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
        resum(&mut bad, salt);
        let bytes = [head.clone(), good.clone(), bad].concat();
        assert_eq!(shown(&segment(&bytes)), [b"good"], "{lie}");
    }
    for (lie, number, salt) in [("a number skipped", 3, salt), ("a group of another segment", 2, salt ^ 1)] {
        let bytes = [head.clone(), good.clone(), group(salt, number, &[b"bad!"])].concat();
        assert_eq!(shown(&segment(&bytes)), [b"good"], "{lie}");
    }
    let bytes = [head, good, group(salt, 2, &[b"too"])].concat();
    assert_eq!(shown(&segment(&bytes)), [b"good".to_vec(), b"too".to_vec()]);
}

#[test]
fn the_stamp_survives() {
    let disk = SimDisk::new();
    let (mut journal, opened) = open(disk.clone(), None);
    assert_eq!(opened.last_stamp, None);
    commit(&mut journal, &[record(1, 1)], 500);
    let (_, opened) = open(disk.restarted(), None);
    assert_eq!(opened.last_stamp, Some(at(500)));
    let later = |_: Option<Stamp>| Stamp { boot_id: [9; 16], ..at(900) };
    let disk = disk.restarted();
    drop(Journal::open(disk.clone(), settings(), None, later).expect("opens"));
    // The group carried over does not bring back the old boot id.
    let (_, opened) = open(disk, None);
    assert_eq!(opened.last_stamp, Some(later(None)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_give_no_records(bytes in proptest::collection::vec(any::<u8>(), 0..600), headed in any::<bool>()) {
        let (head, salt) = header(1);
        let bytes = if headed { [head, group(salt, 1, &[b"good"]), bytes].concat() } else { bytes };
        let shown = shown(&segment(&bytes));
        prop_assert_eq!(shown.len(), usize::from(headed));
    }

    #[test]
    fn several_damages_at_once(changes in proptest::collection::vec((0..3_usize, any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let (mut disk, records) = written();
        for (file, at, value) in changes {
            let name = disk.names()[file].clone();
            let mut bytes = disk.contents(&name).expect("is there");
            let at = at.index(bytes.len());
            bytes[at] = value;
            disk = with(&disk, &name, &bytes);
        }
        check(&disk, &records);
    }
}
