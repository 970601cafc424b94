//! `strowger import` from a Kamailio database in a SQLite file, with Kamailio's columns.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::Folder;
use common::server::Server;
use serde_json::{Value, json};
use strowger_sql::Database;

const TABLES: &str = "
    CREATE TABLE version (id INTEGER PRIMARY KEY, table_name VARCHAR(32), table_version INTEGER);
    INSERT INTO version (table_name, table_version) VALUES ('subscriber', 7), ('dispatcher', 4), ('location', 9);
    CREATE TABLE subscriber (id INTEGER PRIMARY KEY, username VARCHAR(64), domain VARCHAR(64), password VARCHAR(64) DEFAULT '',
        ha1 VARCHAR(128) DEFAULT '', ha1b VARCHAR(128) DEFAULT '');
    INSERT INTO subscriber (username, domain, password, ha1) VALUES ('alice', 'example.com', 'secret', ''),
        ('bob', '', '', '5f4dcc3b5aa765d61d8327deb882cf99'), ('carol', '', '', ''), ('dave', 'example.org', 'x', '');
    CREATE TABLE dispatcher (id INTEGER PRIMARY KEY, setid INTEGER DEFAULT 0, destination VARCHAR(192) DEFAULT '',
        flags INTEGER DEFAULT 0, priority INTEGER DEFAULT 0, attrs VARCHAR(128) DEFAULT '', description VARCHAR(64) DEFAULT '');
    INSERT INTO dispatcher (setid, destination, flags, priority, attrs, description) VALUES
        (1, 'sip:192.0.2.1:5060', 0, 5, 'weight=7', 'Vienna'), (1, 'sip:192.0.2.2', 4, 0, '', ''), (2, 'sip:two words', 0, 0, '', '');
    CREATE TABLE location (id INTEGER PRIMARY KEY, username VARCHAR(64), domain VARCHAR(64), contact VARCHAR(512),
        received VARCHAR(128), path VARCHAR(512), expires TIMESTAMP, q REAL DEFAULT 1.0, callid VARCHAR(255), cseq INTEGER,
        socket VARCHAR(64), instance VARCHAR(255), reg_id INTEGER DEFAULT 0);
    INSERT INTO location (username, contact, received, path, expires, q, callid, cseq, socket) VALUES
        ('alice', 'sip:alice@10.0.0.7:5060', 'sip:127.0.0.1:4711', NULL, julianday('now') + 0.1, 0.5, 'a', 7, 'udp:192.0.2.1:5060'),
        ('alice', 'sip:alice@192.0.2.8', NULL, '<sip:192.0.2.9;lr>', julianday('now') + 0.1, -1, 'b', 1, NULL),
        ('bob', 'sip:bob@192.0.2.7', NULL, NULL, julianday('now') - 0.1, 1, 'c', 1, NULL),
        ('bob', 'sip:bob@192.0.2.7', 'sip:192.0.2.7:5061;transport=tls', NULL, julianday('now') + 0.1, 1, 'd', 1, NULL),
        ('erin', 'no uri', NULL, NULL, julianday('now') + 0.1, 1, 'e', 1, NULL);";

const DOMAINS: &str = "server.domains = [\"example.com\"]\n";

/// Executes `sql` in Kamailio's file in `folder`, creating the file if necessary.
fn change(folder: &Folder, sql: &str) {
    let path = folder.path().join("kamailio.db");
    if !path.exists() {
        File::create(&path).expect("a file");
    }
    let url = format!("sqlite:{}", path.display()).parse().expect("a URL");
    let mut database = Database::connect(&url, Duration::from_secs(20)).expect("a file");
    database.batch(sql).expect("it is done");
}

/// A folder for a server, with Kamailio's database.
fn folder() -> Folder {
    let (folder, _) = Server::prepare(DOMAINS);
    change(&folder, TABLES);
    folder
}

fn import(folder: &Folder, more: &[&str]) -> Value {
    folder.run(&[&["import", "kamailio", "sqlite:kamailio.db", "--json"], more].concat()).json()
}

/// Returns the number of rows, and of added, replaced, unchanged, expired and refused ones.
fn counts(report: &Value, table: usize) -> [u64; 6] {
    let count = |name: &str| report["tables"][table][name].as_u64().expect("a count");
    ["rows", "added", "replaced", "kept", "expired", "refused"].map(count)
}

#[test]
fn all_tables_are_imported_once_and_bad_rows_reported() {
    let folder = folder();
    let report = import(&folder, &[]);
    assert_eq!(counts(&report, 0), [4, 3, 0, 0, 0, 1]);
    assert_eq!(counts(&report, 1), [3, 2, 0, 0, 0, 1]);
    assert_eq!(counts(&report, 2), [5, 2, 0, 0, 1, 2]);
    let refused = &report["tables"][2]["refused_rows"];
    let expected = "its transport is not supported; only UDP and TCP are";
    assert_eq!(refused[0], json!({ "row": "bob@example.com sip:bob@192.0.2.7", "why": expected }));
    assert_eq!(refused[1], json!({ "row": "erin@example.com no uri", "why": "its contact is not a URI" }));
    let notes = report["tables"][0]["notes"].to_string();
    assert!(
        notes.contains("example.org is not in server.domains") && notes.contains("hashes without passwords for 1 user"),
        "{notes}"
    );

    let gateways = folder.run(&["gateway", "list", "--json"]).json();
    let first = &gateways["gateways"][0];
    let shown = [&first["set"], &first["uri"], &first["priority"], &first["weight"], &first["enabled"]];
    assert_eq!(shown, [&json!("dispatcher-1"), &json!("sip:192.0.2.1:5060"), &json!(0), &json!(7), &json!(true)]);
    assert_eq!((&gateways["gateways"][1]["priority"], &gateways["gateways"][1]["enabled"]), (&json!(5), &json!(false)));

    let again = import(&folder, &[]);
    assert_eq!([0, 1, 2].map(|table| counts(&again, table)[1..4].to_vec()), [[0, 0, 3], [0, 0, 2], [0, 0, 2]]);
    let replaced = import(&folder, &["--replace"]);
    assert_eq!([0, 1, 2].map(|table| counts(&replaced, table)[1..4].to_vec()), [[0, 3, 0], [0, 2, 0], [0, 2, 0]]);
}

#[test]
fn the_next_server_start_has_the_imported_registrations() {
    let folder = folder();
    import(&folder, &[]);
    let address = fs::read_to_string(folder.path().join("strowger.toml")).expect("a configuration");
    let address = address.split("udp:").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    let mut server = Server::started_by(folder.command(&["serve"]), folder, address.parse().expect("an address"));
    let listed = server.folder.run(&["ctl", "registrations", "--json"]).json();
    let contacts = listed["registrations"].as_array().expect("a list");
    assert_eq!(contacts.len(), 2, "{listed}");
    let translated = contacts.iter().find(|one| one["contact"] == "sip:alice@10.0.0.7:5060").expect("it is there");
    assert_eq!((&translated["source"], &translated["q"]), (&json!("127.0.0.1:4711"), &json!(0.5)), "{listed}");

    let refused = server.folder.run(&["import", "kamailio", "sqlite:kamailio.db"]).refused(1);
    assert!(refused.contains("the server is running") && refused.contains("--only users,gateways"), "{refused}");
    change(&server.folder, "INSERT INTO subscriber (username, password) VALUES ('frank', 'x')");
    let report = import(&server.folder, &["--only", "users,gateways"]);
    assert_eq!(counts(&report, 0), [5, 1, 0, 3, 0, 1]);

    // Registrations in the server's journal count too.
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    let report = import(&server.folder, &["--only", "registrations"]);
    assert_eq!(counts(&report, 0), [5, 0, 0, 2, 1, 2]);
    let server = server.restart();
    assert_eq!(server.status()["registrations"], 2);
}

#[test]
fn dry_run_changes_nothing_and_makes_no_database() {
    let folder = folder();
    let report = import(&folder, &["--dry-run"]);
    assert_eq!(counts(&report, 0), [4, 3, 0, 0, 0, 1]);
    assert_eq!((&report["dry_run"], &report["result"]), (&json!(true), &json!("nothing changed")));
    assert!(!folder.path().join("data").exists());
}

#[test]
fn text_output_shows_counts_and_refusals() {
    let folder = folder();
    let ran = folder.run(&["import", "kamailio", "sqlite:kamailio.db", "--only", "users"]);
    assert!(ran.err.contains("strowger: note: example.org is not in server.domains"), "{ran:?}");
    let out = ran.ok();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "TABLE       ROWS  ADDED  REPLACED  KEPT  EXPIRED  REFUSED");
    assert_eq!(lines[1], "subscriber  4     3      0         0     0        1");
    assert_eq!(lines[2], "refused: subscriber carol@example.com: it has neither a password nor a hash");
}

#[test]
fn unknown_versions_and_databases_are_refused_with_a_hint() {
    let folder = folder();
    change(&folder, "UPDATE version SET table_version = 77 WHERE table_name = 'subscriber'");
    let refused = folder.run(&["import", "kamailio", "sqlite:kamailio.db"]).refused(1);
    assert!(refused.contains("subscriber has version 77") && refused.contains("--any-version"), "{refused}");
    assert_eq!(counts(&import(&folder, &["--any-version", "--only", "users"]), 0)[1], 3);
    let refused = folder.run(&["import", "opensips", "sqlite:kamailio.db", "--only", "gateways"]).refused(1);
    assert!(refused.contains("dispatcher has version 4, and of OpenSIPS only 8 or 9"), "{refused}");
    let refused = folder.run(&["import", "kamailio", "oracle://u:secret@h/x"]).refused(2);
    assert!(refused.contains("oracle: is not a supported database") && !refused.contains("secret"), "{refused}");
    folder.write("url", "sqlite:absent.db\n");
    let refused = folder.run(&["import", "kamailio", "@url"]).refused(1);
    assert!(refused.contains("sqlite:absent.db cannot be reached"), "{refused}");
}

/// Returns the files and folders below `folder`.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], all_below(&path)].concat() } else { vec![path] })
        .collect()
}

#[test]
fn what_root_leaves_in_the_data_folder_belongs_to_the_servers_user() {
    const SERVER: u32 = 5060;
    let folder = folder();
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("created");
    if chown(&data, Some(SERVER), Some(SERVER)).is_err() {
        eprintln!("skipped: only root can run commands for another user");
        return;
    }
    let check = |command: &str| {
        let found = all_below(&data);
        for path in &found {
            let owner = fs::symlink_metadata(path).expect("it is there");
            assert_eq!((owner.uid(), owner.gid()), (SERVER, SERVER), "{} after {command}", path.display());
        }
        found.len()
    };
    folder.run_with(&["user", "add", "frank@example.com"], "secret\n").ok();
    folder.run(&["gateway", "add", "pstn", "sip:192.0.2.1"]).ok();
    folder.run(&["token", "add", "office"]).ok();
    assert!(check("adding") >= 2, "a database and tokens");
    assert_eq!(counts(&import(&folder, &[]), 2)[1], 2);
    assert!(data.join("journal/lock").exists() && data.join("key").exists());
    check("import");
    folder.run(&["backup", "a.backup"]).ok();
    check("backup");
    folder.run(&["restore", "--force", "a.backup"]).ok();
    assert!(check("restore") > 5, "and what was moved aside");
}
