//! A server follows changes by others.

use std::path::PathBuf;

use proptest::prelude::*;
use rusqlite::Connection;
use strowger_directory::{Directory, DirectoryChange};
use strowger_store::{Changes, MAX_LOG_ROWS, Seq, UserStore, ha1s};
use tempfile::TempDir;

const REALM: &str = "example.com";
const ADDRESSES: [&str; 5] =
    ["alice@example.com", "bob@example.com", "carol@example.com", "dave@example.com", "erin@example.com"];

/// A running server: a directory kept up to date by changes alone.
struct Server {
    store: UserStore,
    directory: Directory,
    seq: Seq,
}

impl Server {
    fn start(path: &PathBuf) -> Self {
        let store = UserStore::open(path).expect("opens");
        let (directory, seq) = store.load(7).expect("loads");
        Self { store, directory, seq }
    }

    /// Returns the changes, or `None` if everything must be reloaded.
    fn follow(&mut self) -> Option<Vec<DirectoryChange>> {
        match self.store.changes_since(self.seq).expect("reads") {
            Changes::Since { changes, seq } => {
                self.directory = self.directory.with_changes(changes.clone());
                self.seq = seq;
                Some(changes)
            }
            Changes::Reload => {
                (self.directory, self.seq) = self.store.load(7).expect("loads");
                None
            }
        }
    }

    fn assert_up_to_date(&self) {
        let (loaded, seq) = self.store.load(8).expect("loads");
        loaded.check_invariants();
        self.directory.check_invariants();
        assert_eq!(self.seq, seq);
        assert_eq!((self.directory.users(), self.directory.aliases()), (loaded.users(), loaded.aliases()));
        for address in ADDRESSES.map(str::as_bytes) {
            assert_eq!(self.directory.user(address), loaded.user(address));
            assert_eq!(self.directory.resolve(address), loaded.resolve(address));
        }
    }
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("users.db");
    (folder, path)
}

#[test]
fn two_stores_on_one_file_see_each_other() {
    let (_folder, path) = folder();
    let mut server = Server::start(&path);
    assert_eq!(server.follow(), Some(vec![]));
    let mut tool = UserStore::open(&path).expect("opens");
    tool.add_user(ADDRESSES[0], REALM, "one").expect("added");
    tool.add_user(ADDRESSES[1], REALM, "two").expect("added");
    tool.add_alias(ADDRESSES[2], ADDRESSES[1]).expect("added");
    tool.set_password(ADDRESSES[0], REALM, "three").expect("changed");
    assert_eq!(server.follow().map(|changes| changes.len()), Some(3), "one change a row");
    assert_eq!(server.follow(), Some(vec![]));
    server.assert_up_to_date();
    let alice = server.directory.user(ADDRESSES[0].as_bytes()).expect("known");
    assert_eq!(alice.ha1, ha1s("alice", REALM, "three"));

    server.store.add_user(ADDRESSES[3], REALM, "four").expect("added");
    assert_eq!(tool.list().expect("lists").len(), 3);
    tool.remove_user(ADDRESSES[1]).expect("removed");
    let removed = |key: &str| -> Box<[u8]> { key.as_bytes().into() };
    let changes = server.follow().expect("within the log");
    assert!(changes.contains(&DirectoryChange::RemoveUser(removed(ADDRESSES[1]))));
    assert!(changes.contains(&DirectoryChange::RemoveAlias(removed(ADDRESSES[2]))), "an alias goes with its user");
    server.assert_up_to_date();
}

#[test]
fn a_user_added_and_removed_is_one_removal() {
    let (_folder, path) = folder();
    let mut server = Server::start(&path);
    let mut tool = UserStore::open(&path).expect("opens");
    for _ in 0..3 {
        tool.add_user(ADDRESSES[0], REALM, "one").expect("added");
        tool.remove_user(ADDRESSES[0]).expect("removed");
    }
    assert_eq!(server.follow(), Some(vec![DirectoryChange::RemoveUser(ADDRESSES[0].as_bytes().into())]));
}

#[test]
fn plain_sql_changes_are_followed() {
    let (_folder, path) = folder();
    let mut server = Server::start(&path);
    let client = Connection::open(&path).expect("opens");
    let steps = [
        "INSERT INTO users (aor, realm, ha1_md5) VALUES ('alice@example.com', 'example.com', '3D78807DEFE7DE2157E2B0B6573A855F')",
        "INSERT INTO aliases VALUES ('bob@example.com', 'alice@example.com')",
        "INSERT OR REPLACE INTO users (aor, realm, ha1_md5) VALUES ('alice@example.com', 'x', '00000000000000000000000000000000')",
        "UPDATE users SET aor = 'dave@example.com'",
        "INSERT INTO users (aor, realm, ha1_md5) SELECT 'erin@example.com', realm, ha1_md5 FROM users",
        "UPDATE OR REPLACE users SET aor = 'erin@example.com' WHERE aor = 'dave@example.com'",
        "UPDATE aliases SET alias = 'carol@example.com'",
        "UPDATE users SET enabled = 0",
        "INSERT OR REPLACE INTO aliases VALUES ('carol@example.com', 'erin@example.com')",
        "DELETE FROM users",
    ];
    for step in steps {
        client.execute_batch(step).expect(step);
        assert!(server.follow().is_some_and(|changes| !changes.is_empty()), "{step}");
        server.assert_up_to_date();
    }
    assert_eq!((server.directory.users(), server.directory.aliases()), (0, 0));
}

#[test]
fn a_plain_sql_client_cannot_write_invalid_rows() {
    let (_folder, path) = folder();
    let mut server = Server::start(&path);
    let client = Connection::open(&path).expect("opens");
    let hash = "00000000000000000000000000000000";
    let user = |aor: &str, md5: &str| {
        client.execute("INSERT INTO users (aor, realm, ha1_md5) VALUES (?1, 'example.com', ?2)", [aor, md5])
    };
    for aor in
        ["alice", "@example.com", "alice@", "alice@Example.com", "sip:alice@example.com", "al ice@example.com", "@"]
    {
        assert!(user(aor, hash).is_err(), "{aor}");
    }
    for md5 in ["", "secret", "0000000000000000000000000000000g", "000000000000000000000000000000000"] {
        assert!(user("alice@example.com", md5).is_err(), "{md5}");
    }
    assert!(client.execute("INSERT INTO users (aor, realm) VALUES ('alice@example.com', 'x')", ()).is_err(), "no hash");
    user("alice@example.com", hash).expect("sound");
    user("a@corp.com@[2001:db8::1]", hash).expect("sound");
    let alias = |alias: &str, aor: &str| client.execute("INSERT INTO aliases VALUES (?1, ?2)", [alias, aor]);
    alias("bob@example.com", "alice@example.com").expect("sound");
    for (from, to) in [
        ("alice@example.com", "a@corp.com@[2001:db8::1]"),
        ("carol@example.com", "bob@example.com"),
        ("carol@example.com", "nobody@example.com"),
        ("Carol@Example.com", "alice@example.com"),
    ] {
        assert!(alias(from, to).is_err(), "{from} to {to}");
    }
    assert!(user("bob@example.com", hash).is_err(), "an alias");
    let renamed = client.execute("UPDATE users SET aor = 'bob@example.com' WHERE aor = 'alice@example.com'", ());
    assert!(renamed.is_err(), "an alias");
    assert!(client.execute("UPDATE aliases SET aor = 'nobody@example.com'", ()).is_err());
    assert_eq!(server.follow().map(|changes| changes.len()), Some(3));
    server.assert_up_to_date();
}

#[test]
fn a_follower_behind_the_log_reloads() {
    let (_folder, path) = folder();
    let mut server = Server::start(&path);
    let client = Connection::open(&path).expect("opens");
    let write = |first: u64, count: u64| {
        client
            .execute(
                "WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1 + ?2)
                 INSERT INTO users (aor, realm, ha1_md5)
                 SELECT 'u' || i || '@example.com', 'example.com', printf('%032x', i) FROM n",
                [i64::try_from(first).expect("small"), i64::try_from(count).expect("small")],
            )
            .expect("written");
    };
    write(0, MAX_LOG_ROWS);
    assert_eq!(server.follow().map(|changes| changes.len() as u64), Some(MAX_LOG_ROWS), "just within the log");
    server.assert_up_to_date();
    write(MAX_LOG_ROWS, MAX_LOG_ROWS + 1);
    let rows: u64 = client
        .query_row("SELECT count(*) FROM changes", (), |row| row.get::<_, i64>(0))
        .expect("counts")
        .try_into()
        .expect("positive");
    assert_eq!(rows, MAX_LOG_ROWS, "the log is bounded");
    assert_eq!(server.follow(), None, "one change too many");
    server.assert_up_to_date();
    assert_eq!(server.directory.users() as u64, 2 * MAX_LOG_ROWS + 1);
    write(3 * MAX_LOG_ROWS, 1);
    assert_eq!(server.follow().map(|changes| changes.len()), Some(1), "and then by changes again");
    server.assert_up_to_date();
}

#[test]
fn a_log_with_missing_rows_causes_reload() {
    let (_folder, path) = folder();
    let mut server = Server::start(&path);
    for address in &ADDRESSES[..3] {
        server.store.add_user(address, REALM, "x").expect("added");
    }
    let client = Connection::open(&path).expect("opens");
    client.execute_batch("DELETE FROM changes WHERE seq = 2").expect("a hole");
    assert_eq!(server.follow(), None);
    server.assert_up_to_date();
    server.store.add_user(ADDRESSES[4], REALM, "x").expect("added");
    client.execute_batch("DELETE FROM changes").expect("all gone");
    assert_eq!(server.follow(), None);
    server.assert_up_to_date();
    assert_eq!(server.follow(), Some(vec![]));
}

#[test]
fn an_older_database_is_reloaded() {
    let (_folder, newer) = folder();
    let (_other_folder, older) = folder();
    let mut server = Server::start(&newer);
    server.store.add_user(ADDRESSES[0], REALM, "x").expect("added");
    server.follow();
    server.store = UserStore::open(&older).expect("opens");
    assert_eq!(server.follow(), None);
    server.assert_up_to_date();
}

#[test]
fn concurrent_writers_wait_and_lose_nothing() {
    const EACH: usize = 50;
    let (_folder, path) = folder();
    let add_all = |name: usize| {
        let mut store = UserStore::open(&path).expect("opens");
        for index in 0..EACH {
            store.add_user(&format!("u{name}-{index}@example.com"), REALM, "x").expect("added");
        }
    };
    let mut server = std::thread::scope(|scope| {
        for name in 0..4 {
            scope.spawn(move || add_all(name));
        }
        let mut server = Server::start(&path);
        for _ in 0..20 {
            server.follow();
        }
        server
    });
    server.follow();
    server.assert_up_to_date();
    assert_eq!(server.directory.users(), 4 * EACH);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    AddUser(usize),
    SetPassword(usize),
    RemoveUser(usize),
    AddAlias(usize, usize),
    RemoveAlias(usize),
    Follow,
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..ADDRESSES.len();
    prop_oneof![
        3 => any.clone().prop_map(Step::AddUser),
        1 => any.clone().prop_map(Step::SetPassword),
        1 => any.clone().prop_map(Step::RemoveUser),
        3 => (any.clone(), any.clone()).prop_map(|(alias, aor)| Step::AddAlias(alias, aor)),
        1 => any.prop_map(Step::RemoveAlias),
        2 => Just(Step::Follow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn following_equals_reloading(steps in proptest::collection::vec(step(), 1..60)) {
        let store = UserStore::open_memory().expect("memory");
        let (directory, seq) = store.load(7).expect("loads");
        let mut server = Server { store, directory, seq };
        for step in steps {
            // Refused changes count too: they must change nothing.
            let store = &mut server.store;
            match step {
                Step::AddUser(user) => drop(store.add_user(ADDRESSES[user], REALM, "one")),
                Step::SetPassword(user) => drop(store.set_password(ADDRESSES[user], REALM, "two")),
                Step::RemoveUser(user) => drop(store.remove_user(ADDRESSES[user])),
                Step::AddAlias(alias, user) => drop(store.add_alias(ADDRESSES[alias], ADDRESSES[user])),
                Step::RemoveAlias(alias) => drop(store.remove_alias(ADDRESSES[alias])),
                Step::Follow => {
                    prop_assert!(server.follow().is_some());
                    server.assert_up_to_date();
                }
            }
        }
        prop_assert!(server.follow().is_some());
        server.assert_up_to_date();
        let users: Vec<_> = server.store.list().expect("lists").into_iter().map(|user| user.aor).collect();
        for alias in server.store.list_aliases().expect("lists") {
            prop_assert!(users.contains(&alias.aor) && !users.contains(&alias.alias));
        }
    }
}
