//! Users, gateways and registrations of a real Kamailio, imported from each database that Kamailio supports, or
//! followed there by a server running beside it. A test whose programs are not installed is skipped.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::Value;
use strowger_interop::{
    Callee, Config, Database, Kamailio, PATIENCE, Phone, Program, Route, Server, free_port, poll, wait_until,
};
use strowger_sql::Database as Client;
use tempfile::TempDir;

/// A database with Kamailio's tables.
struct Tables {
    /// Kamailio's name of the database type.
    name: &'static str,
    /// Database server, which ends when this value is dropped. `None` for a file.
    server: Option<Database>,
    _folder: TempDir,
    /// Database URL in Strowger's notation, followed by Kamailio's.
    url: String,
    kamailio_url: String,
}

impl Tables {
    /// Creates empty tables. Returns `None` if the database or Kamailio's module for it is not installed.
    fn new(name: &'static str) -> Option<Self> {
        let program = match name {
            "mysql" => Some(Program::MariaDb),
            "postgres" => Some(Program::Postgres),
            _ => None,
        };
        if !Kamailio::speaks(name) || program.is_some_and(|program| !program.available()) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = program.map(Database::start);
        let file = folder.path().join("kamailio.db");
        let (url, kamailio_url) = match &server {
            // The database has no user without a password.
            Some(server) => (server.url(), server.url().replace("postgresql:", "postgres:")),
            None => {
                File::create(&file).expect("a file");
                (format!("sqlite:{}", file.display()), format!("sqlite:///{}", file.display()))
            }
        };
        let tables = Self { name, server, _folder: folder, url, kamailio_url };
        tables.client().batch(&Kamailio::schema(name)).expect("Kamailio's own tables");
        Some(tables)
    }

    fn client(&self) -> Client {
        let url = self.url.parse().expect("a URL");
        // PostgreSQL accepts connections before it answers queries.
        poll(PATIENCE, || Client::connect(&url, PATIENCE).ok()).expect("it answers")
    }

    fn add_user(&self, name: &str, domain: &str) {
        self.run(&format!(
            "INSERT INTO subscriber (username, domain, password) VALUES ('{name}', '{domain}', 'secret of {name}');"
        ));
    }

    fn run(&self, sql: &str) {
        self.client().batch(sql).expect("it is done");
    }

    fn registrations(&self) -> i64 {
        let rows = self.client().query("SELECT count(*) AS n FROM location", &[]).expect("it is read");
        rows[0].integer("n").expect("a number")
    }

    fn kamailio(&self, port: u16) -> Kamailio {
        Kamailio::registering(Ipv4Addr::LOCALHOST, port, self.name, &self.kamailio_url)
    }
}

/// Returns the output of `strowger import kamailio`.
fn import(server: &Server, tables: &Tables) -> Value {
    let text = server.command(&["import", "kamailio", &tables.url, "--json"]);
    serde_json::from_str::<Value>(&text).expect("JSON")["tables"].clone()
}

/// Bob registers at Kamailio, which Strowger then replaces at the same address. Alice calls him through Strowger.
fn phone_is_called_after_the_move(name: &'static str) {
    if !Program::Baresip.available() {
        return;
    }
    let Some(tables) = Tables::new(name) else { return };
    tables.add_user("alice", "example.com");
    tables.add_user("bob", "example.com");
    tables.run(
        "INSERT INTO dispatcher (setid, destination, priority, attrs) VALUES (1, 'sip:192.0.2.1:5060', 5, 'weight=3');",
    );
    let mut server = Config { users: Vec::new(), ..Config::default() }.start();
    server.terminate();
    let kamailio = tables.kamailio(server.address().port());
    let mut bob = Phone::start("bob");
    assert_eq!(bob.register(&server, "secret of bob").kind, "REGISTER_OK");
    assert!(poll(PATIENCE, || (tables.registrations() == 1).then_some(())).is_some(), "Kamailio writes it");
    drop(kamailio);

    let imported = import(&server, &tables);
    for (part, rows) in [(0, 2), (1, 1), (2, 1)] {
        assert_eq!((&imported[part]["added"], &imported[part]["refused"]), (&rows.into(), &0.into()), "{imported}");
    }
    server.restart();
    assert_eq!(server.registrations(), 1);
    let mut alice = Phone::start("alice");
    assert_eq!(alice.register(&server, "secret of alice").kind, "REGISTER_OK");
    alice.call(&mut bob);
}

#[test]
fn mariadb_kamailio_phone_is_called_after_migration() {
    phone_is_called_after_the_move("mysql");
}

#[test]
fn postgresql_kamailio_phone_is_called_after_migration() {
    phone_is_called_after_the_move("postgres");
}

#[test]
fn sqlite_kamailio_phone_is_called_after_migration() {
    phone_is_called_after_the_move("sqlite");
}

/// Starts a server that follows `tables` and sends calls to external numbers to dispatcher set 1.
fn beside(tables: &Tables) -> Server {
    let route = Route { domain: "*", action: "proxy", targets: vec!["set:dispatcher-1".to_owned()] };
    let more = format!("\n[kamailio]\ndatabase = \"{}\"\n", tables.url);
    Config { users: Vec::new(), routes: vec![route], more, ..Config::default() }.start()
}

/// Tests that a server follows subscribers and destinations that change while it runs.
fn followed(name: &'static str) {
    if !Program::Baresip.available() {
        return;
    }
    let Some(tables) = Tables::new(name) else { return };
    let (first, second) = (Callee::start(loopback()), Callee::start(loopback()));
    tables.add_user("alice", "example.com");
    tables.add_user("bob", "");
    tables.run(&format!("INSERT INTO dispatcher (setid, destination) VALUES (1, '{}');", first.uri()));
    let server = beside(&tables);
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(alice.register(&server, "secret of alice").kind, "REGISTER_OK");
    assert_eq!(bob.register(&server, "secret of bob").kind, "REGISTER_OK");
    alice.call(&mut bob);
    alice.dial("sip:123@elsewhere.example");
    alice.expect("CALL_ESTABLISHED");
    alice.hang_up();
    alice.expect_closed();
    assert_eq!((first.calls().len(), second.calls().len()), (1, 0));

    tables.add_user("carol", "example.com");
    tables.run(&format!(
        "DELETE FROM subscriber WHERE username = 'bob'; UPDATE dispatcher SET destination = '{}';",
        second.uri()
    ));
    wait_until("bob is forgotten", || server.registrations() == 1);
    alice.dial("sip:123@elsewhere.example");
    alice.expect("CALL_ESTABLISHED");
    alice.hang_up();
    alice.expect_closed();
    assert_eq!((first.calls().len(), second.calls().len()), (1, 1));
    let mut carol = Phone::start("carol");
    assert_eq!(carol.register(&server, "secret of carol").kind, "REGISTER_OK");
    alice.call(&mut carol);
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

#[test]
fn server_beside_kamailio_follows_its_mariadb() {
    followed("mysql");
}

#[test]
fn server_beside_kamailio_follows_its_postgresql() {
    followed("postgres");
}

#[test]
fn server_beside_kamailio_follows_its_sqlite() {
    followed("sqlite");
}

#[test]
fn phone_of_kamailio_is_called_through_the_server_beside_it() {
    if !Program::Baresip.available() {
        return;
    }
    let Some(tables) = Tables::new("mysql") else { return };
    tables.add_user("alice", "example.com");
    tables.add_user("bob", "");
    let kamailio = tables.kamailio(free_port());
    let place = kamailio.address();
    let more = format!("\n[kamailio]\ndatabase = \"{}\"\nproxy = \"sip:{place}\"\n", tables.url);
    let server = Config { users: Vec::new(), more, ..Config::default() }.start();
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    let account = format!("<sip:bob@example.com>;auth_pass=x;outbound=\"sip:{place}\";regint=600");
    assert_eq!(bob.register_account(&account).kind, "REGISTER_OK");
    assert_eq!(alice.register(&server, "secret of alice").kind, "REGISTER_OK");
    assert_eq!(server.registrations(), 1);
    alice.call(&mut bob);
}

#[test]
fn known_users_survive_a_database_outage_reported_once() {
    if !Program::Baresip.available() {
        return;
    }
    let Some(tables) = Tables::new("mysql") else { return };
    tables.add_user("alice", "example.com");
    tables.add_user("bob", "");
    let mut server = beside(&tables);
    let database = tables.server.as_ref().expect("a server");
    database.freeze();
    let said = |server: &Server, what: &str| server.log().matches(what).count();
    wait_until("it is told of", || said(&server, "cannot be read; the contents read last stay in use") == 1);
    server.control(&["reload"]);
    let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
    assert_eq!(alice.register(&server, "secret of alice").kind, "REGISTER_OK");
    assert_eq!(bob.register(&server, "secret of bob").kind, "REGISTER_OK");
    alice.call(&mut bob);
    database.go_on();
    wait_until("it is followed again", || said(&server, "is followed: 2 users") >= 2);
    assert!(said(&server, "cannot be read; the contents read last stay in use") <= 2, "once for each reload");
    server.terminate();
}
