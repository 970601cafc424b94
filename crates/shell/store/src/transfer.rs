//! Import of all users, aliases and gateways of a file into another database.

use std::collections::HashSet;
use std::path::Path;

use strowger_sql::Value;

use crate::backend::{Sql, SqlRow};
use crate::backup::open_read_only;
use crate::error::Fault;
use crate::staging::{ALIAS_COLUMNS, GATEWAY_COLUMNS, USER_COLUMNS};
use crate::{Backend, StoreError, UserStore, transact};

/// Rows per statement.
const AT_ONCE: usize = 500;

/// Counts of a table's imported and existing rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCounts {
    /// Rows added.
    pub added: u64,
    /// Rows whose address, or set and URI, existed already; they were left unchanged.
    pub kept: u64,
}

/// Counts of all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferReport {
    /// Users.
    pub users: TransferCounts,
    /// Aliases.
    pub aliases: TransferCounts,
    /// Gateways.
    pub gateways: TransferCounts,
}

/// A table and its key columns.
#[derive(Clone, Copy)]
struct Table {
    columns: &'static str,
    keys: &'static [&'static str],
}

const USERS: Table = Table { columns: USER_COLUMNS, keys: &["aor"] };
const ALIASES: Table = Table { columns: ALIAS_COLUMNS, keys: &["alias"] };
const GATEWAYS: Table = Table { columns: GATEWAY_COLUMNS, keys: &["set_name", "uri"] };

impl<P: Backend> UserStore<P> {
    /// Adds all users, aliases and gateways of the database at `path` that do not exist here. That database stays
    /// unchanged.
    ///
    /// # Errors
    /// [`StoreError::NoSource`]; errors of the file or of this database; nothing was added then.
    pub fn import_all(&mut self, path: &Path) -> Result<TransferReport, StoreError> {
        let connection = open_read_only(path)?;
        let [users, aliases, gateways] = transact::read(&connection, path, |transaction| {
            let mut sql = transaction;
            let mut read =
                |table: Table, name| Sql::query(&mut sql, &format!("SELECT {} FROM {name}", table.columns), &[]);
            Ok([read(USERS, "users")?, read(ALIASES, "aliases")?, read(GATEWAYS, "gateways")?])
        })?;
        self.backend.write(|sql| {
            let tables = sql.tables();
            Ok(TransferReport {
                users: add(sql, USERS, tables.users, &users)?,
                aliases: add(sql, ALIASES, tables.aliases, &aliases)?,
                gateways: add(sql, GATEWAYS, tables.gateways, &gateways)?,
            })
        })
    }
}

fn add(sql: &mut dyn Sql, table: Table, name: &str, rows: &[SqlRow]) -> Result<TransferCounts, Fault> {
    let mut done = TransferCounts::default();
    for rows in rows.chunks(AT_ONCE) {
        let known = known(sql, table, name, rows)?;
        let new: Vec<&SqlRow> = rows.iter().filter(|row| !known.contains(&key(table, row))).collect();
        if !new.is_empty() {
            let row = format!("({})", vec!["?"; table.columns.split(',').count()].join(", "));
            let all = vec![row; new.len()].join(", ");
            let values: Vec<Value> = new.iter().flat_map(|row| row.0.iter().cloned()).collect();
            sql.execute(&format!("INSERT INTO {name} ({}) VALUES {all}", table.columns), &values)?;
        }
        done.added += new.len() as u64;
        done.kept += (rows.len() - new.len()) as u64;
    }
    Ok(done)
}

/// Returns which of the rows exist, and possibly others.
fn known(sql: &mut dyn Sql, table: Table, name: &str, rows: &[SqlRow]) -> Result<HashSet<Vec<String>>, Fault> {
    let first: Vec<Value> = rows.iter().filter_map(|row| row.0.first().cloned()).collect();
    let any = vec!["?"; first.len()].join(", ");
    // The first key column, which is first in each row, narrows the result enough.
    let (keys, first_key) = (table.keys.join(", "), table.keys.first().unwrap_or(&""));
    let query = format!("SELECT {keys} FROM {name} WHERE {first_key} IN ({any})");
    Ok(sql.query(&query, &first)?.iter().map(|row| key(table, row)).collect())
}

fn key(table: Table, row: &SqlRow) -> Vec<String> {
    (0..table.keys.len()).filter_map(|index| row.text(index).ok()).collect()
}
