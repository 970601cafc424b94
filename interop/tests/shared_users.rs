//! Users and gateways in a database that servers share, PostgreSQL and MariaDB, and their copy in each server's file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strowger_interop::{Database, Program, poll};
use strowger_sql::{Database as Sql, DatabaseUrl};
use strowger_store::{GatewayChange, NewGateway, Replicator, SharedDatabase, StoreError, SyncResult, UserStore};
use tempfile::TempDir;

const REALM: &str = "example.com";

/// A database and the file of a server that follows it.
struct Fixture {
    database: Database,
    url: DatabaseUrl,
    folder: TempDir,
}

impl Fixture {
    fn start(program: Program) -> Option<Self> {
        if !program.available() {
            return None;
        }
        let database = Database::start(program);
        let url = database.url().parse().expect("a URL");
        let given = Self { database, url, folder: tempfile::tempdir().expect("a temporary folder") };
        given.wait_until_it_can_be_used();
        Some(given)
    }

    /// Waits until the database answers queries, which is later than it accepts connections.
    fn wait_until_it_can_be_used(&self) {
        let answers = poll(Duration::from_secs(30), || Sql::connect(&self.url, Sql::TIMEOUT).ok());
        assert!(answers.is_some(), "it cannot be used");
    }

    fn each(mut test: impl FnMut(&Self)) {
        for program in [Program::Postgres, Program::MariaDb] {
            if let Some(given) = Self::start(program) {
                test(&given);
            }
        }
    }

    fn shared(&self) -> UserStore<SharedDatabase> {
        UserStore::connect(std::slice::from_ref(&self.url)).expect("it can be used")
    }

    /// Executes a statement as an administrator would.
    fn by_hand(&self, statement: &str) {
        let mut database = Sql::connect(&self.url, Sql::TIMEOUT).expect("it answers");
        database.execute(statement, &[]).expect("carried out");
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("strowger.db")
    }

    fn copier(&self) -> Replicator {
        Replicator::new(std::slice::from_ref(&self.url), &self.path()).expect("a file")
    }
}

fn gateway(uri: &str) -> NewGateway<'_> {
    NewGateway { uri, priority: 3, weight: 2, capacity: Some(30), description: "Wien, 2. Bündel", enabled: true }
}

/// Asserts that the server's file has the same contents as the database.
fn assert_same(given: &Fixture) {
    let (mut here, mut there) = (file(&given.path()), given.shared());
    assert_eq!(here.list().expect("lists"), there.list().expect("lists"));
    assert_eq!(here.list_aliases().expect("lists"), there.list_aliases().expect("lists"));
    assert_eq!(here.list_gateways(None).expect("lists"), there.list_gateways(None).expect("lists"));
}

fn file(path: &Path) -> UserStore {
    UserStore::open(path).expect("opens")
}

fn taken(copier: &mut Replicator) {
    let copied = copier.sync().expect("it follows");
    assert_eq!(copied, SyncResult::Updated { refused: std::collections::BTreeSet::new() });
    assert_eq!(copier.sync().expect("it follows"), SyncResult::Unchanged);
}

#[test]
fn database_changes_reach_the_file() {
    Fixture::each(|given| {
        let mut shared = given.shared();
        let mut copier = given.copier();
        shared.add_user("alice@example.com", REALM, "secret").expect("added");
        shared.add_user("bob@example.com", REALM, "secret").expect("added");
        shared.add_alias("desk@example.com", "alice@example.com").expect("added");
        shared.add_gateway("pstn", &gateway("sip:192.0.2.1")).expect("added");
        shared.add_gateway("pstn", &gateway("sip:192.0.2.2")).expect("added");
        taken(&mut copier);
        assert_same(given);
        assert_eq!(file(&given.path()).list().expect("lists").len(), 2);

        shared.set_password("alice@example.com", REALM, "another").expect("changed");
        shared.set_enabled("bob@example.com", false).expect("changed");
        let change = GatewayChange { enabled: Some(false), ..GatewayChange::default() };
        shared.change_gateway("pstn", "sip:192.0.2.1", &change).expect("changed");
        shared.remove_gateway("pstn", "sip:192.0.2.2").expect("removed");
        shared.remove_alias("desk@example.com").expect("removed");
        taken(&mut copier);
        assert_same(given);

        shared.add_alias("desk@example.com", "alice@example.com").expect("added");
        shared.remove_user("alice@example.com").expect("removed");
        taken(&mut copier);
        assert_same(given);
        assert!(shared.list_aliases().expect("lists").is_empty(), "an alias goes with its user");
        // The last user may be removed as well.
        shared.remove_user("bob@example.com").expect("removed");
        shared.remove_gateway("pstn", "sip:192.0.2.1").expect("removed");
        taken(&mut copier);
        assert!(file(&given.path()).list().expect("lists").is_empty());
    });
}

#[test]
fn the_password_is_the_same_in_the_file() {
    Fixture::each(|given| {
        given.shared().add_user("alice@example.com", REALM, "secret").expect("added");
        taken(&mut given.copier());
        let (directory, _) = file(&given.path()).load(1).expect("loads");
        let user = directory.user(b"alice@example.com").expect("known");
        assert_eq!(user.ha1, strowger_store::ha1s("alice", REALM, "secret"));
    });
}

#[test]
fn rows_changed_by_hand_are_followed() {
    Fixture::each(|given| {
        let mut copier = given.copier();
        given.shared().add_user("bob@example.com", REALM, "secret").expect("added");
        taken(&mut copier);
        given.by_hand(
            "INSERT INTO strowger_users (aor, realm, ha1_md5) VALUES ('alice@example.com', 'example.com', \
             md5('alice:example.com:secret'))",
        );
        given.by_hand("UPDATE strowger_users SET aor = 'robert@example.com' WHERE aor = 'bob@example.com'");
        taken(&mut copier);
        assert_same(given);
        let (directory, _) = file(&given.path()).load(1).expect("loads");
        let md5 = directory.user(b"alice@example.com").expect("known").ha1.md5;
        assert_eq!(md5, strowger_store::ha1s("alice", REALM, "secret").md5);
        assert!(directory.user(b"bob@example.com").is_none());

        given.by_hand("DELETE FROM strowger_users WHERE aor = 'robert@example.com'");
        taken(&mut copier);
        assert_same(given);
        // Rows that no command would write are rejected by the database or by the copier.
        let mut database = Sql::connect(&given.url, Sql::TIMEOUT).expect("it answers");
        let no_hash = "INSERT INTO strowger_users (aor, realm) VALUES ('carol@example.com', 'example.com')";
        assert!(database.execute(no_hash, &[]).is_err());
        let no_user = "INSERT INTO strowger_aliases (alias, aor) VALUES ('desk@example.com', 'nobody@example.com')";
        assert!(database.execute(no_user, &[]).is_err());
        given.by_hand(
            "INSERT INTO strowger_users (aor, realm, ha1_md5) VALUES ('carol@exa_mple..com', 'example.com', \
             md5('carol:example.com:secret'))",
        );
        let SyncResult::Updated { refused } = copier.sync().expect("it follows") else { panic!("something is new") };
        assert!(refused.iter().any(|why| why.contains("carol@exa_mple..com")), "{refused:?}");
        assert_eq!(file(&given.path()).list().expect("lists").len(), 1, "the others are followed");
    });
}

#[test]
fn commands_report_errors() {
    Fixture::each(|given| {
        let mut shared = given.shared();
        shared.add_user("alice@example.com", REALM, "secret").expect("added");
        let again = shared.add_user("alice@example.com", REALM, "secret");
        assert!(matches!(again, Err(StoreError::DuplicateUser { .. })), "{again:?}");
        let unknown = shared.remove_user("bob@example.com");
        assert!(matches!(unknown, Err(StoreError::UnknownUser { .. })), "{unknown:?}");
        shared.add_gateway("pstn", &gateway("sip:192.0.2.1")).expect("added");
        let again = shared.add_gateway("pstn", &gateway("sip:192.0.2.1"));
        assert!(matches!(again, Err(StoreError::DuplicateGateway { .. })), "{again:?}");
        let table = "aor,password\ncarol@example.com,c\nalice@example.com,a\n";
        let import = shared.import_csv(table.as_bytes(), REALM);
        assert!(matches!(import, Err(StoreError::Import { line: 3, .. })), "{import:?}");
        assert_eq!(shared.list().expect("lists").len(), 1, "nothing was imported");
    });
}

#[test]
fn a_new_or_lagging_server_reads_all() {
    Fixture::each(|given| {
        let mut shared = given.shared();
        let table: String = (0..12_000).map(|user| format!("user{user}@example.com,p\n")).collect();
        shared.import_csv(format!("aor,password\n{table}").as_bytes(), REALM).expect("imported");
        let mut late = given.copier();
        taken(&mut late);
        assert_same(given);
        // More changes than the database's change log keeps, a few of them for deleted users.
        given.by_hand("UPDATE strowger_users SET enabled = NOT enabled");
        given.by_hand("DELETE FROM strowger_users WHERE aor LIKE '%7@example.com'");
        let other = tempfile::tempdir().expect("a temporary folder");
        let path = other.path().join("strowger.db");
        let mut one = Replicator::new(std::slice::from_ref(&given.url), &path).expect("a file");
        taken(&mut one);
        given.by_hand("UPDATE strowger_users SET enabled = NOT enabled");
        taken(&mut one);
        taken(&mut late);
        assert_same(given);
        assert_eq!(file(&path).list().expect("lists"), shared.list().expect("lists"));
    });
}

#[test]
fn an_empty_database_removes_nobody() {
    Fixture::each(|given| {
        file(&given.path()).add_user("alice@example.com", REALM, "secret").expect("added");
        let mut copier = given.copier();
        let error = copier.sync().expect_err("refused");
        assert!(matches!(error, StoreError::SharedEmpty { .. }), "{error}");
        // Neither is a database accepted that has other users.
        given.shared().add_user("bob@example.com", REALM, "secret").expect("added");
        let error = copier.sync().expect_err("refused");
        assert!(matches!(error, StoreError::SharedLacks { rows: 1, .. }), "{error}");
        assert_eq!(file(&given.path()).list().expect("lists")[0].aor, "alice@example.com");
        given.shared().import_all(&given.path()).expect("brought");
        taken(&mut copier);
        assert_same(given);
        // From then on, users removed from the database are removed here, even if no copier was running.
        given.shared().remove_user("alice@example.com").expect("removed");
        taken(&mut given.copier());
        assert_same(given);
        given.by_hand("DELETE FROM strowger_users");
        let error = given.copier().sync().expect_err("refused");
        assert!(matches!(error, StoreError::SharedEmpty { .. }), "{error}");
    });
}

#[test]
fn a_file_from_another_database_loses_nobody() {
    Fixture::each(|given| {
        given.shared().add_user("alice@example.com", REALM, "secret").expect("added");
        taken(&mut given.copier());
        given.by_hand("UPDATE strowger_directory_schema SET id = 'another'");
        given.by_hand("UPDATE strowger_users SET aor = 'bob@example.com'");
        let error = given.copier().sync().expect_err("refused");
        assert!(matches!(error, StoreError::SharedLacks { rows: 1, .. }), "{error}");
    });
}

#[test]
fn users_of_a_file_are_imported() {
    Fixture::each(|given| {
        let mut own = file(&given.path());
        let table: String = (0..1_200).map(|user| format!("user{user}@example.com,p\n")).collect();
        own.import_csv(format!("aor,password\n{table}").as_bytes(), REALM).expect("imported");
        own.add_alias("desk@example.com", "user1@example.com").expect("added");
        own.add_gateway("pstn", &gateway("sip:192.0.2.1")).expect("added");
        own.add_gateway("pstn", &gateway("sip:192.0.2.2")).expect("added");
        let mut shared = given.shared();
        shared.add_user("user7@example.com", REALM, "another").expect("added");
        shared.add_gateway("pstn", &gateway("sip:192.0.2.2")).expect("added");
        let all = shared.import_all(&given.path()).expect("brought");
        assert_eq!((all.users.added, all.users.kept), (1_199, 1));
        assert_eq!((all.aliases.added, all.gateways.added, all.gateways.kept), (1, 1, 1));
        taken(&mut given.copier());
        assert_same(given);
        let again = shared.import_all(&given.path()).expect("brought");
        assert_eq!((again.users.added, again.users.kept, again.aliases.kept, again.gateways.kept), (0, 1_200, 1, 2));
        let other = tempfile::tempdir().expect("a temporary folder");
        let path = other.path().join("strowger.db");
        assert_eq!(file(&path).import_all(&given.path()).expect("brought").users.added, 1_200);
        assert_eq!(file(&path).list().expect("lists"), own.list().expect("lists"));
    });
}

#[test]
fn a_returned_database_is_followed_again() {
    for program in [Program::Postgres, Program::MariaDb] {
        let Some(mut given) = Fixture::start(program) else { continue };
        given.shared().add_user("alice@example.com", REALM, "secret").expect("added");
        let mut copier = given.copier();
        taken(&mut copier);
        given.database.start_again();
        given.wait_until_it_can_be_used();
        // The copier's connection is from before the restart, so this may fail.
        let _ = copier.sync();
        // A killed database may lose what it confirmed in its last second.
        given.shared().import_all(&given.path()).expect("brought");
        given.shared().add_user("bob@example.com", REALM, "secret").expect("added");
        taken(&mut copier);
        assert_same(&given);
    }
}

#[test]
fn members_can_create_the_tables_at_the_same_time() {
    Fixture::each(|given| {
        std::thread::scope(|scope| {
            for user in ["a", "b", "c", "d"] {
                scope.spawn(move || {
                    let aor = format!("{user}@example.com");
                    given.shared().add_user(&aor, REALM, "secret").expect("added");
                });
            }
        });
        taken(&mut given.copier());
        assert_eq!(file(&given.path()).list().expect("lists").len(), 4);
    });
}
