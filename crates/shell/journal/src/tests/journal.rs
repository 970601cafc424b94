//! Group commit, limits, rotation, removal.

use super::{EIO, ENOSPC, at, commit, open, record, replayed, settings};
use crate::simulated::{Failure, SimDisk};
use crate::{
    CommitError, Disk as _, Journal, JournalError, MAX_GROUP, MAX_RECORD, Operation, PushError, Segment, Settings,
};

#[test]
fn a_group_is_one_write_and_one_sync() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    let before = disk.operations();
    commit(&mut journal, &(0..5).map(|number| record(number, 50)).collect::<Vec<_>>(), 2);
    assert_eq!(disk.operations() - before, 2);
    journal.commit(at(3)).expect("an empty group is nothing");
    assert_eq!(disk.operations() - before, 2);
    let status = journal.status();
    assert_eq!((status.groups, status.records, status.segments, status.current), (1, 5, 1, 1));
}

#[test]
fn records_and_groups_have_limits() {
    let (mut journal, _) = open(SimDisk::new(), None);
    assert_eq!(journal.push(&vec![1; MAX_RECORD + 1]), Err(PushError::TooLong));
    let record = vec![1; MAX_RECORD];
    let mut pushed = 0;
    while journal.push(&record).is_ok() {
        pushed += 1;
    }
    assert_eq!(journal.push(&record), Err(PushError::GroupFull));
    assert_eq!((journal.pending(), pushed), (MAX_GROUP / (MAX_RECORD + 4), MAX_GROUP / (MAX_RECORD + 4)));
    journal.discard();
    assert_eq!(journal.pending(), 0);
}

#[test]
fn largest_group_is_replayed() {
    let disk = SimDisk::new();
    let settings = Settings::new(super::STORE);
    let (mut journal, _) = Journal::open(disk.clone(), settings.clone(), None, |_| at(1)).expect("opens");
    while journal.push(&vec![7; MAX_RECORD]).is_ok() {}
    let pushed = journal.pending() as u64;
    journal.commit(at(2)).expect("is committed");
    let (journal, opened) = Journal::open(disk.restarted(), settings, None, |_| at(3)).expect("opens");
    assert_eq!((opened.records, replayed(&journal, &opened).len() as u64), (pushed, pushed));
}

#[test]
fn a_full_journal_refuses_commits_until_a_checkpoint() {
    let settings = Settings { max_bytes: 6000, ..settings() };
    let (mut journal, _) = Journal::open(SimDisk::new(), settings, None, |_| at(1)).expect("opens");
    let mut now = 1;
    let refused = loop {
        now += 1;
        journal.push(&record(now, 500)).expect("has room");
        if let Err(refused) = journal.commit(at(now)) {
            break refused;
        }
    };
    assert!(matches!(refused, CommitError::Full { limit: 6000, bytes } if bytes > 5000), "{refused}");
    assert!(journal.fault().is_none(), "the disk is well");
    let last = journal.closed().last().expect("has some").number;
    journal.remove_through(last).expect("they are removed");
    commit(&mut journal, &[record(now, 500)], now);
    assert_eq!(journal.status().full, 1);
}

#[test]
fn rotation_closes_all_committed_records() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    assert_eq!(journal.rotate(at(2)), Ok(0), "there is nothing to close");
    commit(&mut journal, &[record(1, 10)], 2);
    assert_eq!(journal.rotate(at(3)), Ok(1));
    let closed = journal.closed().to_vec();
    assert_eq!(closed, [Segment { number: 1, len: 128 + 52 + 4 + 18 }]);
    assert_eq!(journal.rotate(at(3)), Ok(1));
    let mut records = Vec::new();
    let mut reader = journal.reader();
    std::thread::spawn(move || {
        reader.read(closed[0], |record| records.push(record.to_owned())).expect("was verified");
        assert_eq!(records, [record(1, 10)]);
    })
    .join()
    .expect("another thread may read");
    journal.remove_through(1).expect("it is removed");
    assert_eq!((journal.closed(), disk.names().len()), (&[][..], 1));
}

#[test]
fn a_failed_file_removal_is_retried() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    commit(&mut journal, &[record(1, 10)], 2);
    journal.rotate(at(3)).expect("rotates");
    disk.fail(Failure::always(Operation::Remove, EIO));
    journal.remove_through(1).expect_err("it cannot be removed");
    assert!(journal.fault().is_none() && journal.closed().is_empty() && journal.status().segments == 2);
    disk.heal();
    journal.remove_through(0).expect("now it can");
    assert_eq!((disk.names().len(), journal.status().segments), (1, 1));
}

#[test]
fn commits_resume_after_a_full_disk() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    commit(&mut journal, &[record(1, 100)], 2);
    disk.set_capacity(Some(600));
    journal.push(&record(2, 900)).expect("has room");
    let Err(CommitError::Fault(fault)) = journal.commit(at(3)) else { panic!("there is no room") };
    assert_eq!(fault.os_error(), Some(ENOSPC));
    assert!(fault.to_string().contains("make room"), "{fault}");
    let before = disk.operations();
    journal.push(&record(3, 1)).expect("has room");
    journal.commit(at(4)).expect_err("nothing is taken before the recovery");
    assert_eq!(disk.operations(), before, "and the disk is left alone");
    // There is room for a header but not for a group: repeated attempts leave no empty segments.
    for now in 5..50 {
        journal.recover(at(now)).expect("a header fits");
        journal.push(&record(4, 900)).expect("has room");
        journal.commit(at(now)).expect_err("a group does not");
    }
    assert!(disk.names().len() <= 3, "{:?}", disk.names());
    disk.set_capacity(None);
    journal.recover(at(60)).expect("there is room");
    commit(&mut journal, &[record(5, 900)], 61);
    let (journal, opened) = open(disk.restarted(), None);
    assert_eq!(replayed(&journal, &opened), [record(1, 100), record(5, 900)]);
}

#[test]
fn repeated_opening_leaves_one_segment() {
    let mut disk = SimDisk::new();
    commit(&mut open(disk.clone(), None).0, &[record(1, 10)], 2);
    for _ in 0..20 {
        disk = disk.restarted();
        let (journal, opened) = open(disk.clone(), None);
        assert_eq!(replayed(&journal, &opened), [record(1, 10)]);
    }
    assert_eq!(disk.names().len(), 1);
}

#[test]
fn a_segment_changed_while_read_yields_no_record() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    commit(&mut journal, &[record(1, 10), record(2, 10)], 2);
    journal.rotate(at(3)).expect("rotates");
    let segment = journal.closed()[0];
    let name = &disk.names()[0];
    let mut bytes = disk.contents(name).expect("is there");
    bytes[190] ^= 4;
    disk.put(name, &bytes);
    let result = journal.reader().read(segment, |_| panic!("a record of a damaged segment"));
    assert!(matches!(result, Err(JournalError::Changed { offset: 128, .. })), "{result:?}");
}

#[test]
fn existing_files_are_still_counted_after_a_fault() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(disk.clone(), None);
    let shown = |journal: &Journal<SimDisk>| (journal.status().segments, journal.status().bytes);
    let on_disk = || {
        let lengths = disk.names().iter().map(|name| disk.len(name).expect("there")).collect::<Vec<_>>();
        (lengths.len() as u64, lengths.iter().sum::<u64>())
    };
    for number in 2..4 {
        commit(&mut journal, &[record(number, 10)], number);
        journal.rotate(at(number)).expect("rotates");
    }
    // With a segment without groups, and with one that has groups.
    for number in 5..7 {
        assert_eq!(shown(&journal), on_disk());
        disk.set_capacity(Some(0));
        journal.push(&record(number, 10)).expect("it fits");
        journal.commit(at(number)).expect_err("the disk is full");
        assert_eq!(shown(&journal), on_disk());
        journal.recover(at(number)).expect_err("still");
        assert_eq!((shown(&journal), journal.status().current), (on_disk(), 0));
        disk.set_capacity(None);
        journal.recover(at(number)).expect("there is room");
        assert_eq!(shown(&journal), on_disk());
        commit(&mut journal, &[record(number, 10)], number);
    }
}
