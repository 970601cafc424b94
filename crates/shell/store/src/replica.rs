//! A file that replicates a shared database. It gives a server all users while the database is down, also at startup.

use std::collections::BTreeSet;
use std::path::Path;

use strowger_sql::{DatabaseUrl, Value};

use crate::backend::{Sql, SqlRow, Transact as _};
use crate::error::Fault;
use crate::shared::{LogEnds, SharedChanges, changes, ends, forget_old_changes, identity};
use crate::staging::{ALIAS_COLUMNS, GATEWAY_COLUMNS, SourceDatabase, StagedRows, USER_COLUMNS};
use crate::{SharedDatabase, SqliteFile, StoreError, UserStore};

/// Number of rows read at once.
const PAGE: usize = 5_000;
/// Number of a server's changes after which old ones are pruned.
const PRUNE_EVERY: i64 = 1_000;

/// Brings a file up to date with a shared database.
#[derive(Debug)]
pub struct Replicator {
    urls: Vec<DatabaseUrl>,
    source: Option<UserStore<SharedDatabase>>,
    target: UserStore<SqliteFile>,
    seen: Option<LogEnds>,
}

/// Result of a synchronization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncResult {
    /// Nothing has changed.
    Unchanged,
    /// The file was brought up to date.
    Updated {
        /// Skipped rows, with the reasons.
        refused: BTreeSet<String>,
    },
}

impl Replicator {
    /// Creates a replicator from the first writable of `urls` to the file at `path`, which is created if missing.
    ///
    /// # Errors
    /// File errors.
    pub fn new(urls: &[DatabaseUrl], path: &Path) -> Result<Self, StoreError> {
        Ok(Self { urls: urls.to_vec(), source: None, target: UserStore::open(path)?, seen: None })
    }

    /// Brings the file up to date. Cheap enough to poll: without changes it reads one row of each database server.
    ///
    /// # Errors
    /// If the database is down, or is empty while the file is not; file errors. The file stays unchanged then.
    pub fn sync(&mut self) -> Result<SyncResult, StoreError> {
        let from = match &mut self.source {
            Some(from) => from,
            None => self.source.insert(UserStore::connect(&self.urls)?),
        };
        let now = from.ends()?;
        if self.seen.as_ref() == Some(&now) {
            return Ok(SyncResult::Unchanged);
        }
        let (to, seen) = (&mut self.target, &self.seen);
        let name = from.backend.url().to_string();
        let (ends, refused) = from.backend.read(|sql| {
            let ends = ends(sql)?;
            let scope = seen.as_ref().map_or(Ok(SharedChanges::All), |seen| changes(sql, seen, &ends))?;
            let mut incoming = StagedRows::begin(to, &scope)?;
            read(sql, &scope, &mut incoming)?;
            let refused = std::mem::take(&mut incoming.refused);
            incoming.apply(&SourceDatabase { name: &name, id: &identity(sql)? })?;
            Ok((ends, refused))
        })?;
        if is_prune_due(self.seen.as_ref(), &ends) {
            from.backend.write(|sql| forget_old_changes(sql, &ends))?;
        }
        self.seen = Some(ends);
        Ok(SyncResult::Updated { refused })
    }
}

fn is_prune_due(seen: Option<&LogEnds>, ends: &LogEnds) -> bool {
    let before = |server| seen.and_then(|seen| seen.get(server)).map_or(-1, |end| end.seq / PRUNE_EVERY);
    ends.iter().any(|(server, end)| end.seq / PRUNE_EVERY != before(server))
}

/// Reads the rows that `scope` names.
fn read(sql: &mut dyn Sql, scope: &SharedChanges, incoming: &mut StagedRows<'_>) -> Result<(), Fault> {
    let tables = sql.tables();
    match scope {
        SharedChanges::All => {
            all(sql, USER_COLUMNS, tables.users, "aor", |rows| incoming.users(rows))?;
            all(sql, ALIAS_COLUMNS, tables.aliases, "alias", |rows| incoming.aliases(rows))?;
            let query = format!("SELECT {GATEWAY_COLUMNS} FROM {} ORDER BY set_name, priority, uri", tables.gateways);
            incoming.gateways(&sql.query(&query, &[])?)
        }
        SharedChanges::Rows(rows) => {
            for (kind, name) in rows {
                let mut one = |columns: &str, table: &str, key: &str| {
                    sql.query(&format!("SELECT {columns} FROM {table} WHERE {key} = ?"), &[name.as_str().into()])
                };
                match kind.as_str() {
                    "user" => incoming.users(&one(USER_COLUMNS, tables.users, "aor")?)?,
                    "alias" => incoming.aliases(&one(ALIAS_COLUMNS, tables.aliases, "alias")?)?,
                    _ => incoming.gateways(&one(GATEWAY_COLUMNS, tables.gateways, "set_name")?)?,
                }
            }
            Ok(())
        }
    }
}

/// Reads all rows of a table in pages, ordered by the first column, `key`.
fn all(
    sql: &mut dyn Sql,
    columns: &str,
    table: &str,
    key: &str,
    mut take: impl FnMut(&[SqlRow]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut last: Option<Value> = None;
    loop {
        let after = if last.is_some() { format!("WHERE {key} > ?") } else { String::new() };
        let query = format!("SELECT {columns} FROM {table} {after} ORDER BY {key} LIMIT {PAGE}");
        let rows = sql.query(&query, last.as_slice())?;
        take(&rows)?;
        match rows.last().and_then(|row| row.0.first()) {
            Some(key) if rows.len() == PAGE => last = Some(key.clone()),
            _ => return Ok(()),
        }
    }
}
