//! How a running server follows changes of the database.

use std::collections::BTreeSet;
use std::fmt;

use data_encoding::HEXLOWER_PERMISSIVE;
use rusqlite::{OptionalExtension as _, Row, Transaction};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};

use crate::error::Fault;
use crate::{SqliteFile, StoreError, UserStore, gateways, transact};

/// Number of changes that the database keeps. A server that falls further behind reloads everything.
pub const MAX_LOG_ROWS: u64 = 10_000;

/// State of the database that was read: the number of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(i64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Changes since a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Changes that bring a directory of that state up to date: one per changed row or gateway set, empty if there
    /// are none.
    Since {
        /// Changes for [`Directory::with_changes`].
        changes: Vec<DirectoryChange>,
        /// State after them.
        seq: Seq,
    },
    /// The log does not reach back to that state: call [`UserStore::load`] again.
    Reload,
}

const USER_COLUMNS: &str = "aor, ha1_md5, ha1_sha256, ha1_sha512_256, enabled";

impl UserStore<SqliteFile> {
    /// Loads all users, aliases and gateways, and returns the state read. `seed` is for [`Directory::empty`].
    ///
    /// # Errors
    /// File errors; [`StoreError::BadRow`].
    pub fn load(&self, seed: u64) -> Result<(Directory, Seq), StoreError> {
        transact::read(&self.backend.connection, &self.backend.path, |transaction| {
            let mut users = transaction.prepare(&format!("SELECT {USER_COLUMNS} FROM users"))?;
            let users = users.query_and_then((), |row| Ok(DirectoryChange::PutUser(user_of(row)?)))?;
            let mut aliases = transaction.prepare("SELECT alias, aor FROM aliases")?;
            let aliases = aliases.query_and_then((), put_alias)?;
            let mut failed = Ok(());
            let mut sets = Vec::new();
            gateways::read_sets(transaction, |set, gateways| {
                sets.push(Ok(DirectoryChange::PutGateways { set, gateways }));
            })?;
            let rows = users.chain(aliases).chain(sets).map_while(|row| row.map_err(|fault| failed = Err(fault)).ok());
            let directory = Directory::empty(seed).with_changes(rows);
            failed?;
            Ok((directory, last_seq(transaction)?))
        })
    }

    /// Returns what has changed since the state `since`, by any process. Cheap enough to poll: without changes it
    /// reads one row.
    ///
    /// # Errors
    /// File errors; [`StoreError::BadRow`].
    pub fn changes_since(&self, since: Seq) -> Result<Changes, StoreError> {
        transact::read(&self.backend.connection, &self.backend.path, |transaction| {
            let seq = last_seq(transaction)?;
            if seq == since {
                return Ok(Changes::Since { changes: Vec::new(), seq });
            }
            let mut log = transaction.prepare_cached("SELECT kind, key FROM changes WHERE seq > ?1")?;
            let log: Vec<(String, String)> =
                log.query_map([since.0], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
            // All numbers must be present. Also unequal if the database is older than that of `since`.
            if i64::try_from(log.len()).ok() != seq.0.checked_sub(since.0) {
                return Ok(Changes::Reload);
            }
            let rows: BTreeSet<_> = log.into_iter().collect();
            let changes =
                rows.into_iter().map(|(kind, key)| current(transaction, &kind, key)).collect::<Result<_, _>>()?;
            Ok(Changes::Since { changes, seq })
        })
    }
}

/// Returns the number of the last change ever, even if it has been pruned.
fn last_seq(transaction: &Transaction<'_>) -> Result<Seq, Fault> {
    let mut statement = transaction.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'changes'")?;
    Ok(Seq(statement.query_row((), |row| row.get(0)).optional()?.unwrap_or(0)))
}

/// Returns a row's present state; intermediate states do not matter.
fn current(transaction: &Transaction<'_>, kind: &str, key: String) -> Result<DirectoryChange, Fault> {
    if kind == "gateway" {
        let gateways = gateways::read_set(transaction, &key)?;
        return Ok(DirectoryChange::PutGateways { set: key.into_bytes().into(), gateways });
    }
    if kind == "alias" {
        let mut statement = transaction.prepare_cached("SELECT alias, aor FROM aliases WHERE alias = ?1")?;
        let found = statement.query_and_then([&key], put_alias)?.next().transpose()?;
        return Ok(found.unwrap_or_else(|| DirectoryChange::RemoveAlias(key.into_bytes().into())));
    }
    let mut statement = transaction.prepare_cached(&format!("SELECT {USER_COLUMNS} FROM users WHERE aor = ?1"))?;
    let found = statement.query_and_then([&key], user_of)?.next().transpose()?;
    Ok(found.map_or_else(|| DirectoryChange::RemoveUser(key.into_bytes().into()), DirectoryChange::PutUser))
}

fn put_alias(row: &Row<'_>) -> Result<DirectoryChange, Fault> {
    let (alias, aor): (String, String) = (row.get(0)?, row.get(1)?);
    Ok(DirectoryChange::PutAlias { alias: alias.into_bytes().into(), aor: aor.into_bytes().into() })
}

/// The columns are [`USER_COLUMNS`].
fn user_of(row: &Row<'_>) -> Result<User, Fault> {
    let aor: String = row.get(0)?;
    let ha1 = Ha1s {
        md5: hash_of(row, 1, &aor, "ha1_md5")?,
        sha256: hash_of(row, 2, &aor, "ha1_sha256")?,
        sha512_256: hash_of(row, 3, &aor, "ha1_sha512_256")?,
    };
    Ok(User { aor: aor.into_bytes().into(), ha1, enabled: row.get(4)? })
}

fn hash_of<const N: usize>(
    row: &Row<'_>,
    index: usize,
    aor: &str,
    column: &'static str,
) -> Result<Option<[u8; N]>, Fault> {
    let Some(digits) = row.get::<_, Option<String>>(index)? else { return Ok(None) };
    match hash_from_digits(&digits) {
        Some(hash) => Ok(Some(hash)),
        None => Err(StoreError::BadRow { key: aor.to_owned(), column }.into()),
    }
}

/// Decodes exactly N bytes of hexadecimal digits in either case.
pub(crate) fn hash_from_digits<const N: usize>(digits: &str) -> Option<[u8; N]> {
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?.try_into().ok()
}
