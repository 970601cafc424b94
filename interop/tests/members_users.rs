//! Servers that share the users of one PostgreSQL or MariaDB: a change made at one server, or in the database by
//! hand, applies to each.

use std::time::Duration;

use strowger_interop::{Config, Database, PATIENCE, Phone, Program, Server, poll, wait_until};
use strowger_sql::{Database as Sql, DatabaseUrl};

const KEY: [u8; 16] = *b"a key of members";

fn url(database: &Database) -> DatabaseUrl {
    database.url().parse().expect("a URL")
}

/// Starts a database and waits until it answers.
fn database(program: Program) -> Database {
    let database = Database::start(program);
    let answers = poll(PATIENCE, || Sql::connect(&url(&database), Sql::TIMEOUT).ok());
    assert!(answers.is_some(), "it takes connections and does not answer");
    database
}

fn by_hand(database: &Database, statement: &str) {
    let mut sql = Sql::connect(&url(database), Sql::TIMEOUT).expect("it answers");
    sql.execute(statement, &[]).expect("carried out");
}

/// Returns the configuration of a server without local users.
fn config(users: &Database) -> Config {
    Config { users: Vec::new(), users_in: format!("shared_users = {:?}", users.url()), ..Config::default() }
}

/// Starts two members that share users, gateways and registrations in one database.
fn two_members(database: &Database) -> [Server; 2] {
    let store = database.url();
    let servers = [1, 2].map(|number| {
        let more = format!("[cluster]\nstore = \"{store}\"\nmember = {number}\n");
        Config { more, key: Some(KEY), ..config(database) }.start()
    });
    for server in &servers {
        wait_until("it takes REGISTERs", || server.status()["cluster"]["warm"] == true);
    }
    servers
}

fn users(server: &Server) -> u64 {
    server.status()["users"].as_u64().expect("a number")
}

/// Registers Bob with this password and returns whether it is accepted. He is unregistered afterwards.
fn is_taken(server: &Server, password: &str) -> bool {
    is_taken_of("bob", server, password)
}

fn is_taken_of(user: &'static str, server: &Server, password: &str) -> bool {
    let mut phone = Phone::start(user);
    let event = phone.register(server, password);
    if event.kind == "REGISTER_OK" {
        phone.delete_account();
        return true;
    }
    assert!(event.detail.contains("401"), "{event:?}");
    false
}

#[test]
fn a_user_change_at_one_member_or_by_hand_reaches_all() {
    for program in [Program::Postgres, Program::MariaDb] {
        if !program.available() || !Program::Baresip.available() {
            continue;
        }
        let database = database(program);
        let [one, two] = two_members(&database);
        one.user(&["add", "bob@example.com", "--password", "secret of bob"]);
        assert_eq!(users(&one), 1, "it is so at the member when the command has ended");
        wait_until("the other one knows the user", || users(&two) == 1);
        let mut bob = Phone::start("bob");
        assert_eq!(bob.register(&two, "secret of bob").kind, "REGISTER_OK");
        wait_until("both have the registration", || one.registrations() == 1 && two.registrations() == 1);

        two.user(&["passwd", "bob@example.com", "--password", "another"]);
        bob.delete_account();
        wait_until("the old password is refused", || !is_taken(&one, "secret of bob"));
        let mut bob = Phone::start("bob");
        assert_eq!(bob.register(&one, "another").kind, "REGISTER_OK");

        one.user(&["disable", "bob@example.com"]);
        wait_until("nobody calls the user any more", || one.registrations() == 0 && two.registrations() == 0);
        assert!(!is_taken(&two, "another"));
        by_hand(&database, "UPDATE strowger_users SET enabled = TRUE");
        wait_until("the user is back", || is_taken(&two, "another"));

        by_hand(&database, "DELETE FROM strowger_users WHERE aor = 'bob@example.com'");
        wait_until("the user has gone", || users(&one) == 0 && users(&two) == 0);
        wait_until("so has the registration", || one.registrations() == 0 && two.registrations() == 0);
    }
}

#[test]
fn a_server_keeps_its_users_without_its_database_even_on_start() {
    for program in [Program::Postgres, Program::MariaDb] {
        if !program.available() || !Program::Baresip.available() {
            continue;
        }
        let mut database = database(program);
        let mut server = config(&database).start();
        server.user(&["add", "alice@example.com", "--password", "secret of alice"]);
        server.user(&["add", "bob@example.com", "--password", "secret of bob"]);
        database.freeze();
        let failure = |server: &Server| server.status()["users_database"]["trouble"].as_str().map(str::to_owned);
        wait_until("it says so", || failure(&server).is_some());
        assert!(is_taken(&server, "secret of bob"));
        server.kill();
        server.begin();
        assert!(is_taken(&server, "secret of bob"));
        assert!(failure(&server).is_some_and(|why| why.contains("has not answered")));
        database.go_on();
        wait_until("it follows again", || failure(&server).is_none());
        server.user(&["rm", "bob@example.com"]);
        assert!(!is_taken(&server, "secret of bob"));
        database.start_again();
        let answers = poll(Duration::from_secs(30), || Sql::connect(&url(&database), Sql::TIMEOUT).ok());
        assert!(answers.is_some(), "it does not answer");
        // A killed database may lose what it confirmed in its last second.
        by_hand(&database, "DELETE FROM strowger_users WHERE aor = 'bob@example.com'");
        by_hand(&database, "UPDATE strowger_users SET enabled = FALSE");
        wait_until("it follows the database that was started again", || {
            failure(&server).is_none() && users(&server) == 1 && !is_taken_of("alice", &server, "secret of alice")
        });
    }
}

#[test]
fn gateways_are_shared_too() {
    let program = if Program::Postgres.available() { Program::Postgres } else { Program::MariaDb };
    if !program.available() {
        return;
    }
    let database = database(program);
    let more = "[[balancer]]\nname = \"pstn\"\ntargets = [\"set:pstn\"]\n".to_owned();
    let [one, two] = [(), ()].map(|()| Config { more: more.clone(), ..config(&database) }.start());
    assert!(two.targets().is_empty());
    by_hand(&database, "INSERT INTO strowger_gateways (set_name, uri) VALUES ('pstn', 'sip:127.0.0.1:5099')");
    for server in [&one, &two] {
        wait_until("the gateway is a target", || server.targets().len() == 1);
    }
    let said = one.control(&["targets", "rm", "pstn/sip:127.0.0.1:5099"]);
    wait_until("it is one no more", || two.targets().iter().all(|target| target["removed"] == true));
    drop(said);
}

#[test]
fn check_connects_to_databases_when_asked() {
    let program = if Program::Postgres.available() { Program::Postgres } else { Program::MariaDb };
    if !program.available() || !Program::Redis.available() {
        return;
    }
    let (database, redis) = (database(program), Database::start(Program::Redis));
    let more = format!("[cluster]\nstore = {:?}\nmember = 1\n[cdr]\ndatabase = {:?}\n", redis.url(), database.url());
    let server = Config { more, key: Some(KEY), ..config(&database) }.start();
    let usable = |server: &Server| -> Vec<(String, bool)> {
        let all = server.check_connections()["connections"].as_array().expect("a list").clone();
        let one = |tried: serde_json::Value| {
            (tried["key"].as_str().expect("a key").to_owned(), tried["usable"].as_bool().expect("a truth value"))
        };
        all.into_iter().map(one).collect()
    };
    let expected = |redis, database| {
        [("cluster.store", redis), ("store.shared_users", database), ("cdr.database", database)]
            .map(|(key, usable): (&str, bool)| (key.to_owned(), usable))
    };
    assert_eq!(usable(&server), expected(true, true));
    redis.freeze();
    assert_eq!(usable(&server), expected(false, true));
    redis.go_on();
    drop(database);
    assert_eq!(usable(&server), expected(true, false));
}
