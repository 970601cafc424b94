//! Tables of Kamailio and OpenSIPS in SQLite files, with the columns of these servers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")]

use std::fs::File;
use std::time::Duration;

use strowger_directory::{Directory, DirectoryChange};
use strowger_kamailio::{
    BadRow, DestinationSet, Flavor, FollowConfig, Follower, Identity, Member, Registration, Subscriber, Table, Tables,
    VersionError,
};
use strowger_sql::{Database, DatabaseUrl};
use strowger_store::ha1s;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

const KAMAILIO: &str = "
    CREATE TABLE version (id INTEGER PRIMARY KEY, table_name VARCHAR(32), table_version INTEGER);
    INSERT INTO version (table_name, table_version) VALUES ('subscriber', 7), ('dispatcher', 4), ('location', 9);
    CREATE TABLE subscriber (id INTEGER PRIMARY KEY, username VARCHAR(64), domain VARCHAR(64), password VARCHAR(64) DEFAULT '',
        ha1 VARCHAR(128) DEFAULT '', ha1b VARCHAR(128) DEFAULT '');
    CREATE TABLE dispatcher (id INTEGER PRIMARY KEY, setid INTEGER DEFAULT 0, destination VARCHAR(192) DEFAULT '',
        flags INTEGER DEFAULT 0, priority INTEGER DEFAULT 0, attrs VARCHAR(128) DEFAULT '', description VARCHAR(64) DEFAULT '');
    CREATE TABLE location (id INTEGER PRIMARY KEY, username VARCHAR(64), domain VARCHAR(64), contact VARCHAR(512),
        received VARCHAR(128), path VARCHAR(512), expires TIMESTAMP, q REAL DEFAULT 1.0, callid VARCHAR(255), cseq INTEGER,
        user_agent VARCHAR(255), socket VARCHAR(64), methods INTEGER, instance VARCHAR(255), reg_id INTEGER DEFAULT 0);";

const OPENSIPS: &str = "
    CREATE TABLE version (table_name CHAR(32), table_version INTEGER);
    INSERT INTO version (table_name, table_version) VALUES ('subscriber', 8), ('dispatcher', 9), ('location', 1013);
    CREATE TABLE subscriber (id INTEGER PRIMARY KEY, username CHAR(64), domain CHAR(64), password CHAR(25) DEFAULT '',
        ha1 CHAR(64) DEFAULT '', ha1_sha256 CHAR(64) DEFAULT '', ha1_sha512t256 CHAR(64) DEFAULT '');
    CREATE TABLE dispatcher (id INTEGER PRIMARY KEY, setid INTEGER DEFAULT 0, destination CHAR(192) DEFAULT '',
        socket CHAR(128), state INTEGER DEFAULT 0, weight CHAR(64) DEFAULT 1, priority INTEGER DEFAULT 0,
        attrs CHAR(128) DEFAULT '', description CHAR(64) DEFAULT '');
    CREATE TABLE location (contact_id INTEGER PRIMARY KEY, username CHAR(64), domain CHAR(64), contact TEXT, received CHAR(255),
        path CHAR(255), expires INTEGER, q FLOAT DEFAULT 1.0, callid CHAR(255), cseq INTEGER, socket CHAR(64), sip_instance CHAR(255));";

struct Fixture {
    url: DatabaseUrl,
    database: Database,
    tables: Tables,
    _folder: TempDir,
}

impl Fixture {
    fn with(flavor: Flavor, sql: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.db");
        File::create(&path).unwrap();
        let url: DatabaseUrl = format!("sqlite:{}", path.display()).parse().unwrap();
        let mut database = Database::connect(&url, PATIENCE).unwrap();
        database.batch(if flavor == Flavor::Kamailio { KAMAILIO } else { OPENSIPS }).unwrap();
        database.batch(sql).unwrap();
        let tables = Tables::new(&url, flavor, PATIENCE);
        Self { url, database, tables, _folder: folder }
    }

    fn subscribers(&mut self, identity: &Identity) -> Vec<Result<Subscriber, BadRow>> {
        let mut rows = Vec::new();
        self.tables.for_each_subscriber(identity, &mut |row| rows.push(row)).unwrap();
        rows
    }

    fn registrations(&mut self) -> Vec<Result<Registration, BadRow>> {
        let mut rows = Vec::new();
        self.tables.for_each_registration(&identity(), &mut |row| rows.push(row)).unwrap();
        rows
    }
}

fn identity() -> Identity {
    Identity { domain: "example.com".to_owned(), realm: None }
}

#[test]
fn subscriber_hashes_come_from_the_password_or_the_hash_columns() {
    let md5 = "5f4dcc3b5aa765d61d8327deb882cf99";
    let sha256 = "ab".repeat(32);
    let rows = format!(
        "INSERT INTO subscriber (username, domain, password, ha1, ha1b) VALUES ('alice', 'Example.COM', 'secret', '', ''),
        ('bob', '', '', '{md5}', ''), ('carol', 'example.org', '', '{sha256}', ''), ('dave', NULL, 'x', '{md5}', '');"
    );
    let mut given = Fixture::with(Flavor::Kamailio, &rows);
    let rows = given.subscribers(&identity());
    let [alice, bob, carol, dave] = &rows[..] else { panic!("{rows:?}") };
    let alice = alice.as_ref().unwrap();
    assert_eq!((alice.address.as_str(), alice.realm.as_str()), ("alice@example.com", "example.com"));
    assert_eq!(alice.ha1, ha1s("alice", "example.com", "secret"));
    let bob = bob.as_ref().unwrap();
    assert_eq!((bob.address.as_str(), bob.has_password), ("bob@example.com", false));
    assert_eq!(bob.ha1.md5.map(|hash| hash[0]), Some(0x5f));
    let carol = carol.as_ref().unwrap();
    assert_eq!((carol.ha1.md5, carol.ha1.sha256), (None, Some([0xab; 32])));
    let dave = dave.as_ref().unwrap();
    assert!(dave.has_hash_mismatch && !alice.has_hash_mismatch && dave.ha1 == ha1s("dave", "example.com", "x"));

    let of_realm = Identity { realm: Some("pbx".to_owned()), ..identity() };
    assert_eq!(given.subscribers(&of_realm)[0].as_ref().unwrap().ha1, ha1s("alice", "pbx", "secret"));
}

#[test]
fn unreadable_rows_say_why_and_show_no_secret() {
    let mut given = Fixture::with(
        Flavor::Kamailio,
        "INSERT INTO subscriber (username, domain, password, ha1, ha1b) VALUES ('', 'example.com', 'secret', '', ''),
        ('two words', '', 'secret', '', ''), ('bob', '', '', 'secret', ''), ('carol', '', '', '', 'aa'), ('dave', '', '', '', '');",
    );
    let rows = given.subscribers(&identity());
    let why: Vec<String> = rows.into_iter().map(|row| row.unwrap_err().to_string()).collect();
    assert!(why.iter().all(|why| !why.contains("secret")), "{why:?}");
    assert!(why[1].starts_with("subscriber two words@example.com: "), "{}", why[1]);
    assert_eq!(why[2], "subscriber bob@example.com: ha1 is not 32 hexadecimal digits");
    assert!(why[3].contains("it has only ha1b"), "{}", why[3]);
    assert_eq!(why[4], "subscriber dave@example.com: it has neither a password nor a hash");
}

fn shown(sets: &[DestinationSet]) -> Vec<String> {
    let member = |set: &str, member: &Member| {
        let gateway = &member.gateway;
        let uri = String::from_utf8_lossy(&gateway.uri);
        format!("{set} {uri} {} {} {:?} {}", gateway.priority, gateway.weight, gateway.capacity, gateway.enabled)
    };
    sets.iter().flat_map(|set| set.members.iter().map(|one| member(&set.name, one))).collect()
}

#[test]
fn kamailio_sets_keep_weights_and_put_highest_priority_first() {
    let mut given = Fixture::with(
        Flavor::Kamailio,
        "INSERT INTO dispatcher (setid, destination, flags, priority, attrs, description) VALUES
        (2, 'sip:192.0.2.9', 0, 0, '', ''), (1, 'sip:192.0.2.1:5060', 0, 10, 'duid=a;weight=50;maxload=30', 'Vienna'),
        (1, '192.0.2.2', 4, 3, 'rweight=5;weight=9', ''), (1, 'sip:192.0.2.3', 1, 0, 'socket=udp:192.0.2.8:5060', ''),
        (1, 'sip:192.0.2.4', 8, 0, 'weight=0', ''), (1, 'sip:192.0.2.2', 0, 0, '', ''), (1, '', 0, 0, '', '');",
    );
    let (sets, bad) = given.tables.sets("ds").unwrap();
    assert_eq!(
        shown(&sets),
        [
            "ds1 sip:192.0.2.1:5060 0 50 Some(30) true",
            "ds1 sip:192.0.2.2 7 5 None false",
            "ds1 sip:192.0.2.3 10 1 None false",
            "ds2 sip:192.0.2.9 0 1 None true",
        ]
    );
    assert_eq!((&*sets[0].members[0].description, &sets[0].members[2].ignored[..]), ("Vienna", &["socket"][..]));
    let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
    assert!(bad[0].starts_with("dispatcher 1 sip:192.0.2.4: \"weight=0\" is not a valid share"), "{bad:?}");
    assert_eq!(bad[1], "dispatcher 1 sip:192.0.2.2: another row of the set has the same destination");
    assert_eq!(bad[2], "dispatcher 1 : it has no destination URI");
}

#[test]
fn opensips_tables_are_read_by_their_columns() {
    let sha256 = "cd".repeat(32);
    let rows = format!(
        "INSERT INTO subscriber (username, domain, ha1_sha256, ha1_sha512t256) VALUES ('alice', '', '{sha256}', '{sha256}');
        INSERT INTO dispatcher (setid, destination, state, weight, priority) VALUES (1, 'sip:192.0.2.1', 0, '7', 1),
        (1, 'sip:192.0.2.2', 1, 1, 0), (1, 'sip:192.0.2.3', 2, 1, 0), (1, 'sip:192.0.2.4', 0, 'fs:x', 0);
        INSERT INTO location (username, contact, expires, callid, cseq, sip_instance)
        VALUES ('alice', 'sip:alice@192.0.2.7', unixepoch() + 100, 'x', 5, '\"<urn:uuid:1>\"');"
    );
    let mut given = Fixture::with(Flavor::OpenSips, &rows);
    given.tables.check(&[Table::Subscriber, Table::Dispatcher, Table::Location]).unwrap();
    let alice = given.subscribers(&identity()).remove(0).unwrap();
    assert_eq!((alice.ha1.md5, alice.ha1.sha256, alice.ha1.sha512_256), (None, Some([0xcd; 32]), Some([0xcd; 32])));
    let (sets, bad) = given.tables.sets("ds").unwrap();
    let expected =
        ["ds1 sip:192.0.2.1 0 7 None true", "ds1 sip:192.0.2.2 1 1 None false", "ds1 sip:192.0.2.3 1 1 None false"];
    assert_eq!(shown(&sets), expected);
    assert!(bad[0].why.contains("\"fs:x\" is not valid"), "{bad:?}");
    let phone = given.registrations().remove(0).unwrap();
    assert!((80..=100).contains(&phone.expires_in_s), "{phone:?}");
    assert_eq!((&*phone.instance, phone.reg_id, phone.cseq), ("urn:uuid:1", None, 5));
}

#[test]
fn registrations_are_read_with_their_remaining_time() {
    let mut given = Fixture::with(
        Flavor::Kamailio,
        "INSERT INTO location (username, domain, contact, received, path, expires, q, callid, cseq, socket, instance, reg_id) VALUES
        ('alice', '', 'sip:alice@10.0.0.7:5060', 'sip:192.0.2.7:4711', NULL, julianday('now') + 0.01, 0.5, 'a', 7,
            'udp:192.0.2.1:5060', '<urn:uuid:1-2>', 1),
        ('bob', 'example.org', 'sip:bob@192.0.2.8', NULL, '<sip:edge.example.com;lr>', datetime('now', '+100 seconds'), -1, 'b', 1,
            NULL, NULL, 0),
        ('carol', '', 'sip:carol@192.0.2.9', NULL, NULL, datetime('now', '-100 seconds'), 1, 'c', 1, NULL, NULL, 0),
        ('dave', '', 'sip:dave@192.0.2.9', NULL, NULL, '1970-01-01 00:00:00', 1, 'c', 1, NULL, NULL, 0),
        ('erin', '', '', NULL, NULL, 5, 1, 'c', 1, NULL, NULL, 0);",
    );
    let rows = given.registrations();
    let alice = rows[0].as_ref().unwrap();
    assert!((830..=864).contains(&alice.expires_in_s), "{alice:?}");
    assert_eq!((alice.address.as_str(), alice.q, alice.cseq), ("alice@example.com", Some(500), 7));
    let (received, socket) = (alice.received.as_deref(), alice.socket.as_deref());
    assert_eq!((received, socket), (Some("sip:192.0.2.7:4711"), Some("udp:192.0.2.1:5060")));
    assert_eq!((&*alice.instance, alice.reg_id), ("urn:uuid:1-2", Some(1)));
    let bob = rows[1].as_ref().unwrap();
    assert!((80..=100).contains(&bob.expires_in_s), "{bob:?}");
    assert_eq!((bob.address.as_str(), bob.q), ("bob@example.org", None));
    assert_eq!(bob.path.as_deref(), Some("<sip:edge.example.com;lr>"));
    assert!(rows[2].as_ref().unwrap().expires_in_s <= -100);
    assert!(rows[3].as_ref().unwrap_err().why.contains("it never expires"));
    assert!(rows[4].as_ref().unwrap_err().why.contains("no contact"));
}

#[test]
fn unknown_versions_are_refused_with_known_ones() {
    let mut given = Fixture::with(
        Flavor::Kamailio,
        "UPDATE version SET table_version = 99 WHERE table_name = 'location';
        DELETE FROM version WHERE table_name = 'dispatcher';",
    );
    given.tables.check(&[Table::Subscriber]).unwrap();
    let unknown = given.tables.check(&[Table::Location]).unwrap_err();
    assert!(
        unknown.to_string().contains("location has version 99, and of Kamailio only 8 or 9 is supported"),
        "{unknown}"
    );
    let absent = given.tables.check(&[Table::Subscriber, Table::Dispatcher]).unwrap_err();
    assert!(matches!(absent, VersionError::Absent { table: Table::Dispatcher, .. }), "{absent}");
    given.database.batch("UPDATE version SET table_version = 8").unwrap();
    given.tables.check(&[Table::Location]).unwrap();
}

#[test]
fn the_follower_reports_changes_and_survives_a_database_outage() {
    let mut given = Fixture::with(
        Flavor::Kamailio,
        "INSERT INTO subscriber (username, password) VALUES ('alice', 'x'), ('bob', 'x'), ('two words', 'x');
        INSERT INTO dispatcher (setid, destination) VALUES (1, 'sip:192.0.2.1'), (2, 'sip:192.0.2.2');",
    );
    let mut follower = Follower::new(FollowConfig {
        url: given.url.clone(),
        flavor: Flavor::Kamailio,
        tables: vec![Table::Subscriber, Table::Dispatcher],
        identity: identity(),
        set_prefix: "ds".to_owned(),
        allows_any_version: false,
        timeout: PATIENCE,
    });
    let first = follower.poll().unwrap();
    assert_eq!((first.changes.len(), first.contents.users(), first.bad_row_count), (4, 2, 1));
    let directory = Directory::empty(1).with_changes(first.changes);
    assert!(directory.user(b"bob@example.com").is_some() && directory.gateways().members(b"ds2").len() == 1);
    assert!(follower.poll().unwrap().changes.is_empty());

    given
        .database
        .batch(
            "UPDATE subscriber SET password = 'y' WHERE username = 'alice'; DELETE FROM subscriber WHERE username = 'bob';
            INSERT INTO subscriber (username, password) VALUES ('carol', 'x');
            UPDATE dispatcher SET flags = 4 WHERE setid = 1; DELETE FROM dispatcher WHERE setid = 2;",
        )
        .unwrap();
    let second = follower.poll().unwrap();
    assert_eq!(second.changes.len(), 5, "{:?}", second.changes);
    assert!(second.changes.contains(&DirectoryChange::RemoveUser((*b"bob@example.com").into())));
    let directory = directory.with_changes(second.changes);
    let alice = directory.user(b"alice@example.com").map(|user| user.ha1);
    assert_eq!(alice, Some(ha1s("alice", "example.com", "y")));
    assert!(directory.user(b"bob@example.com").is_none() && directory.user(b"carol@example.com").is_some());
    assert!(!directory.gateways().members(b"ds1")[0].enabled && directory.gateways().members(b"ds2").is_empty());
    let same = Directory::empty(1).with_changes(second.contents.all());
    assert_eq!(
        (same.users(), same.gateways().sets().count()),
        (directory.users(), directory.gateways().sets().count())
    );

    given.database.batch("ALTER TABLE subscriber RENAME TO away").unwrap();
    assert!(follower.poll().is_err());
    given.database.batch("ALTER TABLE away RENAME TO subscriber").unwrap();
    assert!(follower.poll().unwrap().changes.is_empty());
}
