//! Plots with the text and the tables that belong to them.

use super::chart::Chart;

/// A table of a page.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    /// Rows; the first cell names the row.
    pub(crate) rows: Vec<Vec<String>>,
}

/// What a file of plots contains. A picture has the plots only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) title: String,
    /// Paragraphs above the tables and plots.
    pub(crate) notes: Vec<String>,
    pub(crate) tables: Vec<Table>,
    pub(crate) charts: Vec<Chart>,
}

impl Document {
    /// Creates a document of plots.
    pub(crate) fn of_charts(title: &str, notes: &[String], charts: Vec<Chart>) -> Self {
        Self { title: title.to_owned(), notes: notes.to_vec(), tables: Vec::new(), charts }
    }
}
