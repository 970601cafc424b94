//! Report of an import.

use serde_json::{Value, json};
use strowger_kamailio::{BadRow, Flavor, Table};
use strowger_sql::DatabaseUrl;
use strowger_store::PutOutcome;

use crate::failure::Failure;
use crate::table::{print_json, print_line, print_table};
use crate::text::number;

/// Maximum number of refused rows shown, and stored for each table.
const SHOWN: usize = 20;
const KEPT: usize = 10_000;

/// Result for the rows of one table.
pub(super) struct Part {
    table: Table,
    rows: u64,
    added: u64,
    replaced: u64,
    kept: u64,
    expired: u64,
    refused: u64,
    first_refused: Vec<BadRow>,
    notes: Vec<String>,
}

impl Part {
    pub(super) const fn new(table: Table) -> Self {
        Self {
            table,
            rows: 0,
            added: 0,
            replaced: 0,
            kept: 0,
            expired: 0,
            refused: 0,
            first_refused: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Counts the row named `row` of this table.
    pub(super) fn count(&mut self, row: &str, put: PutOutcome) {
        match put {
            PutOutcome::Added => self.added += 1,
            PutOutcome::Replaced => self.replaced += 1,
            PutOutcome::Kept => self.kept += 1,
            PutOutcome::Refused(why) => return self.refuse(BadRow { table: self.table, row: row.to_owned(), why }),
        }
        self.rows += 1;
    }

    pub(super) const fn count_expired(&mut self) {
        self.rows += 1;
        self.expired += 1;
    }

    pub(super) fn refuse(&mut self, bad: BadRow) {
        self.rows += 1;
        self.refused += 1;
        if self.first_refused.len() < KEPT {
            self.first_refused.push(bad);
        }
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    fn line(&self) -> [String; 7] {
        let counts = [self.rows, self.added, self.replaced, self.kept, self.expired, self.refused];
        let [rows, added, replaced, kept, expired, refused] = counts.map(number);
        [self.table.to_string(), rows, added, replaced, kept, expired, refused]
    }

    fn to_json(&self) -> Value {
        let refused: Vec<Value> =
            self.first_refused.iter().map(|bad| json!({ "row": bad.row, "why": bad.why })).collect();
        json!({
            "table": self.table.name(),
            "rows": self.rows,
            "added": self.added,
            "replaced": self.replaced,
            "kept": self.kept,
            "expired": self.expired,
            "refused": self.refused,
            "refused_rows": refused,
            "notes": self.notes,
        })
    }
}

/// Result for all tables.
pub(super) struct Report {
    flavor: Flavor,
    database: String,
    dry_run: bool,
    parts: Vec<Part>,
}

impl Report {
    pub(super) fn new(flavor: Flavor, url: &DatabaseUrl, dry_run: bool) -> Self {
        Self { flavor, database: url.to_string(), dry_run, parts: Vec::new() }
    }

    pub(super) fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub(super) fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            let tables: Vec<Value> = self.parts.iter().map(Part::to_json).collect();
            let result = if self.dry_run { "nothing changed" } else { "imported" };
            let value = json!({
                "result": result,
                "dry_run": self.dry_run,
                "from": self.flavor.to_string(),
                "database": self.database,
                "tables": tables,
            });
            return Ok(print_json(&value)?);
        }
        let rows: Vec<_> = self.parts.iter().map(Part::line).collect();
        print_table(["TABLE", "ROWS", "ADDED", "REPLACED", "KEPT", "EXPIRED", "REFUSED"], &rows)?;
        for part in &self.parts {
            for bad in part.first_refused.iter().take(SHOWN) {
                print_line(&format!("refused: {bad}"))?;
            }
            let more = part.refused.saturating_sub(SHOWN as u64);
            if more > 0 {
                print_line(&format!("refused: {} more of {}; --json lists them", number(more), part.table))?;
            }
            part.notes.iter().for_each(|note| eprintln!("strowger: note: {note}"));
        }
        if self.dry_run {
            eprintln!("strowger: note: dry run: nothing was changed");
        }
        Ok(())
    }
}
