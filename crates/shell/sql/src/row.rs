//! Values and rows.

use std::sync::Arc;

use crate::SqlError;

/// A value in a statement or a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// An integer; also a boolean, as 0 or 1.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text; also a date and time, such as `2026-11-25 21:09:55`, and a decimal number.
    Text(String),
    /// Binary data.
    Bytes(Vec<u8>),
}

impl Value {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Integer(_) => "a whole number",
            Self::Real(_) => "a number with a fraction",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of a result. Its columns have the names that the statement gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    pub(crate) const fn new(columns: Arc<[String]>, values: Vec<Value>) -> Self {
        Self { columns, values }
    }

    /// Returns the names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns all values, in the order of the columns.
    #[must_use]
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }

    /// Returns the value of a column, or `None` if the result has no such column.
    #[must_use]
    pub fn value(&self, column: &str) -> Option<&Value> {
        let at = self.columns.iter().position(|name| name.eq_ignore_ascii_case(column))?;
        self.values.get(at)
    }

    /// Returns an integer.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn integer(&self, column: &str) -> Result<i64, SqlError> {
        match self.present(column)? {
            Value::Integer(number) => Ok(*number),
            other => Err(unexpected(column, other, "a whole number")),
        }
    }

    /// Returns a number.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn real(&self, column: &str) -> Result<f64, SqlError> {
        match self.present(column)? {
            Value::Real(number) => Ok(*number),
            #[expect(clippy::cast_precision_loss, reason = "what is read as a fraction may be rounded")]
            Value::Integer(number) => Ok(*number as f64),
            other => Err(unexpected(column, other, "a number")),
        }
    }

    /// Returns text, or bytes that are UTF-8.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn text(&self, column: &str) -> Result<&str, SqlError> {
        match self.present(column)? {
            Value::Text(text) => Ok(text),
            Value::Bytes(bytes) => {
                std::str::from_utf8(bytes).map_err(|_| SqlError::unreadable(column, "it is not UTF-8"))
            }
            other => Err(unexpected(column, other, "a text")),
        }
    }

    /// Returns bytes, or those of a text.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn bytes(&self, column: &str) -> Result<&[u8], SqlError> {
        match self.present(column)? {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Text(text) => Ok(text.as_bytes()),
            other => Err(unexpected(column, other, "bytes")),
        }
    }

    /// Like [`integer`](Self::integer), but returns `None` for NULL.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn integer_or_null(&self, column: &str) -> Result<Option<i64>, SqlError> {
        self.or_null(column, Self::integer)
    }

    /// Like [`real`](Self::real), but returns `None` for NULL.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn real_or_null(&self, column: &str) -> Result<Option<f64>, SqlError> {
        self.or_null(column, Self::real)
    }

    /// Like [`text`](Self::text), but returns `None` for NULL.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn text_or_null(&self, column: &str) -> Result<Option<&str>, SqlError> {
        self.or_null(column, Self::text)
    }

    /// Like [`bytes`](Self::bytes), but returns `None` for NULL.
    ///
    /// # Errors
    /// If the column is missing or has another type.
    pub fn bytes_or_null(&self, column: &str) -> Result<Option<&[u8]>, SqlError> {
        self.or_null(column, Self::bytes)
    }

    fn or_null<'s, T>(
        &'s self,
        column: &str,
        read: impl FnOnce(&'s Self, &str) -> Result<T, SqlError>,
    ) -> Result<Option<T>, SqlError> {
        if self.present(column)? == &Value::Null { Ok(None) } else { read(self, column).map(Some) }
    }

    fn present(&self, column: &str) -> Result<&Value, SqlError> {
        self.value(column).ok_or_else(|| SqlError::unreadable(column, "there is no such column"))
    }
}

fn unexpected(column: &str, value: &Value, wanted: &str) -> SqlError {
    SqlError::unreadable(column, format!("it holds {}, not {wanted}", value.kind()))
}
