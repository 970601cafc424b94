//! Storage backends of users, aliases and gateways, and the SQL subset that all of them support.

use strowger_sql::Value;

use crate::StoreError;
use crate::error::Fault;

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
