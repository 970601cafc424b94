//! The table of what was found.

use std::fmt::Write as _;

use crate::sharing::{Count, Row};

/// A line for people who wait.
#[must_use]
pub fn line(row: &Row) -> String {
    format!("{row:?}")
}

/// The tables, as Markdown.
#[must_use]
pub fn document(rows: &[Row]) -> String {
    let _ = rows;
    let mut text = String::new();
    let _ = write!(text, "{:?}", Count::default());
    text
}
