//! Storage backends of users, aliases and gateways, and the SQL subset that all of them support.

use std::path::PathBuf;

use rusqlite::types::{Value as SqliteValue, ValueRef};
use rusqlite::{Connection, Transaction, params_from_iter};
use strowger_sql::Value;

use crate::error::Fault;
use crate::{SharedDatabase, StoreError, UserStore, transact};

/// A storage backend: a SQLite file or a [shared database](crate::SharedDatabase).
#[expect(private_bounds, reason = "nobody else makes a place")]
pub trait Backend: Transact {}

/// Runs transactions.
pub(crate) trait Transact {
    /// Runs `job`, whose reads see one state of the database.
    fn read<T>(&mut self, job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError>;

    /// Runs `job`, whose writes take effect as a whole or not at all. May call it again after a write conflict.
    fn write<T>(&mut self, job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError>;
}

/// A transaction. Statements have `?` for each value.
pub(crate) trait Sql {
    fn tables(&self) -> Tables;

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<SqlRow>, Fault>;

    /// Executes a statement and returns the number of rows inserted, changed or deleted.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault>;
}

/// Names of the tables in a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub(crate) users: &'static str,
    pub(crate) aliases: &'static str,
    pub(crate) gateways: &'static str,
}

/// A row of a result.
#[derive(Debug)]
pub(crate) struct SqlRow(pub(crate) Vec<Value>);

impl SqlRow {
    /// Returns text.
    ///
    /// # Errors
    /// [`Fault::Unexpected`] for another type.
    pub(crate) fn text(&self, index: usize) -> Result<String, Fault> {
        self.text_or_null(index)?.ok_or(Fault::Unexpected)
    }

    /// Returns text, or `None` for NULL.
    ///
    /// # Errors
    /// As for [`text`](Self::text).
    pub(crate) fn text_or_null(&self, index: usize) -> Result<Option<String>, Fault> {
        match self.0.get(index) {
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(Value::Null) => Ok(None),
            _ => Err(Fault::Unexpected),
        }
    }

    /// Returns a number.
    ///
    /// # Errors
    /// As for [`text`](Self::text), and if the number does not fit.
    pub(crate) fn number<N: TryFrom<i64>>(&self, index: usize) -> Result<N, Fault> {
        self.number_or_null(index)?.ok_or(Fault::Unexpected)
    }

    /// Returns a number, or `None` for NULL.
    ///
    /// # Errors
    /// As for [`number`](Self::number).
    pub(crate) fn number_or_null<N: TryFrom<i64>>(&self, index: usize) -> Result<Option<N>, Fault> {
        match self.0.get(index) {
            Some(Value::Integer(number)) => Ok(Some(N::try_from(*number).map_err(|_| Fault::Unexpected)?)),
            Some(Value::Null) => Ok(None),
            _ => Err(Fault::Unexpected),
        }
    }

    /// Returns a boolean.
    ///
    /// # Errors
    /// As for [`number`](Self::number).
    pub(crate) fn boolean(&self, index: usize) -> Result<bool, Fault> {
        Ok(self.number::<i64>(index)? != 0)
    }
}

/// A SQLite file.
#[derive(Debug)]
pub struct SqliteFile {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
}

impl Backend for SqliteFile {}

impl Transact for SqliteFile {
    fn read<T>(&mut self, mut job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        transact::read(&self.connection, &self.path, |transaction| job(&mut &*transaction))
    }

    /// Everything written is synced when this returns.
    fn write<T>(&mut self, mut job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        transact::write(&mut self.connection, &self.path, |transaction| job(&mut &*transaction))
    }
}

/// Either backend, for callers that support both.
#[derive(Debug)]
pub enum AnyBackend {
    /// A file.
    File(SqliteFile),
    /// A shared database.
    Shared(SharedDatabase),
}

impl Backend for AnyBackend {}

impl Transact for AnyBackend {
    fn read<T>(&mut self, job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        match self {
            Self::File(file) => file.read(job),
            Self::Shared(shared) => shared.read(job),
        }
    }

    fn write<T>(&mut self, job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        match self {
            Self::File(file) => file.write(job),
            Self::Shared(shared) => shared.write(job),
        }
    }
}

impl From<UserStore<SqliteFile>> for UserStore<AnyBackend> {
    fn from(store: UserStore<SqliteFile>) -> Self {
        Self { backend: AnyBackend::File(store.backend) }
    }
}

impl From<UserStore<SharedDatabase>> for UserStore<AnyBackend> {
    fn from(store: UserStore<SharedDatabase>) -> Self {
        Self { backend: AnyBackend::Shared(store.backend) }
    }
}

impl Sql for &Transaction<'_> {
    fn tables(&self) -> Tables {
        Tables { users: "users", aliases: "aliases", gateways: "gateways" }
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<SqlRow>, Fault> {
        let mut statement = self.prepare_cached(sql)?;
        let columns = statement.column_count();
        let rows = statement.query_map(params_from_iter(values.iter().map(bound)), |row| {
            (0..columns).map(|index| Ok(value_of(row.get_ref(index)?))).collect::<Result<_, _>>().map(SqlRow)
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        Ok(self.prepare_cached(sql)?.execute(params_from_iter(values.iter().map(bound)))? as u64)
    }
}

pub(crate) fn bound(value: &Value) -> SqliteValue {
    match value {
        Value::Null => SqliteValue::Null,
        Value::Integer(number) => SqliteValue::Integer(*number),
        Value::Real(number) => SqliteValue::Real(*number),
        Value::Text(text) => SqliteValue::Text(text.clone()),
        Value::Bytes(bytes) => SqliteValue::Blob(bytes.clone()),
    }
}

/// Converts a value. Text that is not UTF-8 becomes bytes, which no column here has.
fn value_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => match str::from_utf8(text) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Bytes(text.to_vec()),
        },
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}
