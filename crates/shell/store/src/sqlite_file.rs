//! Users, aliases and gateways in a SQLite file.

use std::path::PathBuf;

use rusqlite::types::{Value as SqliteValue, ValueRef};
use rusqlite::{Connection, Transaction, params_from_iter};
use strowger_sql::Value;

use crate::backend::{Backend, Sql, SqlRow, Tables, Transact};
use crate::error::Fault;
use crate::{StoreError, transact};

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
pub(crate) fn value_of(value: ValueRef<'_>) -> Value {
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
