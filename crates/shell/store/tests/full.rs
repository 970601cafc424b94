//! A full disk and an unwritable one, on a file system of the test's own if it may mount one.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use strowger_store::{
    BackupOptions, Checkpoint, ErrorOwner, LocationChange, LocationStore, SlotRange, StoreError, UserStore, backup,
    restore,
};

/// Tells the inner test where its directory is.
const INSIDE: &str = "STROWGER_TEST_MOUNT";

/// Runs the test of this name again in a separate mount namespace. Returns `None` if this process may not.
fn inside(test: &str, size: &str) -> Option<std::path::PathBuf> {
    if let Ok(folder) = std::env::var(INSIDE) {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", size, "none", &folder]).status().expect("mount");
        assert!(mounted.success());
        return Some(folder.into());
    }
    let may = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        println!("skipped: this user may not mount anything");
        return None;
    }
    let folder = tempfile::tempdir().expect("folder");
    let this = std::env::current_exe().expect("a program");
    let output = Command::new("unshare")
        .args(["--mount", "--"])
        .arg(this)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, folder.path())
        .output()
        .expect("runs");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    None
}

fn checkpoint(segment: u64) -> Checkpoint {
    Checkpoint { segment, stamp: Vec::new() }
}

fn write(store: &mut LocationStore, rows: usize, record: &[u8], segment: u64) -> Result<(), StoreError> {
    let names: Vec<String> = (0..rows).map(|index| format!("user{index}@example.com")).collect();
    let batch = names.iter().map(|name| LocationChange::Put { aor: name.as_bytes(), expires_ms: 5, record });
    store.write(batch, &checkpoint(segment)).map(drop)
}

fn count(store: &LocationStore) -> u64 {
    let loaded = store.for_each(&SlotRange::ALL, |_| ControlFlow::Continue(())).expect("reads");
    assert_eq!((loaded.damaged, loaded.missing), (0, 0));
    loaded.rows
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn a_full_disk_changes_nothing_and_heals() {
    let Some(folder) = inside("a_full_disk_changes_nothing_and_heals", "size=3m") else { return };
    let path = folder.join("strowger.db");
    let mut users = UserStore::open(&path).expect("opens");
    users.add_user("alice@example.com", "example.com", "x").expect("added");
    let mut store = LocationStore::open(&path).expect("opens");
    write(&mut store, 500, &[1; 100], 1).expect("there is room");

    let error = write(&mut store, 50_000, &[2; 100], 2).expect_err("no room");
    assert!(matches!(&error, StoreError::Full { .. }) && error.owner() == ErrorOwner::Operator, "{error}");
    assert_eq!((count(&store), store.checkpoint().expect("reads")), (500, Some(checkpoint(1))));
    write(&mut store, 500, &[2; 100], 2).expect("what is smaller has room");

    let ballast = folder.join("ballast");
    let _ = fs::write(&ballast, vec![0; 4 << 20]).expect_err("fills the disk");
    let mut refused = 0;
    for segment in 3..10 {
        match write(&mut store, 50_000, &[3; 100], segment) {
            Ok(()) => panic!("no room for that"),
            Err(StoreError::Full { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((refused, count(&store), store.checkpoint().expect("reads")), (7, 500, Some(checkpoint(2))));
    assert_eq!(users.list().expect("can be read").len(), 1);
    let copy = folder.join("copy.db");
    let error = backup(&path, &copy, &BackupOptions::default(), |_, _| {}).expect_err("no room");
    assert!(matches!(&error, StoreError::Full { path } if path.starts_with(&folder) && *path != copy), "{error}");
    // A store opened at this point may or may not have room for the files that SQLite creates beside the database.
    if let Err(error) = UserStore::open(folder.join("another.db")) {
        assert!(matches!(&error, StoreError::Full { .. }), "{error}");
    }

    fs::remove_file(&ballast).expect("removed");
    write(&mut store, 5000, &[4; 100], 50).expect("room again, without being opened anew");
    users.add_user("bob@example.com", "example.com", "x").expect("added");
    assert_eq!(count(&store), 5000);
    assert!(!copy.exists());
    assert!(
        fs::read_dir(&folder)
            .expect("a folder")
            .all(|entry| { !entry.expect("entry").file_name().to_string_lossy().contains(".part") })
    );
}

#[test]
fn a_read_only_disk_is_reported_and_recovers() {
    let Some(folder) = inside("a_read_only_disk_is_reported_and_recovers", "size=8m") else { return };
    let path = folder.join("strowger.db");
    let mut users = UserStore::open(&path).expect("opens");
    let mut store = LocationStore::open(&path).expect("opens");
    write(&mut store, 500, &[1; 100], 1).expect("written");
    let kept = tempfile::tempdir().expect("folder");
    let saved = kept.path().join("saved.db");
    backup(&path, &saved, &BackupOptions::default(), |_, _| {}).expect("made");
    drop((users, store));

    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", how]).arg(&folder).status().expect("mount");
        assert!(done.success());
    };
    remount("remount,ro");
    let before = files(&folder);
    for error in [
        LocationStore::open(&path).map(drop).expect_err("refused"),
        UserStore::open(&path).map(drop).expect_err("refused"),
        UserStore::open(folder.join("new.db")).map(drop).expect_err("refused"),
        backup(&saved, &folder.join("copy.db"), &BackupOptions::default(), |_, _| {}).map(drop).expect_err("refused"),
        restore(&saved, &path, true).map(drop).expect_err("refused"),
    ] {
        assert_eq!(error.owner(), ErrorOwner::Operator, "{error}");
        let is_named =
            matches!(error, StoreError::Permission { .. } | StoreError::Create { .. } | StoreError::File { .. });
        assert!(is_named && error.to_string().contains(folder.to_str().expect("text")), "{error:?}");
    }
    assert_eq!(files(&folder), before);

    remount("remount,rw");
    users = UserStore::open(&path).expect("opens");
    users.add_user("alice@example.com", "example.com", "x").expect("added");
    store = LocationStore::open(&path).expect("opens");
    assert_eq!(count(&store), 500);
    write(&mut store, 500, &[2; 100], 2).expect("written");
}
