//! Output as tables for people and JSON for programs.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde_json::Value;

/// Width at which text is wrapped.
pub(crate) const WIDTH: usize = 110;

/// Prints rows below a heading; each column is as wide as its widest cell.
pub(crate) fn print_table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heading.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut out = io::stdout().lock();
    let heading = heading.map(str::to_owned);
    for row in std::iter::once(&heading).chain(rows) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints names with their values; further lines of a value are aligned below the first.
pub(crate) fn print_facts(facts: &[(&str, String)]) -> io::Result<()> {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut out = io::stdout().lock();
    for (name, value) in facts {
        let mut lines = value.lines();
        writeln!(out, "{name:width$}  {}", lines.next().unwrap_or_default())?;
        for line in lines {
            writeln!(out, "{:width$}  {line}", "")?;
        }
    }
    Ok(())
}

pub(crate) fn print_json(value: &Value) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{value:#}")
}

pub(crate) fn print_line(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// Wraps text; continuation lines are aligned below the first line's text.
pub(crate) fn wrapped(begin: &str, text: &str) -> String {
    let indent = " ".repeat(begin.chars().count());
    let mut lines = begin.to_owned();
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count() + 1;
        if width > 0 && width + length > WIDTH {
            lines.push('\n');
            lines.push_str(&indent);
            width = 0;
        } else if width > 0 {
            lines.push(' ');
        }
        lines.push_str(word);
        width += length;
    }
    lines.push('\n');
    lines
}

/// Formats rows below a heading, with right-aligned columns.
pub(crate) fn columns(head: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let width = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in all() {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}
