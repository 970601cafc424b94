//! Rows of a table, and those that cannot be used.

use std::fmt;

use strowger_sql::Row;

use crate::versions::Table;

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Its table.
    pub table: Table,
    /// Identification of the row for people, without secrets.
    pub row: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.table, self.row, self.why)
    }
}

/// Returns a text; `None` for NULL, another type or a missing column.
pub(crate) fn text<'r>(row: &'r Row, column: &str) -> Option<&'r str> {
    row.text_or_null(column).ok().flatten()
}
