//! Output as tables for people and JSON for programs.

use std::io::{self, Write as _};

use serde_json::Value;

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
