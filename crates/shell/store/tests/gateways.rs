//! Gateways: what a command writes, a server follows and a backup contains.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use strowger_directory::{Directory, DirectoryChange, Gateway};
use strowger_store::{
    BackupOptions, Changes, ErrorOwner, GatewayChange, GatewayEntry, MAX_GATEWAYS, MAX_SET_GATEWAYS, NewGateway,
    StoreError, UserStore, backup, gateways_at, inspect, restore,
};
use tempfile::TempDir;

const FIRST: &str = "sip:192.0.2.1:5060";
const SECOND: &str = "sip:gw.carrier.example;transport=tcp";

fn new(uri: &str) -> NewGateway<'_> {
    NewGateway { uri, priority: 0, weight: 1, capacity: None, description: "", enabled: true }
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("strowger.db");
    (folder, path)
}

/// Set, URI, priority and whether it is enabled.
fn shown(listed: &[GatewayEntry]) -> Vec<(&str, &str, u16, bool)> {
    listed.iter().map(|row| (&*row.set, &*row.uri, row.priority, row.enabled)).collect()
}

fn uris<'a>(directory: &'a Directory, set: &str) -> Vec<&'a str> {
    let members = directory.gateways().members(set.as_bytes()).iter();
    members.map(|gateway| std::str::from_utf8(&gateway.uri).expect("text")).collect()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    let error = result.expect_err("refused");
    assert_eq!(error.owner(), ErrorOwner::Request, "{error}");
    error.to_string()
}

#[test]
fn a_gateway_is_added_listed_changed_and_removed() {
    let mut store = UserStore::open_memory().expect("memory");
    let note =
        NewGateway { priority: 5, weight: 0, capacity: Some(30), description: "Wien, 2. Bündel", ..new(SECOND) };
    store.add_gateway("pstn", &note).expect("added");
    store.add_gateway("pstn", &new(FIRST)).expect("added");
    store.add_gateway("mobile", &new(FIRST)).expect("the same place in another set");
    let listed = store.list_gateways(None).expect("lists");
    assert_eq!(shown(&listed), [("mobile", FIRST, 0, true), ("pstn", FIRST, 0, true), ("pstn", SECOND, 5, true)]);
    let last = &listed[2];
    assert_eq!((last.weight, last.capacity, &*last.description), (0, Some(30), "Wien, 2. Bündel"));
    assert!(last.created_s > 1_700_000_000);

    let change = GatewayChange { priority: Some(7), capacity: Some(None), ..GatewayChange::default() };
    store.change_gateway("pstn", SECOND, &change).expect("changed");
    let change = GatewayChange { enabled: Some(false), ..GatewayChange::default() };
    store.change_gateway("pstn", FIRST, &change).expect("changed");
    let listed = store.list_gateways(Some("pstn")).expect("lists");
    assert_eq!(shown(&listed), [("pstn", FIRST, 0, false), ("pstn", SECOND, 7, true)]);
    assert_eq!((listed[1].weight, listed[1].capacity, &*listed[1].description), (0, None, "Wien, 2. Bündel"));

    store.remove_gateway("pstn", SECOND).expect("removed");
    assert_eq!(shown(&store.list_gateways(Some("pstn")).expect("lists")), [("pstn", FIRST, 0, false)]);
    assert!(store.list_gateways(Some("nowhere")).expect("lists").is_empty());
}

#[test]
fn errors_give_a_remedy() {
    let mut store = UserStore::open_memory().expect("memory");
    store.add_gateway("pstn", &new(FIRST)).expect("added");
    assert_eq!(
        refusal(store.add_gateway("pstn", &new(FIRST))),
        "sip:192.0.2.1:5060 is already in the set pstn; `strowger gateway change pstn sip:192.0.2.1:5060` changes it"
    );
    let unknown = "there is no gateway sip:192.0.2.1:5060 in the set mobile; `strowger gateway list` shows all";
    assert_eq!(refusal(store.remove_gateway("mobile", FIRST)), unknown);
    assert_eq!(refusal(store.change_gateway("mobile", FIRST, &GatewayChange::default())), unknown);
    let long = "x".repeat(65);
    for set in ["", "p stn", "set:pstn", "größe", &long] {
        assert!(refusal(store.add_gateway(set, &new(FIRST))).contains("is not a valid set name"), "{set}");
        assert!(refusal(store.list_gateways(Some(set))).contains("is not a valid set name"), "{set}");
    }
    let long = format!("sip:{}", "x".repeat(252));
    for uri in
        ["", "192.0.2.1", "sip:", "sips:192.0.2.1", "tel:+431", "sip:a b", "sip:a?b=c", "<sip:a>", "sip:ä", &long]
    {
        assert!(refusal(store.add_gateway("pstn", &new(uri))).contains("is not a valid gateway: "), "{uri}");
    }
    for capacity in [0, 1_000_001] {
        let new = NewGateway { capacity: Some(capacity), ..new(SECOND) };
        assert!(refusal(store.add_gateway("pstn", &new)).contains("its capacity is not from 1"));
    }
    let long = "x".repeat(256);
    for description in ["two\nlines", &long] {
        let change = GatewayChange { description: Some(description), ..GatewayChange::default() };
        assert!(refusal(store.change_gateway("pstn", FIRST, &change)).contains("its note is not one line"));
    }
    assert_eq!(store.list_gateways(None).expect("lists").len(), 1, "nothing was changed");
}

#[test]
fn set_size_and_count_are_bounded() {
    let (_folder, path) = folder();
    let mut store = UserStore::open(&path).expect("opens");
    let client = Connection::open(&path).expect("opens");
    let fill = |set: usize| {
        client.execute_batch(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MAX_SET_GATEWAYS})
             INSERT INTO gateways (set_name, uri) SELECT 'set-{set}', 'sip:gw' || i FROM n"
        ))
    };
    fill(0).expect("as many as may be");
    assert!(refusal(store.add_gateway("set-0", &new(FIRST))).starts_with("the set set-0 has 64 gateways"));
    let one_more = "INSERT INTO gateways (set_name, uri) VALUES ('set-0', 'sip:x')";
    assert!(client.execute(one_more, ()).expect_err("refused").to_string().contains("64 gateways at most"));
    client.execute("INSERT OR REPLACE INTO gateways (set_name, uri) VALUES ('set-0', 'sip:gw1')", ()).expect("no more");
    client.execute("INSERT INTO gateways (set_name, uri) VALUES ('other', 'sip:x')", ()).expect("another set");
    let moved = client.execute("UPDATE gateways SET set_name = 'set-0' WHERE set_name = 'other'", ());
    assert!(moved.expect_err("refused").to_string().contains("64 gateways at most"));
    client.execute("DELETE FROM gateways WHERE set_name = 'other'", ()).expect("removed");
    for set in 1..MAX_GATEWAYS / MAX_SET_GATEWAYS {
        fill(set).expect("as many as may be");
    }
    let error = refusal(store.add_gateway("other", &new(FIRST)));
    assert!(error.starts_with("there are 4096 gateways"), "{error}");
    assert!(fill(99).is_err());
    let (directory, _) = store.load(1).expect("loads");
    assert_eq!(directory.gateways().sets().count(), 64);
    directory.check_invariants();
}

/// Returns the changes that a following server gets, and applies them to its directory.
fn follow(store: &UserStore, directory: &mut Directory, seq: &mut strowger_store::Seq) -> Vec<DirectoryChange> {
    let Changes::Since { changes, seq: newer } = store.changes_since(*seq).expect("reads") else { panic!("a log") };
    (*directory, *seq) = (directory.with_changes(changes.clone()), newer);
    directory.check_invariants();
    changes
}

#[test]
fn a_server_follows_whole_sets() {
    let (_folder, path) = folder();
    let server = UserStore::open(&path).expect("opens");
    let (mut directory, mut seq) = server.load(7).expect("loads");
    let mut tool = UserStore::open(&path).expect("opens");
    tool.add_gateway("pstn", &NewGateway { priority: 9, ..new(FIRST) }).expect("added");
    tool.add_gateway("pstn", &new(SECOND)).expect("added");
    tool.add_user("alice@example.com", "example.com", "x").expect("added");
    assert_eq!(follow(&server, &mut directory, &mut seq).len(), 2, "one change of a set, one of a user");
    assert_eq!(uris(&directory, "pstn"), [SECOND, FIRST]);

    tool.change_gateway("pstn", SECOND, &GatewayChange { enabled: Some(false), ..GatewayChange::default() })
        .expect("changed");
    let expected = [(SECOND, 0, false), (FIRST, 9, true)].map(|(uri, priority, enabled)| Gateway {
        uri: uri.as_bytes().into(),
        priority,
        weight: 1,
        capacity: None,
        enabled,
    });
    follow(&server, &mut directory, &mut seq);
    assert_eq!(directory.gateways().members(b"pstn"), expected);
    tool.change_gateway("pstn", SECOND, &GatewayChange { enabled: Some(false), ..GatewayChange::default() })
        .expect("as it is");
    assert!(follow(&server, &mut directory, &mut seq).is_empty(), "nothing to tell");

    let client = Connection::open(&path).expect("opens");
    for (statement, pstn, other) in [
        ("UPDATE gateways SET set_name = 'other' WHERE uri LIKE '%tcp'", &[FIRST][..], &[SECOND][..]),
        ("UPDATE gateways SET uri = 'sip:new' WHERE set_name = 'pstn'", &["sip:new"], &[SECOND]),
        ("INSERT OR REPLACE INTO gateways (set_name, uri) VALUES ('pstn', 'sip:new')", &["sip:new"], &[SECOND]),
        ("DELETE FROM gateways", &[], &[]),
    ] {
        client.execute_batch(statement).expect(statement);
        follow(&server, &mut directory, &mut seq);
        assert_eq!(
            (uris(&directory, "pstn"), uris(&directory, "other")),
            (pstn.to_vec(), other.to_vec()),
            "{statement}"
        );
        let (loaded, _) = server.load(8).expect("loads");
        assert!(loaded.gateways().sets().eq(directory.gateways().sets()), "{statement}");
    }
}

#[test]
fn a_plain_sql_client_cannot_write_invalid_gateways() {
    let (_folder, path) = folder();
    drop(UserStore::open(&path).expect("made"));
    let client = Connection::open(&path).expect("opens");
    let insert = |columns: &str, values: &str| {
        client.execute(&format!("INSERT INTO gateways (set_name, uri{columns}) VALUES ({values})"), ())
    };
    for (columns, values) in [
        ("", "'', 'sip:a'"),
        ("", "'set:pstn', 'sip:a'"),
        ("", "'p stn', 'sip:a'"),
        ("", "'pstn', 'sip:'"),
        ("", "'pstn', 'sips:a'"),
        ("", "'pstn', 'sip:a b'"),
        ("", "'pstn', 'sip:ä'"),
        ("", "'pstn', '<sip:a>'"),
        (", priority", "'pstn', 'sip:a', -1"),
        (", weight", "'pstn', 'sip:a', 65536"),
        (", capacity", "'pstn', 'sip:a', 0"),
        (", enabled", "'pstn', 'sip:a', 2"),
        (", description", "'pstn', 'sip:a', NULL"),
    ] {
        assert!(insert(columns, values).is_err(), "{columns} {values}");
    }
    insert("", "'a-Z_0.9', 'SIP:user@[2001:db8::1]:5060;transport=tcp'").expect("sound");
    assert!(insert("", "'a-Z_0.9', 'SIP:user@[2001:db8::1]:5060;transport=tcp'").is_err(), "there already");
}

/// Creates a database of the second schema version, with a user and a log of three changes.
fn second_version(path: &Path) {
    let old = Connection::open(path).expect("opens");
    old.execute_batch(include_str!("../src/schema/1_users.sql")).expect("made");
    old.execute_batch(include_str!("../src/schema/2_locations.sql")).expect("made");
    old.execute_batch(
        "PRAGMA application_id = 0x53747267; PRAGMA user_version = 2;
         INSERT INTO users (aor, realm, ha1_md5) VALUES ('alice@example.com', 'x', '0123456789abcdef0123456789abcdef');
         INSERT INTO aliases (alias, aor) VALUES ('ali@example.com', 'alice@example.com');
         UPDATE users SET enabled = 0",
    )
    .expect("filled");
}

#[test]
fn an_older_database_gets_gateways_and_keeps_the_rest() {
    let (_folder, path) = folder();
    second_version(&path);
    assert!(gateways_at(&path).expect("readable").sets().next().is_none(), "there were none then");
    assert_eq!(inspect(&path).expect("sound").schema, 2, "nor does looking change it");
    let mut store = UserStore::open(&path).expect("opens");
    assert_eq!(inspect(&path).expect("sound").schema, 3);
    let (directory, seq) = store.load(1).expect("loads");
    assert_eq!((directory.users(), directory.aliases()), (1, 1));
    assert_eq!(seq.to_string(), "3", "numbers of changes go on, so that none means two things");
    store.set_enabled("alice@example.com", true).expect("changed");
    store.add_gateway("pstn", &new(FIRST)).expect("added");
    let Changes::Since { changes, seq } = store.changes_since(seq).expect("reads") else { panic!("a log") };
    assert_eq!((changes.len(), seq.to_string().as_str()), (2, "5"));
    assert_eq!(uris(&directory.with_changes(changes), "pstn"), [FIRST]);
    assert_eq!(gateways_at(&path).expect("readable").members(b"pstn").len(), 1);
}

#[test]
fn a_missing_database_has_no_gateways() {
    let (_folder, path) = folder();
    assert!(gateways_at(&path).expect("nothing").sets().next().is_none());
    assert!(!path.exists());
    std::fs::write(&path, "no database ".repeat(100)).expect("written");
    assert!(matches!(gateways_at(&path), Err(StoreError::NotADatabase { .. })));
}

#[test]
fn reading_leaves_no_files_and_sees_the_latest_writes() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a 100%? #1.db");
    let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
    let mut store = UserStore::open(&path).expect("opens");
    store.add_gateway("pstn", &new(FIRST)).expect("added");
    assert_eq!(gateways_at(&path).expect("readable").members(b"pstn").len(), 1, "it is in the log only");
    drop(store);
    assert_eq!(files(), 1);
    assert_eq!(gateways_at(&path).expect("readable").members(b"pstn").len(), 1);
    assert_eq!(files(), 1);
}

#[test]
fn a_backup_carries_gateways() {
    let (folder, path) = folder();
    let mut store = UserStore::open(&path).expect("opens");
    store.add_gateway("pstn", &NewGateway { capacity: Some(30), description: "first", ..new(FIRST) }).expect("added");
    store.add_gateway("pstn", &new(SECOND)).expect("added");
    let before = store.list_gateways(None).expect("lists");
    let file = folder.path().join("backup.db");
    let info = backup(&path, &file, &BackupOptions::default(), |_, _| {}).expect("made");
    assert_eq!((info.gateways, info.schema), (2, 3));
    store.remove_gateway("pstn", FIRST).expect("removed");
    drop(store);
    let restored = restore(&file, &path, true).expect("restored");
    assert_eq!(restored.info.gateways, 2);
    let mut store = UserStore::open(&path).expect("opens");
    assert_eq!(store.list_gateways(None).expect("lists"), before);
    let (directory, _) = store.load(1).expect("loads");
    assert_eq!(uris(&directory, "pstn"), [FIRST, SECOND]);
}
