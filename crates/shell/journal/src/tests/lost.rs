//! Files that disappear while the server runs, legitimately or not, and what is known of a checkpoint.

use super::{EIO, ENOSPC, EROFS, at, commit, open, record, replayed, settings};
use crate::simulated::{Failure, SimDisk};
use crate::{CheckpointPosition, DamageKind, Disk as _, Journal, JournalContents, Operation};

/// Creates three segments with one record each, two of them closed.
fn three() -> (SimDisk, Journal<SimDisk>) {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    for number in 1..=3 {
        commit(&mut journal, &[record(number, 100)], 10 + number);
        if number < 3 {
            journal.rotate(at(10 + number)).expect("rotates");
        }
    }
    (disk, journal)
}

fn name(number: u64) -> String {
    format!("journal-{number:016x}.log")
}

/// Makes a group fail.
fn fault(disk: &SimDisk, journal: &mut Journal<SimDisk>) {
    disk.fail(Failure::once(Operation::Append, ENOSPC));
    journal.push(&record(99, 100)).expect("room");
    journal.commit(at(20)).expect_err("there is no room on the disk");
}

fn reopen(disk: &SimDisk, checkpointed: impl Into<CheckpointPosition>) -> (Vec<Vec<u8>>, JournalContents, SimDisk) {
    let disk = disk.restarted();
    let (journal, opened) = Journal::open(disk.clone(), settings(), checkpointed, |_| at(50)).expect("opens");
    (replayed(&journal, &opened), opened, disk)
}

#[test]
fn segments_removed_by_a_checkpoint_are_not_reported_lost() {
    let (disk, mut journal) = three();
    let first = journal.closed()[0];
    fault(&disk, &mut journal);
    // The checkpoint thread removes the file; the journal is told later.
    journal.reader().remove(first).expect("removed");
    let recovered = journal.recover(at(21)).expect("recovers");
    assert_eq!(recovered.lost, []);
    journal.remove_through(first.number).expect("told now");
    assert_eq!(journal.closed().iter().map(|segment| segment.number).collect::<Vec<_>>(), [2, 3]);
    commit(&mut journal, &[record(5, 100)], 22);
    let (shown, opened, _) = reopen(&disk, Some(first.number));
    assert_eq!(shown, [record(2, 100), record(3, 100), record(5, 100)]);
    assert_eq!(opened.damage, []);
}

#[test]
fn remaining_files_count_when_some_are_lost() {
    for lost in [vec![1], vec![2], vec![3], vec![1, 2], vec![1, 3], vec![2, 3]] {
        let (disk, mut journal) = three();
        fault(&disk, &mut journal);
        lost.iter().for_each(|number| disk.remove(&name(*number)).expect("is there"));
        // The first attempt fails after it has found the lost files, which must not be forgotten.
        disk.fail(Failure::once(Operation::SyncFolder, EIO));
        journal.recover(at(21)).expect_err("the folder cannot be synced");
        assert_eq!(journal.recover(at(22)).expect("recovers").lost, lost);
        commit(&mut journal, &[record(5, 100)], 23);
        let left: Vec<_> = [1, 2, 3]
            .into_iter()
            .filter(|number| !lost.contains(number))
            .chain([5])
            .map(|at| record(at, 100))
            .collect();
        // All of it can be read for a checkpoint.
        let (mut reader, mut records) = (journal.reader(), Vec::new());
        for &segment in journal.closed() {
            reader.read(segment, |record| records.push(record.to_owned())).expect("is whole");
        }
        assert_eq!(records, left[..left.len() - 1], "without {lost:?}");
        let (shown, opened, again) = reopen(&disk, None);
        assert_eq!(shown, left, "without {lost:?}");
        assert!(opened.damage.iter().all(|damage| damage.kind == DamageKind::Removed && damage.is_loss()));
        assert!(!opened.damage.is_empty(), "it is reported");
        let (shown, opened, _) = reopen(&again, None);
        assert_eq!(shown, left);
        assert!(!opened.damage.is_empty(), "until a checkpoint has it");
        // A checkpoint removes only closed segments.
        let last = journal.closed().last().expect("has some").number;
        journal.remove_through(last).expect("removed");
        assert_eq!(disk.names().len(), 1, "{:?}", disk.names());
        let (shown, opened, _) = reopen(&disk, Some(last));
        assert_eq!((shown, opened.damage), (vec![record(5, 100)], vec![]));
    }
}

#[test]
fn a_crash_during_recovery_from_a_loss_loses_no_more() {
    for lost in [vec![1], vec![2], vec![3], vec![1, 3], vec![2, 3]] {
        let count = {
            let (disk, mut journal) = three();
            fault(&disk, &mut journal);
            lost.iter().for_each(|number| disk.remove(&name(*number)).expect("is there"));
            let before = disk.operations();
            journal.recover(at(21)).expect("recovers");
            disk.operations() - before
        };
        for stop in 0..=count {
            let (disk, mut journal) = three();
            fault(&disk, &mut journal);
            lost.iter().for_each(|number| disk.remove(&name(*number)).expect("is there"));
            disk.sync_folder().expect("the loss is durable");
            disk.stop_at(disk.operations() + stop);
            let is_well = journal.recover(at(21)).is_ok();
            for choice in disk.choices() {
                let (shown, opened, _) = reopen(&disk.crash(choice), None);
                // The failed group may be there until it is settled.
                let shown: Vec<_> = shown.into_iter().filter(|shown| *shown != record(99, 100)).collect();
                let left: Vec<_> =
                    [1, 2, 3].into_iter().filter(|number| !lost.contains(number)).map(|at| record(at, 100)).collect();
                if is_well {
                    assert_eq!(shown, left, "without {lost:?}, {choice:?}");
                }
                assert!(shown.iter().all(|record| left.contains(record)), "without {lost:?}, {stop}, {choice:?}");
                // For the newest files, there is no evidence that they existed.
                let is_end = lost == [3] || lost == [2, 3];
                assert!(!opened.damage.is_empty() || is_end && !is_well, "without {lost:?}, {stop}, {choice:?}");
            }
        }
    }
}

#[test]
fn an_unknown_checkpoint_reads_all_present_segments() {
    let (disk, mut journal) = three();
    journal.remove_through(1).expect("removed");
    let (shown, opened, disk) = reopen(&disk, CheckpointPosition::Unknown);
    assert_eq!((shown, opened.damage), (vec![record(2, 100), record(3, 100)], vec![]));
    let (shown, opened, _) = reopen(&disk, CheckpointPosition::Unknown);
    assert_eq!((shown.len(), opened.damage), (2, vec![]));
    let (shown, opened, _) = reopen(&SimDisk::new(), CheckpointPosition::Unknown);
    assert_eq!((shown.len(), opened.damage), (0, vec![]));
}

#[test]
fn an_unknown_checkpoint_ignores_a_reappeared_old_segment() {
    let (disk, _journal) = three();
    // A loss of power has undone the first of two removals.
    disk.remove(&name(2)).expect("is there");
    let (shown, opened, disk) = reopen(&disk, CheckpointPosition::Unknown);
    assert_eq!(shown, [record(3, 100)]);
    assert_eq!(opened.damage.iter().map(|damage| damage.segment).collect::<Vec<_>>(), [1]);
    assert!(disk.names().contains(&format!("{}.damaged", name(1))), "nothing is deleted on a guess");
}

#[test]
fn an_unknown_checkpoint_still_reports_damage() {
    let (disk, _journal) = three();
    let mut bytes = disk.contents(&name(2)).expect("is there");
    bytes[20] ^= 1;
    disk.put(&name(2), &bytes);
    let (shown, opened, _) = reopen(&disk, CheckpointPosition::Unknown);
    assert_eq!(shown, [record(1, 100)]);
    assert!(opened.damage.iter().any(|damage| damage.kind == DamageKind::Corrupt));
}

#[test]
fn segments_of_an_unsettled_checkpoint_stay_until_settled() {
    let (disk, _journal) = three();
    let disk = disk.restarted();
    let (mut journal, opened) =
        Journal::open(disk.clone(), settings(), CheckpointPosition::Unsettled(2), |_| at(50)).expect("opens");
    assert_eq!((replayed(&journal, &opened), &*opened.damage), (vec![record(3, 100)], &[][..]));
    commit(&mut journal, &[record(4, 100)], 51);
    assert_eq!(journal.status().segments, 3 + u64::from(journal.closed().len() == 1));
    // The database lost data that it seemed to have.
    let (shown, opened, _) = reopen(&disk, Some(1));
    assert_eq!((shown, opened.damage), (vec![record(2, 100), record(3, 100), record(4, 100)], vec![]));
    journal.rotate(at(52)).expect("rotates");
    let last = journal.closed().last().expect("has some").number;
    journal.remove_through(last).expect("removed");
    assert_eq!(disk.names().len(), 1);
}

const READ_ONLY: [Operation; 6] = [
    Operation::Append,
    Operation::Create,
    Operation::Rename,
    Operation::Remove,
    Operation::Truncate,
    Operation::SyncFolder,
];

#[test]
fn a_damaged_tail_is_kept_after_opening_read_only() {
    let (disk, journal) = three();
    drop(journal);
    let mut bytes = disk.contents(&name(3)).expect("is there");
    let group = bytes[128..].to_vec();
    bytes.extend_from_slice(b"damage");
    bytes.extend_from_slice(&group);
    disk.put(&name(3), &bytes);
    let disk = disk.restarted();
    // An intact group with a plausible number after the damage: the end of the tail is corrupt, not torn.
    let is_corrupt = |opened: &JournalContents| opened.damage.iter().any(|damage| damage.kind == DamageKind::Corrupt);
    let mut damaged = disk.contents(&name(2)).expect("is there");
    damaged[140] ^= 1;
    disk.put(&name(2), &damaged);
    READ_ONLY.into_iter().for_each(|on| disk.fail(Failure::always(on, EROFS)));
    let (mut journal, opened) = open(disk.clone(), None);
    assert!(is_corrupt(&opened) && journal.fault().is_some());
    disk.heal();
    let recovered = journal.recover(at(60)).expect("it can be written");
    assert_eq!(recovered.quarantined_as.len(), 2, "{recovered:?}");
    assert_eq!(disk.contents(&format!("{}.damaged", name(2))), Some(damaged));
    assert_eq!(disk.contents(&format!("{}.damaged", name(3))), Some(bytes));
    // A concurrent replay is not disturbed.
    assert_eq!(replayed(&journal, &opened), [record(1, 100)]);
    let (shown, opened, _) = reopen(&disk, None);
    assert_eq!((shown, opened.damage), (vec![record(1, 100)], vec![]));
}

#[test]
fn replayed_records_survive_recovery() {
    for records in 0..3 {
        let disk = SimDisk::new();
        let (mut journal, _) = open(disk.clone(), None);
        (0..records).for_each(|number| commit(&mut journal, &[record(number, 100)], 10));
        let disk = disk.restarted();
        READ_ONLY.into_iter().for_each(|on| disk.fail(Failure::always(on, EROFS)));
        let (mut journal, opened) = open(disk.clone(), None);
        disk.heal();
        journal.recover(at(60)).expect("it can be written");
        let shown: Vec<_> = (0..records).map(|number| record(number, 100)).collect();
        assert_eq!(replayed(&journal, &opened), shown);
        commit(&mut journal, &[record(7, 100)], 61);
        journal.rotate(at(62)).expect("rotates");
        let last = journal.closed().last().expect("has some").number;
        journal.remove_through(last).expect("removed");
        assert_eq!(disk.names().len(), 1, "nothing of it is left behind: {:?}", disk.names());
    }
}
