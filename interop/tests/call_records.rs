//! Call records in PostgreSQL and MariaDB.

use strowger_interop::{Config, Database, PATIENCE, Phone, Program, poll};
use strowger_sql::{Database as Sql, DatabaseUrl, Row};

fn rows(url: &DatabaseUrl) -> Vec<Row> {
    let mut sql = Sql::connect(url, Sql::TIMEOUT).expect("it answers");
    let query = "SELECT reason, status, caller, callee, talk_s, CASE WHEN answered >= started AND ended >= answered THEN 1 ELSE 0 END \
                 AS ordered, CASE WHEN ended > CURRENT_TIMESTAMP - INTERVAL '10' MINUTE THEN 1 ELSE 0 END AS recent \
                 FROM strowger_calls ORDER BY started";
    // The server creates the table when it first connects.
    sql.query(query, &[]).unwrap_or_default()
}

#[test]
fn an_ended_call_is_a_row_even_after_a_database_outage() {
    for program in [Program::Postgres, Program::MariaDb] {
        if !program.available() || !Program::Baresip.available() {
            continue;
        }
        let database = Database::start(program);
        let url: DatabaseUrl = database.url().parse().expect("a URL");
        let more = format!("[cdr]\ndatabase = {:?}\n", database.url());
        let server = Config { more, ..Config::default() }.start();
        let (mut alice, mut bob) = (Phone::start("alice"), Phone::start("bob"));
        assert_eq!(alice.register(&server, "secret of alice").kind, "REGISTER_OK");
        assert_eq!(bob.register(&server, "secret of bob").kind, "REGISTER_OK");
        alice.call(&mut bob);
        let all = poll(PATIENCE, || Some(rows(&url)).filter(|rows| rows.len() == 1)).expect("a row");
        let text = |column: &str| all[0].text(column).expect("a text").to_owned();
        assert_eq!(text("reason"), "caller hung up");
        assert_eq!(
            (text("caller").as_str(), text("callee").as_str()),
            ("sip:alice@example.com", "sip:bob@example.com")
        );
        for (column, is) in [("status", 200), ("ordered", 1), ("recent", 1)] {
            assert_eq!(all[0].integer(column).expect("a number"), is, "{column}");
        }
        assert!(all[0].real("talk_s").expect("a number") < 60.0);

        database.freeze();
        alice.call(&mut bob);
        alice.call(&mut bob);
        let failure = || server.status()["calls_database"]["trouble"].as_str().map(str::to_owned);
        assert!(poll(PATIENCE, failure).is_some(), "it says that nothing is written");
        database.go_on();
        let all = poll(PATIENCE, || Some(rows(&url)).filter(|rows| rows.len() >= 3)).expect("two more rows");
        assert_eq!(all.len(), 3, "each once");
        assert_eq!(server.status()["counters"]["cdr"]["lost"], 0);
    }
}
