//! The file: its permissions, and foreign files.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rusqlite::Connection;
use strowger_store::{ErrorOwner, StoreError, UserStore};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

fn refused(path: &Path) -> StoreError {
    let error = UserStore::open(path).expect_err("refused");
    assert_eq!(error.owner(), ErrorOwner::Operator, "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    error
}

/// Whether permissions apply to this process; they do not to root.
fn rights_bind_us(folder: &Path) -> bool {
    let probe = folder.join("probe");
    fs::write(&probe, "").expect("written");
    fs::set_permissions(&probe, Permissions::from_mode(0o000)).expect("changed");
    let bound = File::open(&probe).is_err();
    if !bound {
        println!("skipped: this runs as the superuser, whom no rights bind");
    }
    bound
}

//= rfc7616#5.2:file
#[test]
fn folders_and_files_are_created_owner_only() {
    let folder = tempfile::tempdir().expect("folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("changed");
    let path = folder.path().join("a/b/users.db");
    let mut store = UserStore::open(&path).expect("opens");
    store.add_user("alice@example.com", "example.com", "wonderland").expect("added");
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
    assert_eq!(mode(folder.path()), 0o755, "what was there stays as it was");
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&folder.path().join(format!("a/b/users.db{suffix}"))), 0o600, "{suffix}");
    }
}

#[test]
fn no_file_contains_the_password() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("users.db");
    let mut store = UserStore::open(&path).expect("opens");
    store.add_user("alice@example.com", "example.com", "wonderland").expect("added");
    store.set_password("alice@example.com", "example.com", "lookingglass").expect("changed");
    let mut searched = 0;
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let bytes = fs::read(entry.expect("entry").path()).expect("readable");
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        searched += usize::from(has("alice@example.com"));
        assert!(!has("wonderland") && !has("lookingglass"));
    }
    assert!(searched > 0, "the search finds what is there");
}

#[test]
fn world_permissions_are_removed() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("users.db");
    drop(UserStore::open(&path).expect("opens"));
    for (before, after) in [(0o644, 0o640), (0o666, 0o660), (0o604, 0o600), (0o600, 0o600)] {
        fs::set_permissions(&path, Permissions::from_mode(before)).expect("changed");
        drop(UserStore::open(&path).expect("opens"));
        assert_eq!(mode(&path), after);
    }
}

#[test]
fn a_foreign_file_is_left_unchanged() {
    let folder = tempfile::tempdir().expect("folder");
    let text = folder.path().join("notes.txt");
    fs::write(&text, "no database, but long enough to look at ".repeat(50)).expect("written");
    let foreign = folder.path().join("cookies.sqlite");
    Connection::open(&foreign).expect("opens").execute_batch("CREATE TABLE cookies (x)").expect("written");
    for path in [&text, &foreign] {
        fs::set_permissions(path, Permissions::from_mode(0o644)).expect("changed");
        let before = fs::read(path).expect("readable");
        match refused(path) {
            StoreError::NotADatabase { .. } => assert_eq!(path, &text),
            StoreError::Foreign { .. } => assert_eq!(path, &foreign),
            other => panic!("{other}"),
        }
        assert_eq!(fs::read(path).expect("readable"), before);
        assert_eq!(mode(path), 0o644);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing was made beside them");
}

#[test]
fn a_path_to_a_non_file_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    assert!(matches!(refused(folder.path()), StoreError::NotAFile { .. }));
    assert!(matches!(refused(Path::new("/dev/null")), StoreError::NotAFile { .. }));
    assert!(UserStore::open("").is_err());
}

#[test]
fn an_uncreatable_folder_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let error = UserStore::open(file.join("data/users.db")).expect_err("refused");
    assert!(matches!(&error, StoreError::Folder { path, .. } if *path == file.join("data")), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("the folder {} cannot be created: Not a directory", file.join("data").display()))
    );
    assert!(text.ends_with("; create it, or choose another path for the users database"), "{text}");
}

#[test]
fn missing_rights_are_named() {
    let folder = tempfile::tempdir().expect("folder");
    if !rights_bind_us(folder.path()) {
        return;
    }
    let path = folder.path().join("users.db");
    drop(UserStore::open(&path).expect("opens"));
    for lacking in [0o000, 0o400, 0o200] {
        fs::set_permissions(&path, Permissions::from_mode(lacking)).expect("changed");
        assert!(matches!(refused(&path), StoreError::Permission { .. }), "{lacking:o}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
    let mut store = UserStore::open(&path).expect("opens again");
    store.add_user("alice@example.com", "example.com", "x").expect("nothing that was refused is left in the way");
    drop(store);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).expect("changed");
    assert!(matches!(refused(&path), StoreError::Permission { .. }), "no room for the log beside it");
    assert!(matches!(refused(&folder.path().join("new.db")), StoreError::Create { .. }));
    let below = folder.path().join("data/users.db");
    assert!(matches!(UserStore::open(&below), Err(StoreError::Folder { .. })));
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("changed");
}

#[test]
fn a_newer_schema_is_refused_on_open_and_in_use() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("users.db");
    let mut running = UserStore::open(&path).expect("opens");
    running.add_user("alice@example.com", "example.com", "x").expect("added");
    let (_, seq) = running.load(1).expect("loads");
    Connection::open(&path).expect("opens").pragma_update(None, "user_version", 99).expect("upgraded");
    let error = refused(&path);
    assert!(matches!(error, StoreError::NewerSchema { found: 99, known: 3, .. }), "{error}");
    assert!(error.to_string().contains("written by a newer version of this program"), "{error}");
    let is_newer = |error: Option<StoreError>| matches!(error, Some(StoreError::NewerSchema { found: 99, .. }));
    assert!(is_newer(running.changes_since(seq).err()));
    assert!(is_newer(running.load(1).err()));
    assert!(is_newer(running.remove_user("alice@example.com").err()));
}

#[test]
fn a_damaged_file_is_reported() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("users.db");
    drop(UserStore::open(&path).expect("opens"));
    let mut bytes = fs::read(&path).expect("readable");
    bytes[100..].fill(0x55);
    fs::write(&path, bytes).expect("written");
    assert!(matches!(refused(&path), StoreError::Damaged { .. }));
}

#[test]
fn a_row_violating_constraints_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("users.db");
    let store = UserStore::open(&path).expect("opens");
    let client = Connection::open(&path).expect("opens");
    client
        .execute_batch(
            "PRAGMA ignore_check_constraints = ON;
             INSERT INTO users (aor, realm, ha1_md5) VALUES ('alice@example.com', 'x', 'secret')",
        )
        .expect("written");
    let error = store.load(1).expect_err("refused").to_string();
    assert_eq!(
        error,
        "the users database has a bad row: ha1_md5 of \"alice@example.com\"; correct it, or remove the row and add it \
         again"
    );
}

#[test]
fn concurrent_first_opens_work() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("data/users.db");
        std::thread::scope(|scope| {
            for index in 0..6 {
                let path = &path;
                scope.spawn(move || {
                    let mut store = UserStore::open(path).expect("opens");
                    store.add_user(&format!("u{index}@example.com"), "example.com", "x").expect("added");
                });
            }
        });
        assert_eq!(UserStore::open(&path).expect("opens").list().expect("lists").len(), 6);
    }
}

#[test]
fn names_special_to_sqlite_are_ordinary_files() {
    let folder = tempfile::tempdir().expect("folder");
    for name in [":memory:", "file:users.db?mode=memory"] {
        let path = folder.path().join(name);
        drop(UserStore::open(&path).expect("opens"));
        assert!(path.is_file(), "{name}");
    }
}
