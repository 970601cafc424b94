//! A blocking database connection for commands and control plane threads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};

use crate::date::{ClockReading, seconds_of_text};
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::session::{Each, Fault, Session};
use crate::sqlite::Sqlite;
use crate::{DatabaseUrl, Dialect, Row, SqlError, Value};

/// A database with at most one connection. After an error that may leave the connection in an undefined state, the
/// next use reconnects.
pub struct Database {
    url: DatabaseUrl,
    timeout: Duration,
    session: Option<Box<dyn Session>>,
    transaction: Transaction,
}

/// State of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    /// No transaction.
    None,
    /// Can be committed.
    Open,
    /// A statement has failed, so everything is rolled back.
    Failed,
}

impl Database {
    /// Default timeout of a statement.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects. The timeout also limits each later wait: for a connection, a statement, or a row of a result.
    ///
    /// # Errors
    /// If the database cannot be reached or rejects user, password or name. A SQLite file must exist.
    pub fn connect(url: &DatabaseUrl, patience: Duration) -> Result<Self, SqlError> {
        let mut database = Self::new(url, patience);
        database.session()?;
        Ok(database)
    }

    /// Like [`connect`](Self::connect), but connects on first use, so the database may be down until then.
    #[must_use]
    pub fn new(url: &DatabaseUrl, patience: Duration) -> Self {
        Self { url: url.clone(), timeout: patience, session: None, transaction: Transaction::None }
    }

    /// Connects to the first of `urls` that is writable: not a PostgreSQL standby, and not a MariaDB with
    /// `read_only`.
    ///
    /// # Errors
    /// Those of the last one, or [`SqlError::ReadOnly`] if that is not writable.
    ///
    /// # Panics
    /// If `urls` is empty.
    pub fn connect_to_writable(urls: &[DatabaseUrl], patience: Duration) -> Result<Self, SqlError> {
        let mut last = None;
        for url in urls {
            match Self::connect(url, patience).and_then(Self::if_writable) {
                Ok(database) => return Ok(database),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a URL"))
    }

    fn if_writable(mut self) -> Result<Self, SqlError> {
        let ask = match self.dialect() {
            Dialect::Sqlite => return Ok(self),
            Dialect::Postgres => "SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE 1 END AS writable",
            Dialect::MariaDb => "SELECT 1 - @@read_only AS writable",
        };
        match self.query(ask, &[])?.first().map(|row| row.integer("writable")).transpose()? {
            Some(1) => Ok(self),
            _ => Err(SqlError::ReadOnly { database: self.url.to_string() }),
        }
    }

    /// Returns its URL.
    #[must_use]
    pub const fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Returns its SQL dialect.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.url.dialect()
    }

    /// Returns all rows of a result. Each `?` in the statement is a placeholder for the next of `values`.
    ///
    /// # Errors
    /// If the query fails or returns a value of an unsupported type.
    pub fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, SqlError> {
        let mut rows = Vec::new();
        self.for_each(sql, values, &mut |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Returns the database's time together with this machine's.
    ///
    /// # Errors
    /// If the query fails.
    pub fn now(&mut self) -> Result<ClockReading, SqlError> {
        let sql = match self.dialect() {
            Dialect::Sqlite => "SELECT datetime('now') AS now",
            Dialect::Postgres => "SELECT LOCALTIMESTAMP(0) AS now",
            Dialect::MariaDb => "SELECT NOW() AS now",
        };
        let rows = self.query(sql, &[])?;
        let text = rows.first().map_or(Ok(""), |row| row.text("now"))?;
        let database_s =
            seconds_of_text(text).ok_or_else(|| SqlError::unreadable("now", "it is not a date and time"))?;
        let utc_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Ok(ClockReading { database_s, utc_s })
    }

    /// Passes each row to `each` as it arrives, so that a large result takes no memory. Stops at the first error of
    /// `each`.
    ///
    /// # Errors
    /// As for [`query`](Self::query), and those of `each`.
    pub fn for_each(
        &mut self,
        sql: &str,
        values: &[Value],
        each: &mut dyn FnMut(Row) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let each: Each<'_> = each;
        self.with_session(|session| session.for_each(sql, values, each))
    }

    /// Executes a statement and returns the number of rows inserted, matched for update, or deleted.
    ///
    /// # Errors
    /// If the statement fails.
    pub fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, SqlError> {
        self.with_session(|session| session.execute(sql, values))
    }

    /// Executes several statements, separated by semicolons, without placeholders.
    ///
    /// # Errors
    /// If one of them fails; earlier ones may have been executed.
    pub fn batch(&mut self, sql: &str) -> Result<(), SqlError> {
        self.with_session(|session| session.batch(sql))
    }

    /// Runs `work` in a transaction. A SQLite file is locked for other writers from the start; servers use their
    /// default isolation.
    ///
    /// A failed statement fails the transaction, even if `work` continues. If the connection is lost during the
    /// commit, the transaction may or may not have been committed.
    ///
    /// # Errors
    /// Those of `work` and of the database.
    ///
    /// # Panics
    /// Within another transaction.
    pub fn transaction<T, E: From<SqlError>>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        assert_eq!(self.transaction, Transaction::None, "a transaction within another one");
        let begin = if self.dialect() == Dialect::Sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.batch(begin)?;
        let mut undo = RollbackGuard(self);
        undo.0.transaction = Transaction::Open;
        let done = work(undo.0)?;
        undo.commit()?;
        Ok(done)
    }

    fn session(&mut self) -> Result<&mut dyn Session, SqlError> {
        if self.session.is_none() {
            let opened = open(&self.url, self.timeout).map_err(|fault| fault.of(self.url.to_string()))?;
            return Ok(&mut **self.session.insert(opened));
        }
        match &mut self.session {
            Some(session) => Ok(&mut **session),
            None => unreachable!("it was opened"),
        }
    }

    fn with_session<T>(&mut self, ask: impl FnOnce(&mut dyn Session) -> Result<T, Fault>) -> Result<T, SqlError> {
        if self.transaction == Transaction::Failed {
            let why = "a statement of this transaction has failed before".to_owned();
            return Err(Fault::Failed { why, state: None }.of(self.url.to_string()));
        }
        let result = ask(self.session()?);
        result.map_err(|fault| {
            if self.transaction == Transaction::Open {
                self.transaction = Transaction::Failed;
            }
            if !matches!(fault, Fault::Failed { .. }) {
                self.session = None;
            }
            fault.of(self.url.to_string())
        })
    }
}

/// Rolls a transaction back unless it was committed, also if its work panics.
struct RollbackGuard<'d>(&'d mut Database);

impl RollbackGuard<'_> {
    fn commit(&mut self) -> Result<(), SqlError> {
        self.0.batch("COMMIT")?;
        self.0.transaction = Transaction::None;
        Ok(())
    }
}

impl Drop for RollbackGuard<'_> {
    fn drop(&mut self) {
        if std::mem::replace(&mut self.0.transaction, Transaction::None) == Transaction::None {
            return;
        }
        // A lost connection has rolled it back already.
        if self.0.session.is_some() && self.0.batch("ROLLBACK").is_err() {
            self.0.session = None;
        }
    }
}

fn open(url: &DatabaseUrl, patience: Duration) -> Result<Box<dyn Session>, Fault> {
    Ok(match url {
        DatabaseUrl::Sqlite(path) => Box::new(Sqlite::open(path, patience)?),
        DatabaseUrl::Postgres(server) => Box::new(Postgres::connect(server, runtime()?, patience)?),
        DatabaseUrl::MariaDb(server) => Box::new(MariaDb::connect(server, runtime()?, patience)?),
    })
}

/// Returns a runtime that runs only while its caller waits, on the caller's thread.
fn runtime() -> Result<Runtime, Fault> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Fault::Unreachable(format!("the runtime cannot be created: {error}")))
}
