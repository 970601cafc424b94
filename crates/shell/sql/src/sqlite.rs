//! SQLite.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, params_from_iter};

use crate::session::{Each, Fault, Session};
use crate::{Row, Value};

/// Instructions of SQLite's virtual machine between two readings of the clock.
const INSTRUCTIONS_PER_CLOCK_READ: i32 = 10_000;

/// An open file.
pub(crate) struct Sqlite {
    connection: Connection,
    deadline: Deadline,
}

impl Sqlite {
    pub(crate) fn open(path: &std::path::Path, patience: Duration) -> Result<Self, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags).map_err(|error| Fault::Unreachable(error.to_string()));
        let mut connection = opened?;
        let deadline = Deadline::new(patience);
        let looked_at = deadline.clone();
        connection.busy_timeout(patience).map_err(|error| fault(&error))?;
        connection
            .progress_handler(INSTRUCTIONS_PER_CLOCK_READ, Some(move || looked_at.is_over()))
            .map_err(|error| fault(&error))?;
        Ok(Self { connection, deadline })
    }
}

impl Session for Sqlite {
    fn for_each(&mut self, sql: &str, values: &[Value], each: Each<'_>) -> Result<(), Fault> {
        self.deadline.start();
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| fault(&error))?;
        let columns: Arc<[String]> = statement.column_names().map(String::from).collect();
        let mut rows = statement.query(params_from_iter(values)).map_err(|error| fault(&error))?;
        while let Some(row) = rows.next().map_err(|error| fault(&error))? {
            let value = |at| row.get_ref(at).map(value_of).map_err(|error| fault(&error));
            let values = (0..columns.len()).map(value).collect::<Result<_, _>>()?;
            each(Row::new(Arc::clone(&columns), values))?;
            self.deadline.start();
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        self.deadline.start();
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| fault(&error))?;
        let changed = statement.execute(params_from_iter(values)).map_err(|error| fault(&error))?;
        Ok(changed as u64)
    }

    fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.deadline.start();
        self.connection.execute_batch(sql).map_err(|error| fault(&error))
    }
}

/// Deadline of a statement, in milliseconds since the first use.
#[derive(Clone)]
struct Deadline {
    timeout: Duration,
    at_ms: Arc<AtomicU64>,
}

impl Deadline {
    fn new(patience: Duration) -> Self {
        let deadline = Self { timeout: patience, at_ms: Arc::default() };
        deadline.start();
        deadline
    }

    fn start(&self) {
        let patience_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        self.at_ms.store(now_ms().saturating_add(patience_ms), Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        now_ms() > self.at_ms.load(Ordering::Relaxed)
    }
}

fn now_ms() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let since = BEGIN.get_or_init(Instant::now).elapsed().as_millis();
    u64::try_from(since).unwrap_or(u64::MAX)
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Converts a value. Text that is not UTF-8 becomes bytes.
fn value_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).map_or_else(|_| Value::Bytes(bytes.to_vec()), Value::from),
    }
}

fn fault(error: &rusqlite::Error) -> Fault {
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::NotADatabase | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            Fault::Refused(error.to_string())
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => {
            Fault::Unreachable(error.to_string())
        }
        Some(ErrorCode::OperationInterrupted) => Fault::Unreachable("the statement takes too long".to_owned()),
        _ => Fault::Failed { why: error.to_string(), state: None },
    }
}
