//! A database that several servers share: PostgreSQL or MariaDB, with tables that an administrator may edit.

use std::collections::{BTreeMap, BTreeSet};

use strowger_sql::{Database, DatabaseUrl, Dialect, SqlError, Value};

use crate::backend::{Backend, Sql, SqlRow, Tables, Transact};
use crate::error::Fault;
use crate::{StoreError, UserStore};

/// Latest schema version of a shared database that this program supports.
const SHARED_SCHEMA: i64 = 1;

/// Number of changes per server that the database keeps.
const SHARED_LOG_ROWS: i64 = 10_000;

/// Maximum number of retries after write conflicts.
const TRIES: u32 = 16;

/// SQLSTATEs of write conflicts: a duplicate key, and a transaction that must be retried.
const CONFLICT_STATES: [&str; 4] = ["23000", "23505", "40001", "40P01"];

/// A PostgreSQL or MariaDB database that servers share.
pub struct SharedDatabase {
    urls: Vec<DatabaseUrl>,
    database: Database,
}

impl std::fmt::Debug for SharedDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// Log end of each database server: the last change that it has logged.
pub(crate) type LogEnds = BTreeMap<i64, LogEnd>;

/// A change: its number, and a value that distinguishes it from another change with the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) seq: i64,
    mark: String,
}

/// What has changed in a shared database since a state.
pub(crate) enum SharedChanges {
    /// Changed rows: the kind of each, and its address or the name of its set.
    Rows(BTreeSet<(String, String)>),
    /// The log does not reach back far enough.
    All,
}

impl UserStore<SharedDatabase> {
    /// Connects to the first writable of `urls`. Creates missing tables.
    ///
    /// # Errors
    /// [`StoreError::Shared`], [`StoreError::SharedNewerSchema`].
    pub fn connect(urls: &[DatabaseUrl]) -> Result<Self, StoreError> {
        Ok(Self { backend: SharedDatabase { urls: urls.to_vec(), database: connect(urls)? } })
    }

    /// Returns the log ends, which tell whether anything has changed. Cheap enough to poll.
    pub(crate) fn ends(&mut self) -> Result<LogEnds, StoreError> {
        self.backend.read(ends)
    }
}

fn connect(urls: &[DatabaseUrl]) -> Result<Database, StoreError> {
    if urls.iter().all(|url| url.dialect() == Dialect::Sqlite) {
        return Err(StoreError::SharedUnnamed);
    }
    let mut database = Database::connect_to_writable(urls, Database::TIMEOUT).map_err(StoreError::Shared)?;
    make_tables(&mut database)?;
    Ok(database)
}

fn make_tables(database: &mut Database) -> Result<(), StoreError> {
    let mut tried = 1;
    while schema_of(database)?.is_none() {
        match make_missing_tables(database) {
            // Another member is creating the tables, and may have finished by now.
            Err(error) if tried < TRIES && is_conflict(&error) => tried += 1,
            made => made.map_err(StoreError::Shared)?,
        }
    }
    match schema_of(database)? {
        Some(found) if found > SHARED_SCHEMA => {
            let database = database.url().to_string();
            Err(StoreError::SharedNewerSchema { database, found, known: SHARED_SCHEMA })
        }
        _ => Ok(()),
    }
}

fn make_missing_tables(database: &mut Database) -> Result<(), SqlError> {
    if database.dialect() != Dialect::Postgres {
        return database.batch(include_str!("schema/shared/mariadb.sql"));
    }
    database.transaction(|database| {
        // One member at a time; the others then find the tables. The lock number is specific to this program.
        database.batch("SELECT pg_advisory_xact_lock(6010264359)")?;
        if is_there(database)? { Ok(()) } else { database.batch(include_str!("schema/shared/postgresql.sql")) }
    })
}

fn is_there(database: &mut Database) -> Result<bool, SqlError> {
    let schema = if database.dialect() == Dialect::Postgres { "current_schema()" } else { "DATABASE()" };
    let query = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = {schema} AND table_name = 'strowger_directory_schema'"
    );
    Ok(!database.query(&query, &[])?.is_empty())
}

fn schema_of(database: &mut Database) -> Result<Option<i64>, StoreError> {
    let version = |database: &mut Database| {
        if !is_there(database)? {
            return Ok(None);
        }
        let rows = database.query("SELECT max(version) AS version FROM strowger_directory_schema", &[])?;
        rows.first().map_or(Ok(None), |row| row.integer_or_null("version"))
    };
    version(database).map_err(StoreError::Shared)
}

impl Backend for SharedDatabase {}

impl Transact for SharedDatabase {
    fn read<T>(&mut self, mut job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.with_retries(|database| {
            database.transaction(|database| {
                if database.dialect() == Dialect::Postgres {
                    database.batch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
                }
                job(database)
            })
        })
    }

    fn write<T>(&mut self, mut job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.with_retries(|database| database.transaction(|database| job(database)))
    }
}

impl SharedDatabase {
    /// Returns the URL of the server in use.
    pub(crate) const fn url(&self) -> &DatabaseUrl {
        self.database.url()
    }

    /// Runs `job` with retries: after a write conflict, and on another server if this one has failed.
    fn with_retries<T>(&mut self, mut job: impl FnMut(&mut Database) -> Result<T, Fault>) -> Result<T, StoreError> {
        let mut tried = 1;
        loop {
            match job(&mut self.database) {
                Ok(done) => return Ok(done),
                Err(Fault::Shared(error)) if tried < TRIES && is_conflict(&error) => tried += 1,
                Err(fault) => {
                    let error = fault.of_shared(self.database.url());
                    if has_failed_over(&error) {
                        // The next use tries all servers.
                        self.switch_server();
                    }
                    return Err(error);
                }
            }
        }
    }

    fn switch_server(&mut self) {
        if let Ok(database) = connect(&self.urls) {
            self.database = database;
        }
    }
}

fn is_conflict(error: &SqlError) -> bool {
    matches!(error, SqlError::Failed { state: Some(state), .. } if CONFLICT_STATES.contains(&state.as_str()))
}

/// Whether another server may be writable instead: this one is down or read-only (25006, 1290).
fn has_failed_over(error: &StoreError) -> bool {
    match error {
        StoreError::Shared(SqlError::Failed { state: Some(state), why, .. }) => {
            state == "25006" || why.contains("read-only") || why.contains("read_only")
        }
        StoreError::Shared(error) => error.is_unreachable(),
        _ => false,
    }
}

impl Sql for Database {
    fn tables(&self) -> Tables {
        Tables { users: "strowger_users", aliases: "strowger_aliases", gateways: "strowger_gateways" }
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<SqlRow>, Fault> {
        let rows = Self::query(self, sql, values)?;
        Ok(rows.into_iter().map(|row| SqlRow(row.into_values())).collect())
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        Ok(Self::execute(self, sql, values)?)
    }
}

/// Returns the identity that distinguishes this database from others.
pub(crate) fn identity(sql: &mut dyn Sql) -> Result<String, Fault> {
    let rows = sql.query("SELECT id FROM strowger_directory_schema ORDER BY version LIMIT 1", &[])?;
    rows.first().ok_or(Fault::Unexpected)?.text(0)
}

/// Returns the last change logged by each server.
pub(crate) fn ends(sql: &mut dyn Sql) -> Result<LogEnds, Fault> {
    let rows = sql.query("SELECT server, seq, mark FROM strowger_directory_ends", &[])?;
    rows.iter().map(|row| Ok((row.number(0)?, LogEnd { seq: row.number(1)?, mark: row.text(2)? }))).collect()
}

/// Returns what changed between `seen` and `ends`, both of this database.
pub(crate) fn changes(sql: &mut dyn Sql, seen: &LogEnds, ends: &LogEnds) -> Result<SharedChanges, Fault> {
    // A database server that lacks a known log end is another one that took over, or has lost the end of its log.
    if seen.keys().any(|server| !ends.contains_key(server)) {
        return Ok(SharedChanges::All);
    }
    let mut changed = BTreeSet::new();
    for (server, end) in ends {
        let seen = seen.get(server);
        if seen != Some(end) && !changes_of(sql, *server, seen, end, &mut changed)? {
            return Ok(SharedChanges::All);
        }
    }
    let all = changed.iter().any(|(kind, _)| !matches!(kind.as_str(), "user" | "alias" | "gateway"));
    Ok(if all { SharedChanges::All } else { SharedChanges::Rows(changed) })
}

/// Returns `false` if the log lacks changes after `seen`.
fn changes_of(
    sql: &mut dyn Sql,
    server: i64,
    seen: Option<&LogEnd>,
    end: &LogEnd,
    changed: &mut BTreeSet<(String, String)>,
) -> Result<bool, Fault> {
    let from = seen.map_or(0, |seen| seen.seq);
    let query =
        "SELECT seq, kind, name, mark FROM strowger_directory_changes WHERE server = ? AND seq >= ? AND seq <= ?";
    let mut known = seen.is_none();
    let mut count = 0;
    for row in sql.query(query, &[server.into(), from.into(), end.seq.into()])? {
        if row.number::<i64>(0)? == from {
            known |= seen.is_some_and(|seen| row.text(3).is_ok_and(|mark| mark == seen.mark));
            continue;
        }
        changed.insert((row.text(1)?, row.text(2)?));
        count += 1;
    }
    // All numbers must be present.
    Ok(known && Some(count) == end.seq.checked_sub(from))
}

/// Prunes changes beyond the number that the log keeps per server.
pub(crate) fn forget_old_changes(sql: &mut dyn Sql, ends: &LogEnds) -> Result<(), Fault> {
    for (server, end) in ends {
        let until = end.seq.saturating_sub(SHARED_LOG_ROWS);
        sql.execute(
            "DELETE FROM strowger_directory_changes WHERE server = ? AND seq <= ?",
            &[(*server).into(), until.into()],
        )?;
    }
    Ok(())
}
