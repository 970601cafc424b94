//! The SQL client with each supported database: SQLite, PostgreSQL and MariaDB. Databases that are not installed are
//! skipped.

use std::fs::File;
use std::net::TcpListener;
use std::time::Duration;

use strowger_interop::{Database as Server, Program, poll};
use strowger_sql::{Database, Dialect, SqlError, Value};
use tempfile::TempDir;

/// Generous timeout for a working database. Tests of unresponsive ones have their own.
const PATIENCE: Duration = Duration::from_secs(20);

/// A database and the resources it needs.
struct Fixture {
    server: Option<Server>,
    _folder: TempDir,
    url: String,
}

impl Fixture {
    fn connect(&self) -> Database {
        self.patient(PATIENCE)
    }

    fn patient(&self, patience: Duration) -> Database {
        let url = self.url.parse().expect("a URL");
        // PostgreSQL accepts connections before it answers queries.
        poll(PATIENCE, || Database::connect(&url, patience).ok()).expect("it answers")
    }
}

/// Starts each installed database, empty.
fn databases() -> Vec<Fixture> {
    let folder = || tempfile::tempdir().expect("a temporary folder");
    let file = folder();
    let path = file.path().join("data.db");
    File::create(&path).expect("a file");
    let mut all = vec![Fixture { server: None, _folder: file, url: format!("sqlite:{}", path.display()) }];
    for program in [Program::Postgres, Program::MariaDb] {
        if program.available() {
            let server = Server::start(program);
            let url = server.url();
            all.push(Fixture { server: Some(server), _folder: folder(), url });
        }
    }
    all
}

/// Returns a table definition with the column types used by other programs' tables.
const fn table(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => {
            "CREATE TABLE things (id INTEGER PRIMARY KEY, small INTEGER, big INTEGER, q REAL, name TEXT UNIQUE, raw BLOB, at TEXT)"
        }
        Dialect::Postgres => {
            "CREATE TABLE things (id SERIAL PRIMARY KEY, small SMALLINT, big BIGINT, q REAL, name VARCHAR(64) UNIQUE, \
             raw BYTEA, at TIMESTAMP)"
        }
        Dialect::MariaDb => {
            "CREATE TABLE things (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, small SMALLINT, big BIGINT UNSIGNED, q FLOAT(10,2), \
             name VARCHAR(64) UNIQUE, raw BLOB, at DATETIME) ENGINE = InnoDB DEFAULT CHARSET = latin1"
        }
    }
}

const INSERT: &str = "INSERT INTO things (small, big, q, name, raw, at) VALUES (?, ?, ?, ?, ?, ?)";

fn thing(name: &str) -> [Value; 6] {
    let raw = Value::Bytes(vec![0, 255, 1]);
    [Value::Integer(-7), Value::Integer(1 << 40), Value::Real(0.5), name.into(), raw, "2026-11-25 21:09:55".into()]
}

fn count(database: &mut Database) -> i64 {
    let rows = database.query("SELECT count(*) AS n FROM things", &[]).expect("it counts");
    rows[0].integer("n").expect("a number")
}

#[test]
fn values_of_all_types_round_trip() {
    for given in databases() {
        let mut database = given.connect();
        database.batch(table(database.dialect())).expect("a table");
        assert_eq!(database.execute(INSERT, &thing("Jürgen ?")), Ok(1));
        let nothing = [Value::Null, Value::Null, Value::Null, "none".into(), Value::Null, Value::Null];
        assert_eq!(database.execute(INSERT, &nothing), Ok(1));

        let rows =
            database.query("SELECT * FROM things WHERE name = ? AND 'it''s ?' <> ?", &["Jürgen ?".into(), "".into()]);
        let [row] = &rows.expect("it is read")[..] else { panic!("{}: not one row", given.url) };
        assert_eq!(row.integer("id"), Ok(1));
        assert_eq!((row.integer("small"), row.integer("big")), (Ok(-7), Ok(1 << 40)));
        assert_eq!((row.real("q"), row.text("NAME")), (Ok(0.5), Ok("Jürgen ?")));
        assert_eq!(row.bytes("raw"), Ok(&[0, 255, 1][..]));
        assert_eq!(row.text("at"), Ok("2026-11-25 21:09:55"));
        assert_eq!(row.text_or_null("at"), Ok(Some("2026-11-25 21:09:55")));

        let since = [Value::from("2026-11-25 21:09:54")];
        assert_eq!(database.query("SELECT id FROM things WHERE at > ?", &since).map(|rows| rows.len()), Ok(1));
        let rows = database.query("SELECT small, q, raw, at FROM things WHERE small IS NULL", &[]).expect("it is read");
        assert_eq!((rows[0].integer_or_null("small"), rows[0].real_or_null("q")), (Ok(None), Ok(None)));
        assert_eq!((rows[0].bytes_or_null("raw"), rows[0].text_or_null("at")), (Ok(None), Ok(None)));
    }
}

#[test]
fn errors_name_the_column_and_its_type() {
    for given in databases() {
        let mut database = given.connect();
        let rows = database.query("SELECT 'x' AS name", &[]).expect("it is read");
        let error = rows[0].integer("name").expect_err("no number").to_string();
        assert!(error.contains("column name") && error.contains("a text"), "{error}");
        let error = rows[0].text("other").expect_err("no column").to_string();
        assert!(error.contains("column other"), "{error}");
    }
}

#[test]
fn matched_rows_count_as_changed() {
    for given in databases() {
        let mut database = given.connect();
        database.batch(table(database.dialect())).expect("a table");
        database.execute(INSERT, &thing("a")).expect("a row");
        database.execute(INSERT, &thing("b")).expect("a row");
        assert_eq!(database.execute("UPDATE things SET small = ? WHERE small = -7", &[Value::Integer(-7)]), Ok(2));
        assert_eq!(database.execute("DELETE FROM things WHERE name = ?", &["c".into()]), Ok(0));
        assert_eq!(database.execute("DELETE FROM things", &[]), Ok(2));
    }
}

#[test]
fn a_large_result_is_streamed_and_can_be_stopped() {
    for given in databases() {
        let mut database = given.connect();
        database.batch(table(database.dialect())).expect("a table");
        let inserted = database.transaction(|database| {
            (0..5_000).try_for_each(|at| database.execute(INSERT, &thing(&at.to_string())).map(drop))
        });
        assert_eq!(inserted, Ok(()));
        let mut ids = 0;
        let read = database.for_each("SELECT id FROM things ORDER BY id", &[], &mut |row| {
            ids += row.integer("id")?;
            Ok(())
        });
        assert_eq!((read, ids), (Ok(()), 5_000 * 5_001 / 2));
        let mut rows = 0;
        let ended = database.for_each("SELECT id FROM things", &[], &mut |row| {
            rows += 1;
            if rows == 3 { row.integer("missing").map(drop) } else { Ok(()) }
        });
        assert!(matches!(ended, Err(SqlError::Unreadable { .. })), "{ended:?}");
        assert_eq!((rows, count(&mut database)), (3, 5_000));
    }
}

#[test]
fn transactions_are_atomic() {
    for given in databases() {
        let mut database = given.connect();
        database.batch(table(database.dialect())).expect("a table");
        let done = database.transaction(|database| database.execute(INSERT, &thing("a")));
        assert_eq!((done, count(&mut database)), (Ok(1), 1));

        let undone: Result<(), String> = database
            .transaction(|database| {
                database.execute(INSERT, &thing("b"))?;
                Err(Failure("the caller gives up".to_owned()))
            })
            .map_err(|Failure(why)| why);
        assert_eq!((undone, count(&mut database)), (Err("the caller gives up".to_owned()), 1));

        let undone = database.transaction(|database| {
            database.execute(INSERT, &thing("b"))?;
            let twice = database.execute(INSERT, &thing("a"));
            assert!(matches!(twice, Err(SqlError::Failed { .. })), "{twice:?}");
            Ok::<_, SqlError>(())
        });
        assert!(matches!(undone, Err(SqlError::Failed { .. })), "{undone:?}");
        assert_eq!(count(&mut database), 1);
    }
}

/// An error type of a caller.
#[derive(Debug)]
struct Failure(String);

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self(error.to_string())
    }
}

#[test]
fn statement_batches_run_and_report_the_servers_errors() {
    for given in databases() {
        let mut database = given.connect();
        database
            .batch("CREATE TABLE a (n INT); INSERT INTO a VALUES (1); INSERT INTO a VALUES (2);")
            .expect("all of it");
        assert_eq!(database.query("SELECT n FROM a", &[]).map(|rows| rows.len()), Ok(2));
        let failed =
            database.batch("INSERT INTO a VALUES (3); INSERT INTO absent VALUES (1); INSERT INTO a VALUES (4)");
        let error = failed.expect_err("there is no such table").to_string();
        assert!(error.contains("absent"), "{error}");
        let error = database.query("SELECT * FROM nowhere", &[]).expect_err("there is no such table");
        assert!(matches!(error, SqlError::Failed { .. }) && error.to_string().contains("nowhere"), "{error}");
        assert!(database.query("SELECT n FROM a", &[]).is_ok());
    }
}

#[test]
fn a_restarted_server_is_reconnected() {
    for mut given in databases() {
        let mut database = given.connect();
        let Some(server) = &mut given.server else { continue };
        database.query("SELECT 1", &[]).expect("it answers");
        server.start_again();
        let error = database.query("SELECT 1", &[]).expect_err("the connection is gone");
        assert!(error.is_unreachable(), "{error:?}");
        // A killed PostgreSQL first recovers its files and rejects connections meanwhile.
        let answer = poll(PATIENCE, || database.query("SELECT 1", &[]).ok());
        assert!(answer.is_some(), "{}: no new connection", given.url);
    }
}

#[test]
fn waiting_for_a_silent_server_is_bounded() {
    for given in databases() {
        let Some(server) = &given.server else { continue };
        let mut database = given.patient(Duration::from_millis(300));
        server.freeze();
        let error = database.query("SELECT 1", &[]).expect_err("it is silent");
        let again = database.query("SELECT 1", &[]).expect_err("it is silent");
        server.go_on();
        assert!(error.is_unreachable() && again.is_unreachable(), "{error:?}, {again:?}");
        assert!(given.connect().query("SELECT 1", &[]).is_ok());
    }
}

#[test]
fn a_slow_statement_is_aborted() {
    for given in databases() {
        let mut database = given.patient(Duration::from_millis(300));
        let sql = match database.dialect() {
            Dialect::Sqlite => {
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0"
            }
            Dialect::Postgres => "SELECT 1 FROM pg_sleep(60)",
            Dialect::MariaDb => "SELECT SLEEP(60)",
        };
        let error = database.query(sql, &[]).expect_err("it takes too long");
        assert!(error.is_unreachable(), "{error:?}");
        assert!(database.query("SELECT 1", &[]).is_ok());
    }
}

#[test]
fn a_wrong_user_or_database_is_rejected_without_the_password() {
    for given in databases() {
        if given.server.is_none() {
            continue;
        }
        let wrong = [given.url.replace("strowger@", "nobody:secret@"), format!("{}x", given.url)];
        for url in wrong {
            let error = Database::connect(&url.parse().expect("a URL"), PATIENCE).map(drop).expect_err("it is refused");
            assert!(matches!(error, SqlError::Refused { .. }), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }
}

#[test]
fn a_closed_port_is_unreachable() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    for url in [
        format!("mysql://a:secret@{closed}/x"),
        format!("postgresql://a:secret@{closed}/x"),
        "sqlite:/nowhere/at/all.db".to_owned(),
    ] {
        let error = Database::connect(&url.parse().expect("a URL"), PATIENCE).map(drop).expect_err("nobody is there");
        assert!(error.is_unreachable(), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}
