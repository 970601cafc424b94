//! A database that commands and threads of the control plane ask, and wait for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};

use crate::date::{ClockReading, seconds_of_text};
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::session::{Each, Fault, Session};
use crate::sqlite::Sqlite;
use crate::{DatabaseUrl, Dialect, Row, SqlError, Value};

/// A database, with one connection where it can be reached. After an error that may leave the connection in the midst of something,
/// the next use makes a new one.
pub struct Database {
    url: DatabaseUrl,
    timeout: Duration,
    session: Option<Box<dyn Session>>,
    transaction: Transaction,
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    /// There is none.
    None,
    /// It can be committed.
    Open,
    /// A statement has failed, so all of it is undone.
    Failed,
}

impl Database {
    /// How long each statement may take, where nothing else is wanted.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects. `patience` bounds each later wait too: for a connection, for a statement, and for each row of a result.
    ///
    /// # Errors
    /// When the database cannot be reached or does not take user, password or name. A SQLite file has to exist.
    pub fn connect(url: &DatabaseUrl, patience: Duration) -> Result<Self, SqlError> {
        let mut database = Self::new(url, patience);
        database.session()?;
        Ok(database)
    }

    /// As [`connect`](Self::connect), but connects at the first use, so that a database may be away meanwhile.
    #[must_use]
    pub fn new(url: &DatabaseUrl, patience: Duration) -> Self {
        Self { url: url.clone(), timeout: patience, session: None, transaction: Transaction::None }
    }

    /// Connects to the first of `urls` that takes writes: no PostgreSQL that follows another one, no MariaDB with `read_only`.
    ///
    /// # Errors
    /// Those of the last one, or [`SqlError::ReadOnly`] where that takes none.
    ///
    /// # Panics
    /// Without any URL.
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

    /// Its URL.
    #[must_use]
    pub const fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Which SQL it speaks.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.url.dialect()
    }

    /// All rows of a result. A `?` in the statement stands for the next one of `values`.
    ///
    /// # Errors
    /// When the database fails, or has a value of a type that is not supported.
    pub fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, SqlError> {
        let mut rows = Vec::new();
        self.for_each(sql, values, &mut |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }

    /// What time it is.
    ///
    /// # Errors
    /// When the database fails.
    pub fn now(&mut self) -> Result<ClockReading, SqlError> {
        let sql = match self.dialect() {
            Dialect::Sqlite => "SELECT datetime('now') AS now",
            Dialect::Postgres => "SELECT LOCALTIMESTAMP(0) AS now",
            Dialect::MariaDb => "SELECT NOW() AS now",
        };
        let rows = self.query(sql, &[])?;
        let text = rows.first().map_or(Ok(""), |row| row.text("now"))?;
        let database_s = seconds_of_text(text).ok_or_else(|| SqlError::unreadable("now", "it is no moment"))?;
        let utc_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Ok(ClockReading { database_s, utc_s })
    }

    /// Gives each row to `each` as it comes, so that a large result takes no memory. The first error of `each` ends it.
    ///
    /// # Errors
    /// As [`query`](Self::query), and those of `each`.
    pub fn for_each(
        &mut self,
        sql: &str,
        values: &[Value],
        each: &mut dyn FnMut(Row) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let each: Each<'_> = each;
        self.with_session(|session| session.for_each(sql, values, each))
    }

    /// How many rows the statement has inserted, found to change, or deleted.
    ///
    /// # Errors
    /// When the database fails.
    pub fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, SqlError> {
        self.with_session(|session| session.execute(sql, values))
    }

    /// Carries out several statements, separated by semicolons, without placeholders.
    ///
    /// # Errors
    /// When one of them fails; those before it may have been carried out.
    pub fn batch(&mut self, sql: &str) -> Result<(), SqlError> {
        self.with_session(|session| session.batch(sql))
    }

    /// Carries out `work` as a whole or not at all. A SQLite file is locked for other writers from its beginning; the servers have their
    /// usual isolation.
    ///
    /// A statement that fails fails the transaction, also where `work` goes on. When the database cannot be reached any more at the
    /// commit, it may or may not have been carried out.
    ///
    /// # Errors
    /// Those of `work`, and those of the database.
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

/// Undoes a transaction unless it is committed, also when its work panics.
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
        // A connection that is gone has undone it already.
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

/// One that works only while somebody waits, on the thread that waits.
fn runtime() -> Result<Runtime, Fault> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Fault::Unreachable(format!("no runtime can be made: {error}")))
}
