//! A file that follows a shared database: a server has all users at hand when that is away, also when it starts then.

use std::collections::BTreeSet;
use std::path::Path;

use strowger_sql::{DatabaseUrl, Value};

use crate::error::Fault;
use crate::incoming::{ALIAS_COLUMNS, GATEWAY_COLUMNS, Incoming, Source, USER_COLUMNS};
use crate::place::{Cells, Sql, Transact as _};
use crate::shared::{Ends, SharedChanges, changes, ends, forget_old_changes, identity};
use crate::{File, Shared, StoreError, UserStore};

/// Rows that are read at once.
const PAGE: usize = 5_000;
/// After how many changes of a server old ones are forgotten.
const FORGET_EVERY: i64 = 1_000;

/// Brings a file up to date with a shared database.
#[derive(Debug)]
pub struct Copier {
    urls: Vec<DatabaseUrl>,
    from: Option<UserStore<Shared>>,
    to: UserStore<File>,
    seen: Option<Ends>,
}

/// What a look has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Nothing is new.
    Same,
    /// The file is up to date again.
    New {
        /// Rows that were left out, and why.
        refused: BTreeSet<String>,
    },
}

impl Copier {
    /// A copier of the first of `urls` that can be written to into the file at `path`, which is made where it is missing.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn new(urls: &[DatabaseUrl], path: &Path) -> Result<Self, StoreError> {
        Ok(Self { urls: urls.to_vec(), from: None, to: UserStore::open(path)?, seen: None })
    }

    /// Looks what is new, and takes it. To be asked often: where nothing is new it reads one row of each database server.
    ///
    /// # Errors
    /// Where the database is away, or has nobody and the file has; what befalls the file. The file then stays as it was.
    pub fn follow(&mut self) -> Result<Copied, StoreError> {
        let from = match &mut self.from {
            Some(from) => from,
            None => self.from.insert(UserStore::connect(&self.urls)?),
        };
        let now = from.ends()?;
        if self.seen.as_ref() == Some(&now) {
            return Ok(Copied::Same);
        }
        let (to, seen) = (&mut self.to, &self.seen);
        let name = from.place.url().to_string();
        let (ends, refused) = from.place.read(|sql| {
            let ends = ends(sql)?;
            let scope = seen.as_ref().map_or(Ok(SharedChanges::All), |seen| changes(sql, seen, &ends))?;
            let mut incoming = Incoming::begin(to, &scope)?;
            read(sql, &scope, &mut incoming)?;
            let refused = std::mem::take(&mut incoming.refused);
            incoming.take(&Source { name: &name, id: &identity(sql)? })?;
            Ok((ends, refused))
        })?;
        if passes_a_thousand(self.seen.as_ref(), &ends) {
            from.place.write(|sql| forget_old_changes(sql, &ends))?;
        }
        self.seen = Some(ends);
        Ok(Copied::New { refused })
    }
}

fn passes_a_thousand(seen: Option<&Ends>, ends: &Ends) -> bool {
    let before = |server| seen.and_then(|seen| seen.get(server)).map_or(-1, |end| end.seq / FORGET_EVERY);
    ends.iter().any(|(server, end)| end.seq / FORGET_EVERY != before(server))
}

/// Reads what `scope` names.
fn read(sql: &mut dyn Sql, scope: &SharedChanges, incoming: &mut Incoming<'_>) -> Result<(), Fault> {
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

/// Gives out all rows of a table, some at a time, in the order of their first column, `key`.
fn all(
    sql: &mut dyn Sql,
    columns: &str,
    table: &str,
    key: &str,
    mut take: impl FnMut(&[Cells]) -> Result<(), Fault>,
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
