//! Tests on a real folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::{at, commit, open, record, replayed};
use crate::simulated::{Failure, SimDisk};
use crate::{CommitError, Disk as _, Folder, JournalError, Operation};

#[test]
fn the_folder_is_owner_only_and_keeps_committed_records() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("data/journal");
    let records: Vec<_> = (0..40).map(|number| record(number, 150)).collect();
    {
        let (mut journal, _) = open(Folder::open(&path).expect("it is made"), None);
        records.chunks(3).for_each(|group| commit(&mut journal, group, 5));
        assert!(journal.closed().len() > 2);
    }
    assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(&path).expect("is a folder") {
        assert_eq!(entry.and_then(|entry| entry.metadata()).expect("is there").permissions().mode() & 0o777, 0o600);
    }
    let (journal, opened) = open(Folder::open(&path).expect("it is free again"), None);
    assert_eq!(replayed(&journal, &opened), records);
    assert_eq!(opened.damage, []);
}

#[test]
fn second_open_is_refused() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = Folder::open(root.path()).expect("it is free");
    let clone = folder.clone();
    drop(folder);
    let fault = Folder::open(root.path()).expect_err("a clone holds it");
    assert!(matches!(fault, JournalError::Locked { .. }));
    let words = fault.to_string();
    assert!(words.contains(&root.path().display().to_string()) && words.contains("stop it first"), "{words}");
    drop(clone);
    Folder::open(root.path()).expect("it is free again");
}

#[test]
fn deleting_the_lock_allows_no_second_writer() {
    let root = tempfile::tempdir().expect("a folder");
    let _folder = Folder::open(root.path()).expect("it is free");
    fs::remove_file(root.path().join("lock")).expect("it is deleted");
    let second = Folder::open(root.path());
    assert!(matches!(second, Err(JournalError::Locked { .. })), "{second:?}");
}

#[test]
fn a_folder_replaced_by_another_server_is_not_written() {
    let root = tempfile::tempdir().expect("a folder");
    let (path, aside) = (root.path().join("journal"), root.path().join("aside"));
    let (mut journal, _) = open(Folder::open(&path).expect("it is made"), None);
    commit(&mut journal, &[record(1, 10)], 1);
    fs::rename(&path, aside).expect("moved");
    let other = Folder::open(&path).expect("it is made anew");
    let fault = journal.rotate(at(2)).expect_err("it is another's").to_string();
    assert!(fault.contains("another process"), "{fault}");
    assert!(!other.list().expect("a folder").iter().any(|name| name.starts_with("journal-")));
    drop(other);
    assert_eq!(journal.recover(at(3)).expect("it is free now").lost, [1]);
    assert!(matches!(Folder::open(&path), Err(JournalError::Locked { .. })));
}

#[test]
fn a_file_as_folder_is_refused() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("journal");
    fs::write(&path, "x").expect("a file");
    let fault = Folder::open(&path).expect_err("it is a file");
    assert!(matches!(fault, JournalError::NotAFolder { .. }), "{fault}");
    assert!(matches!(Folder::open(&path.join("deeper")), Err(JournalError::NotAFolder { .. })));
}

#[test]
fn a_removed_folder_is_detected_and_recreated() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("journal");
    let (mut journal, _) = open(Folder::open(&path).expect("it is made"), None);
    commit(&mut journal, &[record(1, 3000)], 1);
    commit(&mut journal, &[record(2, 10)], 2);
    fs::remove_dir_all(&path).expect("it is removed");
    journal.push(&record(3, 10)).expect("has room");
    let Err(CommitError::Fault(fault)) = journal.commit(at(3)) else { panic!("what is gone cannot be durable") };
    assert!(fault.to_string().contains("removed"), "{fault}");
    let recovered = journal.recover(at(4)).expect("a new folder");
    assert_eq!(recovered.lost, [1, 2]);
    assert_eq!(journal.closed(), []);
    commit(&mut journal, &[record(4, 10)], 5);
    assert!(matches!(Folder::open(&path), Err(JournalError::Locked { .. })), "the new one is locked too");
    drop(journal);
    let (journal, opened) = open(Folder::open(&path).expect("it is free"), None);
    assert_eq!(replayed(&journal, &opened), [record(4, 10)]);
    assert_eq!(opened.damage, []);
}

#[test]
fn an_unwritable_folder_opens_for_reading() {
    let disk = SimDisk::new();
    commit(&mut open(disk.clone(), None).0, &[record(1, 10)], 1);
    let disk = disk.restarted();
    disk.fail(Failure::always(Operation::Create, super::EACCES));
    let (mut journal, opened) = open(disk.clone(), None);
    assert_eq!(replayed(&journal, &opened), [record(1, 10)]);
    let fault = journal.fault().expect("nothing can be written").to_string();
    assert!(fault.contains("cannot make simulated/journal-") && fault.contains("chown"), "{fault}");
    assert!(journal.recover(at(2)).is_err());
    disk.heal();
    journal.recover(at(3)).expect("it is ours now");
    commit(&mut journal, &[record(2, 10)], 4);
    let (journal, opened) = open(disk.restarted(), None);
    assert_eq!(replayed(&journal, &opened), [record(1, 10), record(2, 10)]);
}

#[test]
fn an_unreadable_disk_fails_to_open() {
    let disk = SimDisk::new();
    commit(&mut open(disk.clone(), None).0, &[record(1, 10)], 1);
    for operation in [Operation::List, Operation::Read, Operation::Len] {
        let disk = disk.restarted();
        disk.fail(Failure::always(operation, super::EIO));
        let names = disk.names();
        let opened = crate::Journal::open(disk.clone(), super::settings(), None, |_| at(1));
        assert!(matches!(opened, Err(JournalError::Disk(_))));
        assert_eq!(disk.names(), names, "nothing was changed");
        assert!(disk.list().is_err() || operation != Operation::List);
    }
}
