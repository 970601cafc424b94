//! Backup and restore of the database.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strowger_store::{
    BackupOptions, Checkpoint, ErrorOwner, GetResult, LocationChange, LocationStore, SlotRange, StoreError, UserStore,
    backup, inspect, restore,
};
use tempfile::TempDir;

const EXTRA: &[(&str, &[u8])] = &[("server-key", b"0123")];

fn checkpoint(segment: u64) -> Checkpoint {
    Checkpoint { segment, stamp: vec![1, 2, 3] }
}

fn write(store: &mut LocationStore, rows: u32, record: &[u8], segment: u64) {
    let names: Vec<String> = (0..rows).map(|index| format!("user{index}@example.com")).collect();
    let batch = names.iter().map(|name| LocationChange::Put { aor: name.as_bytes(), expires_ms: 5, record });
    store.write(batch, &checkpoint(segment)).expect("written");
}

fn records(path: &Path) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let store = LocationStore::open(path).expect("opens");
    let loaded = store.for_each(&SlotRange::ALL, |location| {
        records.push(location.record.to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(loaded.expect("reads").rows, records.len() as u64);
    records
}

/// Returns a directory with a database in use that has a user and 300 registrations.
fn running() -> (TempDir, PathBuf, PathBuf, LocationStore) {
    let folder = tempfile::tempdir().expect("folder");
    let (path, target) = (folder.path().join("data/strowger.db"), folder.path().join("backup.db"));
    UserStore::open(&path).expect("opens").add_user("alice@example.com", "example.com", "x").expect("added");
    let mut store = LocationStore::open(&path).expect("opens");
    write(&mut store, 300, b"first", 4);
    (folder, path, target, store)
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn a_backup_of_a_database_in_use_is_one_file_with_metadata() {
    let (folder, path, target, mut store) = running();
    let info = backup(&path, &target, &BackupOptions { can_overwrite: false, extra: EXTRA }, |_, _| {}).expect("made");
    assert_eq!((info.schema, info.users, info.aliases, info.addresses, info.damaged), (3, 1, 0, 300, 0));
    assert_eq!(info.checkpoint, Some(checkpoint(4)));
    assert_eq!(info.extra, [("server-key".to_owned(), b"0123".to_vec())]);
    assert_eq!(info.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert!(info.created_s.is_some_and(|made_s| made_s > 1_700_000_000));
    let metadata = fs::metadata(&target).expect("there");
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, info.bytes));
    assert_eq!(files(folder.path()), ["backup.db", "data"], "nothing else is left");
    assert_eq!(inspect(&target).expect("sound"), info);
    assert_eq!(files(folder.path()), ["backup.db", "data"], "looking leaves nothing either");
    write(&mut store, 300, b"second", 5);
    assert_eq!(store.setting("backup.server-key").expect("reads"), None, "the source has nothing of it");
}

#[test]
fn a_backup_is_readable_on_a_read_only_disk() {
    let (_folder, path, target, _store) = running();
    backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect("made");
    let header = fs::read(&target).expect("readable");
    assert_eq!(header[18..20], [1, 1], "no log beside it");
}

#[test]
fn a_backup_is_a_snapshot_despite_other_writers() {
    let (_folder, path, target, mut store) = running();
    write(&mut store, 20_000, &[1; 400], 5);
    let mut reports = Vec::new();
    let info = backup(&path, &target, &BackupOptions::default(), |done, all| {
        write(&mut store, 20_000, &[2; 400], 6);
        reports.push((done, all));
    })
    .expect("made");
    assert_eq!((info.addresses, info.checkpoint), (20_000, Some(checkpoint(5))));
    assert!(reports.len() > 2 && reports.windows(2).all(|pair| pair[0].0 < pair[1].0), "never anew: {reports:?}");
    assert!(reports.last().is_some_and(|(done, all)| done == all && *all > 2000));
    assert!(records(&target).iter().all(|record| record[..] == [1; 400]));
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let (_folder, path, target, _store) = running();
    fs::write(&target, "a letter").expect("written");
    let error = backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect_err("refused");
    assert!(matches!(error, StoreError::TargetExists { .. }) && error.owner() == ErrorOwner::Request, "{error}");
    assert_eq!(fs::read(&target).expect("there"), b"a letter");
    let options = BackupOptions { can_overwrite: true, ..BackupOptions::default() };
    backup(&path, &target, &options, |_, _| {}).expect("made");
    assert_eq!(inspect(&target).expect("sound").users, 1);
    let parent = target.parent().expect("folder");
    let error = backup(&path, parent, &options, |_, _| {}).expect_err("refused");
    assert!(matches!(error, StoreError::NotAFile { .. }), "{error}");
}

#[test]
fn a_non_backup_is_reported() {
    let (folder, path, target, _store) = running();
    let missing = folder.path().join("missing.db");
    let error = backup(&missing, &target, &BackupOptions::default(), |_, _| {}).expect_err("refused");
    assert!(matches!(&error, StoreError::NoSource { path } if *path == missing), "{error}");
    assert!(!missing.exists(), "it is not made");
    assert!(matches!(inspect(folder.path()), Err(StoreError::NotAFile { .. })));
    fs::write(&missing, "no database, but long enough to look at ".repeat(50)).expect("written");
    assert!(matches!(inspect(&missing), Err(StoreError::NotADatabase { .. })));
    let foreign = folder.path().join("cookies.sqlite");
    Connection::open(&foreign).expect("opens").execute_batch("CREATE TABLE cookies (x)").expect("written");
    assert!(matches!(inspect(&foreign), Err(StoreError::Foreign { .. })));
    assert!(matches!(restore(&path, &foreign, true), Err(StoreError::Foreign { .. })), "nor is it replaced");
    let error = backup(&path, &folder.path().join("none/backup.db"), &BackupOptions::default(), |_, _| {});
    let error = error.expect_err("no such folder");
    assert!(matches!(&error, StoreError::File { doing: "made", .. }), "{error}");
}

#[test]
fn a_backup_of_a_newer_version_is_refused() {
    let (folder, path, target, _store) = running();
    backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect("made");
    Connection::open(&target).expect("opens").pragma_update(None, "user_version", 4).expect("changed");
    let elsewhere = folder.path().join("new/strowger.db");
    for error in [inspect(&target).err(), restore(&target, &elsewhere, false).err()] {
        assert!(matches!(error, Some(StoreError::NewerSchema { found: 4, known: 3, .. })), "{error:?}");
    }
    assert!(!elsewhere.exists());
}

#[test]
fn a_backup_of_the_first_version_is_restored() {
    let folder = tempfile::tempdir().expect("folder");
    let (old, path) = (folder.path().join("old.db"), folder.path().join("strowger.db"));
    let client = Connection::open(&old).expect("opens");
    client.execute_batch(include_str!("../src/schema/1_users.sql")).expect("made");
    client
        .execute_batch(
            "INSERT INTO users (aor, realm, ha1_md5) VALUES ('a@example.com', 'x', '0123456789abcdef0123456789abcdef');
             PRAGMA application_id = 0x53747267; PRAGMA user_version = 1",
        )
        .expect("filled");
    let before = fs::read(&old).expect("readable");
    let restored = restore(&old, &path, false).expect("restored");
    assert_eq!((restored.info.schema, restored.info.users, restored.info.created_s), (1, 1, None));
    assert_eq!(UserStore::open(&path).expect("opens").list().expect("lists").len(), 1);
    backup(&old, &folder.path().join("backup.db"), &BackupOptions::default(), |_, _| {}).expect("made");
    assert_eq!(fs::read(&old).expect("readable"), before, "the source stays of its version");
}

#[test]
fn restore_moves_old_data_aside() {
    let (folder, path, target, mut store) = running();
    backup(&path, &target, &BackupOptions { can_overwrite: false, extra: EXTRA }, |_, _| {}).expect("made");
    write(&mut store, 400, b"second", 5);

    let error = restore(&target, &path, false).expect_err("it is there");
    assert!(matches!(error, StoreError::TargetExists { .. }), "{error}");
    let error = restore(&target, &path, true).expect_err("it is in use");
    assert!(matches!(error, StoreError::InUse { .. }) && error.owner() == ErrorOwner::Operator, "{error}");
    write(&mut store, 400, b"second", 6);
    drop(store);

    let restored = restore(&target, &path, true).expect("restored");
    assert_eq!(restored.info.extra, [("server-key".to_owned(), b"0123".to_vec())]);
    let aside = restored.moved_aside.expect("one was there");
    assert!(aside.to_str().expect("text").contains("strowger.db.before-1"), "{}", aside.display());
    assert_eq!(files(path.parent().expect("folder")).len(), 2, "no logs of the old one");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&path).expect("there").nlink(), 1);
    let store = LocationStore::open(&path).expect("opens");
    assert_eq!(store.checkpoint().expect("reads"), Some(checkpoint(4)));
    assert_eq!(store.setting("backup.server-key").expect("reads"), None);
    assert_eq!(inspect(&path).expect("sound").created_s, None);
    drop(store);
    assert_eq!(records(&path), vec![b"first".to_vec(); 300]);
    assert_eq!(records(&aside), vec![b"second".to_vec(); 400], "with what was in its log");

    let again = restore(&target, &path, true).expect("restored").moved_aside.expect("one was there");
    assert_ne!(again, aside, "nothing is overwritten");
    assert!(aside.exists() && again.exists());
    let elsewhere = folder.path().join("new/data/strowger.db");
    assert_eq!(restore(&target, &elsewhere, false).expect("restored").moved_aside, None);
    assert_eq!(records(&elsewhere).len(), 300);
}

#[test]
fn a_restore_by_root_keeps_the_server_user_as_owner() {
    let (folder, path, target, store) = running();
    backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect("made");
    drop(store);
    let elsewhere = folder.path().join("other/strowger.db");
    fs::create_dir(folder.path().join("other")).expect("made");
    let server = [&path, &folder.path().join("other")].map(|path| chown(path, Some(4321), Some(4322)));
    if server.iter().any(Result::is_err) {
        println!("skipped: only the superuser gives files away");
        return;
    }
    restore(&target, &path, true).expect("restored");
    restore(&target, &elsewhere, false).expect("restored");
    for path in [path, elsewhere] {
        let metadata = fs::metadata(path).expect("there");
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (4321, 4322, 0o600));
    }
}

#[test]
fn concurrent_backups_do_not_clash() {
    let (folder, path, target, _store) = running();
    let options = BackupOptions { can_overwrite: true, ..BackupOptions::default() };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| backup(&path, &target, &options, |_, _| {}).expect("made"));
        }
    });
    assert_eq!(inspect(&target).expect("sound").addresses, 300);
    assert_eq!(files(folder.path()), ["backup.db", "data"]);
}

#[test]
fn a_broken_database_is_moved_aside_with_its_log() {
    let (_folder, path, target, store) = running();
    backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect("made");
    drop(store);
    fs::write(&path, "not a database any more").expect("written");
    fs::write(path.with_extension("db-wal"), "its log").expect("written");
    let aside = restore(&target, &path, true).expect("restored").moved_aside.expect("one was there");
    assert_eq!(fs::read(&aside).expect("there"), b"not a database any more");
    let log = PathBuf::from(format!("{}-wal", aside.display()));
    assert_eq!(fs::read(log).expect("there"), b"its log");
    assert_eq!(records(&path).len(), 300);
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let (_folder, path, target, store) = running();
    backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect("made");
    drop(store);
    let mut bytes = fs::read(&target).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0x55);
    fs::write(&target, bytes).expect("written");
    let before = fs::read(&path).expect("readable");
    let error = restore(&target, &path, true).expect_err("refused");
    assert!(matches!(&error, StoreError::Damaged { path } if *path == target), "{error}");
    assert_eq!(fs::read(&path).expect("readable"), before);
    assert_eq!(files(path.parent().expect("folder")), ["strowger.db"]);
}

#[test]
fn a_backup_of_a_damaged_database_fails() {
    let (folder, path, target, mut store) = running();
    write(&mut store, 3000, &[9; 100], 5);
    drop(store);
    let mut bytes = fs::read(&path).expect("readable");
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0x55);
    fs::write(&path, bytes).expect("written");
    let error = backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect_err("damaged");
    assert!(matches!(&error, StoreError::Damaged { path: at } if *at == path), "{error}");
    assert_eq!(files(folder.path()), ["data"]);
}

#[test]
fn a_backup_counts_damaged_rows() {
    let (_folder, path, target, store) = running();
    let client = Connection::open(&path).expect("opens");
    client
        .execute("UPDATE locations SET record = x'00' WHERE aor = CAST('user7@example.com' AS BLOB)", ())
        .expect("changed");
    let info = backup(&path, &target, &BackupOptions::default(), |_, _| {}).expect("made");
    assert_eq!((info.addresses, info.damaged), (299, 1));
    assert_eq!(store.get(b"user7@example.com", &mut Vec::new()).expect("reads"), GetResult::Damaged);
}
