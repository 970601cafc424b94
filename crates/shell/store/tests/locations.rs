//! Registrations between two runs of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rusqlite::Connection;
use strowger_store::{
    Changes, Checkpoint, GetResult, LoadCounts, LocationChange, LocationStore, MergeResult, PurgeCounts, SlotRange,
    StoreError, UserStore, WriteCounts,
};
use tempfile::TempDir;

type Rows = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("strowger.db");
    (folder, path)
}

fn checkpoint(segment: u64) -> Checkpoint {
    Checkpoint { segment, stamp: format!("stamp of {segment}").into_bytes() }
}

fn put<'a>(aor: &'a [u8], expires_ms: u64, record: &'a [u8]) -> LocationChange<'a> {
    LocationChange::Put { aor, expires_ms, record }
}

fn part(index: u8, parts: u8) -> SlotRange {
    SlotRange::of(index, NonZeroU8::new(parts).expect("some")).expect("a part")
}

/// Returns the rows of a part, and checks that nothing is wrong with them.
fn rows_of(store: &LocationStore, part: &SlotRange) -> Rows {
    let mut rows = Rows::new();
    let loaded = store
        .for_each(part, |location| {
            let before = rows.insert(location.aor.to_vec(), (location.expires_ms, location.record.to_vec()));
            assert_eq!(before, None, "each once");
            ControlFlow::Continue(())
        })
        .expect("reads");
    assert_eq!(loaded, LoadCounts { rows: rows.len() as u64, damaged: 0, missing: 0 });
    rows
}

fn rows(path: &Path) -> Rows {
    rows_of(&LocationStore::open(path).expect("opens"), &SlotRange::ALL)
}

#[test]
fn written_data_is_there_on_the_next_open() {
    let (_folder, path) = folder();
    let mut store = LocationStore::open(&path).expect("opens");
    assert_eq!(store.checkpoint().expect("reads"), None);
    assert_eq!(store.count().expect("counts"), 0);
    let batch = [put(b"alice@a", 1000, b"one"), put(b"bob@a", 2000, b"two"), put(b"alice@a", 3000, b"three")];
    let written = store.write(batch, &checkpoint(7)).expect("written");
    assert_eq!(written, WriteCounts { rows: 3, transactions: 1, ..WriteCounts::default() });
    store.write([LocationChange::Remove { aor: b"nobody@a" }], &checkpoint(8)).expect("written");
    drop(store);

    let mut store = LocationStore::open(&path).expect("opens");
    assert_eq!(store.checkpoint().expect("reads"), Some(checkpoint(8)));
    assert_eq!(store.count().expect("counts"), 2);
    let mut record = b"what was there".to_vec();
    assert_eq!(store.get(b"alice@a", &mut record).expect("reads"), GetResult::Found { expires_ms: 3000 });
    assert_eq!(record, b"three");
    store.write([LocationChange::Remove { aor: b"alice@a" }], &checkpoint(9)).expect("written");
    assert_eq!(store.get(b"alice@a", &mut record).expect("reads"), GetResult::Absent);
    assert!(record.is_empty());
    assert_eq!(rows(&path), Rows::from([(b"bob@a".to_vec(), (2000, b"two".to_vec()))]));
}

#[test]
fn empty_checkpoints_and_unusual_records_are_stored() {
    let mut store = LocationStore::open_memory().expect("opens");
    let empty = Checkpoint { segment: u64::MAX, stamp: Vec::new() };
    store.write([], &empty).expect("written");
    assert_eq!(store.checkpoint().expect("reads"), Some(empty));
    let large = vec![7; 300_000];
    store.write([put(b"", 0, b""), put(b"\xff\x00@a", i64::MAX as u64, &large)], &checkpoint(1)).expect("written");
    assert_eq!(rows_of(&store, &SlotRange::ALL).len(), 2);
    let error = store.write([put(b"a@a", u64::MAX, b"x")], &checkpoint(2)).expect_err("no such expiry");
    assert!(matches!(error, StoreError::BadExpiry { .. }), "{error}");
    assert_eq!(store.checkpoint().expect("reads"), Some(checkpoint(1)), "all or nothing");
}

/// Appends newer data to the stored record. "!" removes the record; without a stored record nothing changes.
fn append(base: Option<&[u8]>, newer: &[u8], merged: &mut Vec<u8>) -> MergeResult {
    match (base, newer) {
        (_, b"!") => return MergeResult::Remove,
        (None, _) => return MergeResult::Keep,
        (Some(base), _) => merged.extend_from_slice(base),
    }
    if !merged.ends_with(newer) {
        merged.extend_from_slice(newer);
    }
    MergeResult::Put { expires_ms: merged.len() as u64 }
}

#[test]
fn new_state_is_merged_into_existing_rows() {
    let (_folder, path) = folder();
    let mut store = LocationStore::open(&path).expect("opens");
    store
        .write([put(b"a@a", 1, b"one"), put(b"b@a", 1, b"two"), put(b"d@a", 1, b"four")], &checkpoint(1))
        .expect("put");
    let client = Connection::open(&path).expect("opens");
    client.execute("UPDATE locations SET record = x'00' WHERE aor = CAST('d@a' AS BLOB)", ()).expect("damaged");
    let merge = |aor, newer| LocationChange::Merge { aor, newer, merge: append };
    let batch =
        [merge(b"a@a", b"+1"), merge(b"b@a", b"!"), merge(b"c@a", b"+1"), merge(b"d@a", b"+1"), merge(b"a@a", b"+2")];
    let written = store.write(batch, &checkpoint(2)).expect("written");
    assert_eq!(written, WriteCounts { rows: 5, unchanged: 2, damaged: 1, transactions: 1 });
    assert_eq!(store.count().expect("counts"), 2);
    let mut record = Vec::new();
    assert_eq!(store.get(b"a@a", &mut record).expect("reads"), GetResult::Found { expires_ms: 7 });
    assert_eq!(record, b"one+1+2");
    assert_eq!(store.get(b"b@a", &mut record).expect("reads"), GetResult::Absent);
}

#[test]
fn parts_are_disjoint_and_cover_all_rows() {
    let mut store = LocationStore::open_memory().expect("opens");
    let names: Vec<String> = (0..2000).map(|index| format!("user{index}@example.com")).collect();
    store.write(names.iter().map(|name| put(name.as_bytes(), 1, b"x")), &checkpoint(1)).expect("written");
    for parts in [1, 2, 3, 16, 255] {
        let mut together = BTreeSet::new();
        for index in 0..parts {
            let rows = rows_of(&store, &part(index, parts));
            let fair = 2000 / usize::from(parts);
            assert!(rows.len() <= fair * 2 + 16, "{} of {parts} parts", rows.len());
            for (aor, _) in rows {
                assert!(together.insert(aor), "in one part only");
            }
        }
        assert_eq!(together.len(), names.len());
    }
    assert_eq!(SlotRange::of(3, NonZeroU8::new(3).expect("some")), None);
}

#[test]
fn reading_stops_when_the_caller_breaks() {
    let mut store = LocationStore::open_memory().expect("opens");
    store.write([put(b"a@a", 1, b"x"), put(b"b@a", 1, b"x")], &checkpoint(1)).expect("written");
    let loaded = store.for_each(&SlotRange::ALL, |_| ControlFlow::Break(())).expect("reads");
    assert_eq!(loaded, LoadCounts { rows: 1, damaged: 0, missing: 0 });
}

#[test]
fn expired_rows_are_purged_in_steps() {
    let mut store = LocationStore::open_memory().expect("opens");
    let names: Vec<String> = (0..1000).map(|index| format!("user{index}@example.com")).collect();
    let batch = names.iter().zip(0..).map(|(name, expires_ms)| put(name.as_bytes(), expires_ms, b"x"));
    store.write(batch, &checkpoint(1)).expect("written");
    let mut sum = PurgeCounts::default();
    while !sum.is_finished {
        let purged = store.purge(400, 64).expect("purged");
        assert!(purged.examined <= 64);
        sum.removed += purged.removed;
        sum.examined += purged.examined;
        sum.is_finished = purged.is_finished;
    }
    assert_eq!(sum, PurgeCounts { removed: 400, damaged: 0, examined: 1000, is_finished: true });
    assert_eq!(store.count().expect("counts"), 600);
    assert!(rows_of(&store, &SlotRange::ALL).values().all(|(expires_ms, _)| *expires_ms >= 400));
    assert_eq!(store.purge(401, 2000).expect("purged").removed, 1, "it begins anew");
}

#[test]
fn the_wal_size_is_bounded() {
    let (folder, path) = folder();
    let mut store = LocationStore::open(&path).expect("opens");
    let names: Vec<String> = (0..15_000).map(|index| format!("user{index:06}@example.com")).collect();
    let record = vec![1; 3000];
    store.write(names.iter().map(|name| put(name.as_bytes(), 1, &record)), &checkpoint(1)).expect("written");
    let log = std::fs::metadata(folder.path().join("strowger.db-wal")).expect("there").len();
    assert!(log <= 16 << 20, "{log}");
    assert!(std::fs::metadata(&path).expect("there").len() > 40 << 20);
}

#[test]
fn the_log_is_flushed_once_no_reader_needs_it() {
    let (folder, path) = folder();
    let mut store = LocationStore::open(&path).expect("opens");
    store.write([put(b"a@a", 1, b"one")], &checkpoint(1)).expect("written");
    let reader = LocationStore::open(&path).expect("opens");
    reader
        .for_each(&SlotRange::ALL, |_| {
            store.write([put(b"a@a", 1, b"two")], &checkpoint(2)).expect("written");
            assert!(!store.flush_log().expect("tried"), "somebody still reads");
            ControlFlow::Continue(())
        })
        .expect("reads");
    assert!(store.flush_log().expect("settled"));
    assert_eq!(std::fs::metadata(folder.path().join("strowger.db-wal")).expect("there").len(), 0);
    let alone = folder.path().join("alone.db");
    std::fs::copy(&path, &alone).expect("copied");
    assert_eq!(rows(&alone)[&b"a@a"[..]].1, b"two", "the file needs no log");
    assert!(LocationStore::open_memory().expect("opens").flush_log().expect("nothing to do"));
}

#[test]
fn writes_after_an_inherited_log_wait_until_it_is_flushed() {
    let (_folder, path) = folder();
    let mut before = LocationStore::open(&path).expect("opens");
    before.write([put(b"a@a", 1, b"one")], &checkpoint(1)).expect("written");
    // A store opened at this point does not know whether the existing WAL was synced.
    let mut store = LocationStore::open(&path).expect("opens");
    let refuse = |store: &mut LocationStore| {
        let error = store.write([put(b"a@a", 1, b"three")], &checkpoint(3)).expect_err("somebody still reads");
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    };
    let reader = LocationStore::open(&path).expect("opens");
    reader
        .for_each(&SlotRange::ALL, |_| {
            before.write([put(b"a@a", 1, b"two")], &checkpoint(2)).expect("its own log is known to be synced");
            refuse(&mut store);
            ControlFlow::Continue(())
        })
        .expect("reads");
    assert_eq!(store.checkpoint().expect("reads"), Some(checkpoint(2)));
    store.write([put(b"a@a", 1, b"three")], &checkpoint(3)).expect("written");
    // One flush of the previous WAL suffices.
    reader
        .for_each(&SlotRange::ALL, |_| {
            store.write([put(b"a@a", 1, b"four")], &checkpoint(4)).expect("written");
            assert!(!store.flush_log().expect("tried"), "somebody still reads");
            store.write([put(b"a@a", 1, b"five")], &checkpoint(5)).expect("written");
            ControlFlow::Continue(())
        })
        .expect("reads");
}

#[test]
fn a_checkpoint_survives_a_damaged_row() {
    for (damage, is_known) in [
        ("UPDATE settings SET value = x'00' WHERE key = 'checkpoint'", true),
        ("UPDATE settings SET sum = sum + 1 WHERE key = 'checkpoint'", true),
        ("UPDATE settings SET key = 'checkpoinu' WHERE key = 'checkpoint'", true),
        ("UPDATE settings SET value = x'00' WHERE key = 'checkpoint.copy'", true),
        ("UPDATE settings SET value = x'00' WHERE key IN ('checkpoint', 'checkpoint.copy')", false),
    ] {
        let (_folder, path) = folder();
        let mut store = LocationStore::open(&path).expect("opens");
        store.write([], &checkpoint(7)).expect("written");
        Connection::open(&path).and_then(|other| other.execute_batch(damage)).expect("damaged");
        let found = store.checkpoint();
        match found {
            Ok(found) => assert!(is_known && found == Some(checkpoint(7)), "{damage}"),
            Err(error) => assert!(!is_known && matches!(error, StoreError::Damaged { .. }), "{damage}: {error}"),
        }
        store.write([], &checkpoint(8)).expect("written");
        assert_eq!(store.checkpoint().expect("mended"), Some(checkpoint(8)));
    }
}

#[test]
fn a_database_has_one_server() {
    let (_folder, path) = folder();
    let held = strowger_store::lock(&path).expect("it is free");
    let error = strowger_store::lock(&path).expect_err("it is held");
    assert!(matches!(&error, StoreError::InUse { path: held } if *held == path), "{error}");
    LocationStore::open(&path).expect("who only looks needs no claim");
    drop(held);
    strowger_store::lock(&path).expect("it is free again");
}

#[test]
fn settings_are_persisted() {
    let (_folder, path) = folder();
    let mut store = LocationStore::open(&path).expect("opens");
    assert_eq!(store.setting("boot").expect("reads"), None);
    store.set_setting("boot", b"\x00one").expect("written");
    store.set_setting("boot", b"\x00two").expect("written");
    let other = LocationStore::open(&path).expect("opens");
    assert_eq!(other.setting("boot").expect("reads").as_deref(), Some(&b"\x00two"[..]));
    for key in ["checkpoint", "checkpoint.copy", "rows", "backup.made"] {
        assert!(matches!(store.set_setting(key, b""), Err(StoreError::ReservedSetting { .. })));
    }
}

/// Creates a database of the first schema version, with a user and an alias.
fn first_version(path: &Path) {
    let old = Connection::open(path).expect("opens");
    old.execute_batch(include_str!("../src/schema/1_users.sql")).expect("made");
    old.pragma_update(None, "application_id", 0x5374_7267).expect("marked");
    old.pragma_update(None, "user_version", 1).expect("marked");
    old.execute_batch(
        "INSERT INTO users (aor, realm, ha1_md5) VALUES ('alice@example.com', 'x', '0123456789abcdef0123456789abcdef');
         INSERT INTO aliases (alias, aor) VALUES ('ali@example.com', 'alice@example.com')",
    )
    .expect("filled");
}

#[test]
fn a_database_of_the_first_version_keeps_its_users() {
    let (_folder, path) = folder();
    first_version(&path);
    let before = UserStore::open(&path).map(|mut store| (store.list(), store.list_aliases())).expect("opens");
    let mut store = LocationStore::open(&path).expect("opens");
    store.write([put(b"alice@example.com", 1, b"x")], &checkpoint(1)).expect("written");
    let mut users = UserStore::open(&path).expect("opens");
    assert_eq!(users.list().expect("lists"), before.0.expect("lists"));
    assert_eq!(users.list_aliases().expect("lists"), before.1.expect("lists"));
    let (directory, seq) = users.load(1).expect("loads");
    assert_eq!((directory.users(), directory.aliases()), (1, 1));
    store.write([put(b"alice@example.com", 2, b"y")], &checkpoint(2)).expect("written");
    let nothing = Changes::Since { changes: Vec::new(), seq };
    assert_eq!(users.changes_since(seq).expect("reads"), nothing, "a registration is no change of a user");
    let client = Connection::open(&path).expect("opens");
    client.execute("UPDATE users SET enabled = 0", ()).expect("changed");
    let Changes::Since { changes, .. } = users.changes_since(seq).expect("reads") else { panic!("a log") };
    assert_eq!(changes.len(), 1, "the log of changes goes on");
}

#[test]
fn a_newer_schema_is_refused_on_open_and_in_use() {
    let (_folder, path) = folder();
    let mut store = LocationStore::open(&path).expect("opens");
    store.write([put(b"alice@example.com", 1, b"x")], &checkpoint(1)).expect("written");
    Connection::open(&path).expect("opens").pragma_update(None, "user_version", 4).expect("upgraded");
    let is_newer =
        |error: Option<StoreError>| matches!(error, Some(StoreError::NewerSchema { found: 4, known: 3, .. }));
    assert!(is_newer(LocationStore::open(&path).err()));
    assert!(is_newer(store.checkpoint().err()));
    assert!(is_newer(store.write([], &checkpoint(2)).err()));
    assert!(is_newer(store.for_each(&SlotRange::ALL, |_| ControlFlow::Continue(())).err()));
    assert!(is_newer(store.purge(0, 10).err()));
}

#[test]
fn users_change_while_registrations_are_read() {
    let (_folder, path) = folder();
    let mut store = LocationStore::open(&path).expect("opens");
    let names: Vec<String> = (0..500).map(|index| format!("user{index}@example.com")).collect();
    store.write(names.iter().map(|name| put(name.as_bytes(), 1, b"x")), &checkpoint(1)).expect("written");
    let mut users = UserStore::open(&path).expect("opens");
    let mut writer = LocationStore::open(&path).expect("opens");
    assert!(writer.flush_log().expect("tried"), "as a server does when it begins");
    let mut seen = 0;
    store
        .for_each(&SlotRange::ALL, |location| {
            if seen == 0 {
                users.add_user("alice@example.com", "example.com", "x").expect("added");
                writer.write(names.iter().map(|name| put(name.as_bytes(), 2, b"y")), &checkpoint(2)).expect("written");
            }
            seen += 1;
            assert_eq!(location.record, b"x", "one state");
            ControlFlow::Continue(())
        })
        .expect("reads");
    assert_eq!(seen, 500);
}

/// Expiry and record, or none.
type State = Option<(u16, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(u8, State)>),
    Purge(u16, u32),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0..40u8, proptest::option::of((0..1000u16, proptest::collection::vec(any::<u8>(), 0..600))));
    let step = prop_oneof![
        4 => proptest::collection::vec(change, 0..60).prop_map(Step::Write),
        1 => (0..1000u16, 1..50u32).prop_map(|(before, limit)| Step::Purge(before, limit)),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 0..12)
}

fn name(index: u8) -> Vec<u8> {
    [&[index.wrapping_mul(73), 0, index][..], b"@example.com"].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn it_behaves_like_a_map(steps in steps()) {
        let (_folder, path) = folder();
        let mut store = LocationStore::open(&path).expect("opens");
        let mut model = Rows::new();
        for (step, segment) in steps.into_iter().zip(1..) {
            match step {
                Step::Write(changes) => {
                    let changes: Vec<_> = changes.into_iter().map(|(index, state)| (name(index), state)).collect();
                    let batch = changes.iter().map(|(aor, state)| match state {
                        Some((expires_ms, record)) => put(aor, u64::from(*expires_ms), record),
                        None => LocationChange::Remove { aor },
                    });
                    store.write(batch, &checkpoint(segment)).expect("written");
                    prop_assert_eq!(store.checkpoint().expect("reads"), Some(checkpoint(segment)));
                    for (aor, state) in changes {
                        match state {
                            Some((expires_ms, record)) => model.insert(aor, (u64::from(expires_ms), record)),
                            None => model.remove(&aor),
                        };
                    }
                }
                Step::Purge(before, limit) => {
                    while !store.purge(u64::from(before), limit).expect("purged").is_finished {}
                    // The scan may have started in the middle.
                    while !store.purge(u64::from(before), limit).expect("purged").is_finished {}
                    model.retain(|_, (expires_ms, _)| *expires_ms >= u64::from(before));
                }
                Step::Reopen => store = LocationStore::open(&path).expect("opens"),
            }
            prop_assert_eq!(&rows_of(&store, &SlotRange::ALL), &model);
            prop_assert_eq!(store.count().expect("counts"), model.len() as u64);
        }
    }
}
