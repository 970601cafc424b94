//! A byte of the files is changed: everything read was written, or the loss is reported.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use strowger_store::{
    BackupOptions, Checkpoint, ErrorOwner, GetResult, LoadCounts, LocationChange, LocationStore, SlotRange, StoreError,
    UserStore, backup,
};
use tempfile::TempDir;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn checkpoint(segment: u64) -> Checkpoint {
    Checkpoint { segment, stamp: b"stamp".to_vec() }
}

/// Rows that fill several pages, some with records that need overflow pages.
fn rows(generation: u8) -> Rows {
    let record = |index: usize| vec![generation ^ index as u8; if index % 40 == 7 { 5000 } else { 20 + index % 60 }];
    (0..120).map(|index| (format!("user{index}@example.com").into_bytes(), record(index))).collect()
}

fn write(store: &mut LocationStore, rows: &Rows, segment: u64) -> Result<(), StoreError> {
    let batch = rows.iter().map(|(aor, record)| LocationChange::Put { aor, expires_ms: record.len() as u64, record });
    store.write(batch, &checkpoint(segment)).map(drop)
}

fn load(store: &LocationStore) -> Result<(Rows, LoadCounts), StoreError> {
    let mut rows = Rows::new();
    let loaded = store.for_each(&SlotRange::ALL, |location| {
        assert_eq!(location.expires_ms, location.record.len() as u64);
        let before = rows.insert(location.aor.to_vec(), location.record.to_vec());
        assert_eq!(before, None, "each once");
        ControlFlow::Continue(())
    })?;
    Ok((rows, loaded))
}

/// Returns the files of a database that was written but not closed: the file and its WAL.
fn written() -> (TempDir, PathBuf) {
    // Each of many copies is synced, which is slow on a disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("folder");
    let path = folder.path().join("strowger.db");
    UserStore::open(&path).expect("opens").add_user("alice@example.com", "example.com", "x").expect("added");
    let mut store = LocationStore::open(&path).expect("opens");
    write(&mut store, &rows(1), 1).expect("written");
    (folder, path)
}

/// Any use of a damaged database gives only errors that name an operator's remedy, and never a wrong row.
fn use_all(path: &Path, right: &[Rows]) -> Result<(Rows, LoadCounts), StoreError> {
    let mut store = LocationStore::open(path)?;
    let segment = match store.checkpoint() {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            None
        }
    };
    assert!(segment.is_none_or(|found| [checkpoint(1), checkpoint(2)].contains(&found)), "never a wrong one");
    let is_right =
        |aor: &[u8], record: &[u8]| right.iter().any(|rows| rows.get(aor).is_some_and(|known| known == record));
    let found = load(&store);
    for (aor, record) in found.iter().flat_map(|(rows, _)| rows) {
        assert!(is_right(aor, record), "{}", String::from_utf8_lossy(aor));
    }
    let mut record = Vec::new();
    for aor in rows(1).keys() {
        if let Ok(GetResult::Found { .. }) = store.get(aor, &mut record) {
            assert!(is_right(aor, &record), "{}", String::from_utf8_lossy(aor));
        }
    }
    let purging = (0..200).find_map(|_| match store.purge(30, 50) {
        Ok(purged) => purged.is_finished.then_some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    let purging = purging.expect("it comes to an end");
    let copied = backup(path, &path.with_extension("copy"), &BackupOptions::default(), |_, _| {});
    let renewed = write(&mut store, &rows(3), 3).and_then(|()| store.recount()).and_then(|()| load(&store));
    for error in [purging.as_ref().err(), copied.as_ref().err(), renewed.as_ref().err()].into_iter().flatten() {
        assert_eq!(error.owner(), ErrorOwner::Operator, "{error}");
    }
    if let (Ok(_), Ok((rows, _))) = (copied, renewed) {
        let newest = self::rows(3);
        assert!(rows.iter().all(|(aor, record)| newest.get(aor).is_some_and(|known| known == record)));
    }
    found
}

#[test]
fn database_corruption_is_detected() {
    let (folder, path) = written();
    let whole = rows(1);
    let sound = fs::read(&path).expect("readable");
    let broken = folder.path().join("broken.db");
    let (mut noticed, mut refused, mut unhurt) = (0, 0, 0);
    for (position, mask) in (0..sound.len()).step_by(61).zip([0x01, 0x80, 0xff, 0x10, 0x04].into_iter().cycle()) {
        let mut bytes = sound.clone();
        bytes[position] ^= mask;
        forget(&broken);
        fs::write(&broken, bytes).expect("written");
        match use_all(&broken, std::slice::from_ref(&whole)) {
            Ok((rows, _)) if rows == whole => unhurt += 1,
            Ok((rows, loaded)) => {
                assert!(loaded.damaged + loaded.missing > 0, "{position}: {} rows, {loaded:?}", rows.len());
                noticed += 1;
            }
            Err(error) => {
                assert_eq!(error.owner(), ErrorOwner::Operator, "{position}: {error}");
                refused += 1;
            }
        }
    }
    assert!(noticed > 100 && refused > 10 && unhurt > 100, "{noticed} noticed, {refused} refused, {unhurt} unhurt");
}

#[test]
fn log_corruption_is_survived() {
    let (folder, path) = written();
    let mut store = LocationStore::open(&path).expect("opens");
    write(&mut store, &rows(2), 2).expect("written");
    let log = fs::read(path.with_extension("db-wal")).expect("there");
    let database = fs::read(&path).expect("there");
    let broken = folder.path().join("broken.db");
    let (before, after) = (rows(1), rows(2));
    let (mut old, mut new) = (0, 0);
    for position in (0..log.len()).step_by(211) {
        let mut bytes = log.clone();
        bytes[position] ^= 0x40;
        forget(&broken);
        fs::write(&broken, &database).expect("written");
        fs::write(broken.with_extension("db-wal"), bytes).expect("written");
        let store = LocationStore::open(&broken).expect("opens");
        let (rows, loaded) = load(&store).expect("reads");
        assert_eq!((loaded.damaged, loaded.missing), (0, 0), "one state or the other, and its checkpoint with it");
        match store.checkpoint().expect("reads").map(|checkpoint| checkpoint.segment) {
            Some(1) => {
                assert!(rows == before);
                old += 1;
            }
            Some(2) => {
                assert!(rows == after);
                new += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(old > 20, "{old} of before, {new} of after");
}

#[test]
fn a_truncated_database_is_detected() {
    let (folder, path) = written();
    let whole = rows(1);
    let sound = fs::read(&path).expect("readable");
    let broken = folder.path().join("broken.db");
    for length in (1..sound.len()).step_by(1021) {
        forget(&broken);
        fs::write(&broken, &sound[..length]).expect("written");
        match use_all(&broken, std::slice::from_ref(&whole)) {
            Ok((rows, loaded)) => assert!(rows == whole || loaded.damaged + loaded.missing > 0, "{length}"),
            Err(error) => assert_eq!(error.owner(), ErrorOwner::Operator, "{length}: {error}"),
        }
    }
}

fn forget(path: &Path) {
    for extension in ["db", "db-wal", "db-shm", "copy"] {
        let _ = fs::remove_file(path.with_extension(extension));
    }
}
