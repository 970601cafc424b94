//! Staging of a shared database's rows: rows are checked one by one, and all differences are applied to the file at
//! once.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, params, params_from_iter};

use crate::backend::SqlRow;
use crate::changes::hash_from_digits;
use crate::error::Fault;
use crate::gateways::{check_limits, check_set, check_uri};
use crate::limits::{MAX_GATEWAYS, MAX_SET_GATEWAYS};
use crate::settings::{self, SHARED_SOURCE_KEY, Setting};
use crate::shared::SharedChanges;
use crate::sqlite_file::bound;
use crate::{Address, SqliteFile, StoreError, UserStore, ha1, transact};

/// Columns of each table, as [`StagedRows`] expects them.
pub(crate) const USER_COLUMNS: &str = "aor, realm, ha1_md5, ha1_sha256, ha1_sha512_256, enabled, created";
pub(crate) const ALIAS_COLUMNS: &str = "alias, aor";
pub(crate) const GATEWAY_COLUMNS: &str = "set_name, uri, priority, weight, capacity, enabled, description, created";

/// A shared database.
pub(crate) struct SourceDatabase<'a> {
    /// Name for messages.
    pub(crate) name: &'a str,
    /// Identity that distinguishes it from others.
    pub(crate) id: &'a str,
}

/// Rows of a shared database read so far. They are in temporary tables of the connection, so no other connection
/// waits.
pub(crate) struct StagedRows<'f> {
    file: &'f mut SqliteFile,
    of_sets: BTreeMap<String, usize>,
    gateways: usize,
    users: u64,
    /// Rejected rows, with the reasons.
    pub(crate) refused: BTreeSet<String>,
}

impl<'f> StagedRows<'f> {
    /// Creates an empty stage for what `scope` names.
    pub(crate) fn begin(store: &'f mut UserStore<SqliteFile>, scope: &SharedChanges) -> Result<Self, StoreError> {
        let file = &mut store.backend;
        let begin = |connection: &Connection| -> Result<(), Fault> {
            connection.execute_batch(include_str!("schema/incoming.sql"))?;
            let mut insert = connection.prepare_cached("INSERT INTO scope (kind, name) VALUES (?1, ?2)")?;
            match scope {
                SharedChanges::All => drop(insert.execute(["all", ""])?),
                SharedChanges::Rows(rows) => {
                    for (kind, name) in rows {
                        insert.execute([kind, name])?;
                    }
                }
            }
            Ok(())
        };
        begin(&file.connection).map_err(|fault| fault.at(&file.path))?;
        Ok(Self { file, of_sets: BTreeMap::new(), gateways: 0, users: 0, refused: BTreeSet::new() })
    }

    /// Stages rows of users.
    pub(crate) fn users(&mut self, rows: &[SqlRow]) -> Result<(), Fault> {
        self.insert("incoming_users", rows, |_, row| check_user(row))?;
        self.users += rows.len() as u64;
        Ok(())
    }

    /// Stages rows of aliases.
    pub(crate) fn aliases(&mut self, rows: &[SqlRow]) -> Result<(), Fault> {
        self.insert("incoming_aliases", rows, |_, row| check_alias(row))
    }

    /// Stages rows of gateways.
    pub(crate) fn gateways(&mut self, rows: &[SqlRow]) -> Result<(), Fault> {
        self.insert("incoming_gateways", rows, Self::check_gateway)
    }

    fn insert(
        &mut self,
        table: &str,
        rows: &[SqlRow],
        check: impl Fn(&mut Self, &SqlRow) -> Result<(), Refusal>,
    ) -> Result<(), Fault> {
        for row in rows {
            match check(self, row) {
                Ok(()) => {
                    let places = vec!["?"; row.0.len()].join(", ");
                    let mut insert =
                        self.file.connection.prepare_cached(&format!("INSERT INTO {table} VALUES ({places})"))?;
                    insert.execute(params_from_iter(row.0.iter().map(bound)))?;
                }
                Err(Refusal::Unexpected) => return Err(Fault::Unexpected),
                Err(Refusal::Bad(why)) => drop(self.refused.insert(why)),
            }
        }
        Ok(())
    }

    fn check_gateway(&mut self, row: &SqlRow) -> Result<(), Refusal> {
        let (set, uri, description) = (row.text(0)?, row.text(1)?, row.text(6)?);
        let (_, _, capacity) = (row.number::<u16>(2)?, row.number::<u16>(3)?, row.number_or_null::<u32>(4)?);
        check_set(&set)?;
        check_uri(&uri)?;
        check_limits(&uri, capacity, &description)?;
        let of_set = self.of_sets.entry(set.clone()).or_default();
        if *of_set >= MAX_SET_GATEWAYS {
            return Err(StoreError::FullSet { set }.into());
        }
        if self.gateways >= MAX_GATEWAYS {
            return Err(StoreError::TooManyGateways.into());
        }
        *of_set += 1;
        self.gateways += 1;
        Ok(())
    }

    /// Applies the staged rows to the file's tables and returns whether anything differed. A file that has not
    /// replicated this database before loses no rows.
    ///
    /// # Errors
    /// [`StoreError::SharedLacks`] and [`StoreError::SharedEmpty`] if it would; file errors.
    pub(crate) fn apply(self, source: &SourceDatabase<'_>) -> Result<bool, StoreError> {
        let is_empty = self.users == 0 && self.gateways == 0;
        let SqliteFile { connection, path } = self.file;
        let compare = || -> Result<(bool, bool), Fault> {
            connection.execute_batch(include_str!("schema/compare.sql"))?;
            let known = settings::read(connection, SHARED_SOURCE_KEY)?;
            let is_new = known != Setting::Sound(source.id.as_bytes().to_vec());
            let is_all = exists(connection, "SELECT 1 FROM scope WHERE kind = 'all'")?;
            let lacking = connection.query_row(COUNT_REMOVED, (), |row| row.get(0))?;
            let database = source.name.to_owned();
            if is_all && is_empty && has_any(connection)? {
                return Err(StoreError::SharedEmpty { database }.into());
            }
            if is_new && lacking > 0 {
                return Err(StoreError::SharedLacks { database, rows: lacking }.into());
            }
            Ok((is_new, exists(connection, DIFFERENCES)?))
        };
        let (is_new, differs) = compare().map_err(|fault| fault.at(path))?;
        if is_new || differs {
            transact::write(connection, path, |transaction| {
                transaction.execute_batch(include_str!("schema/take.sql"))?;
                settings::write(transaction, SHARED_SOURCE_KEY, source.id.as_bytes())
            })?;
        }
        Ok(differs)
    }
}

/// Counts the rows that the file has and the database lacks.
const COUNT_REMOVED: &str = "SELECT (SELECT count(*) FROM gone_users) + (SELECT count(*) FROM gone_gateways)";
const DIFFERENCES: &str = "SELECT 1 FROM gone_users UNION ALL SELECT 1 FROM new_users UNION ALL SELECT 1 FROM gone_aliases \
                           UNION ALL SELECT 1 FROM new_aliases UNION ALL SELECT 1 FROM gone_gateways UNION ALL SELECT 1 FROM new_gateways";

fn has_any(connection: &Connection) -> rusqlite::Result<bool> {
    exists(connection, "SELECT 1 FROM users UNION ALL SELECT 1 FROM gateways")
}

fn exists(connection: &Connection, query: &str) -> rusqlite::Result<bool> {
    connection.query_row(&format!("SELECT EXISTS ({query})"), params![], |row| row.get(0))
}

/// Why a row is rejected.
enum Refusal {
    /// A column has another type.
    Unexpected,
    Bad(String),
}

impl From<Fault> for Refusal {
    fn from(_: Fault) -> Self {
        Self::Unexpected
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Bad(error.to_string())
    }
}

/// Checks a row against what commands write.
fn check_user(row: &SqlRow) -> Result<(), Refusal> {
    let aor = row.text(0)?;
    check_address(&aor)?;
    ha1::check_realm(&row.text(1)?)?;
    let bad = |column| Refusal::from(StoreError::BadRow { key: aor.clone(), column });
    let [md5, sha256, sha512_256] = [row.text_or_null(2)?, row.text_or_null(3)?, row.text_or_null(4)?];
    let is_hash = |digits: &Option<String>, length: usize| match digits.as_deref() {
        None => true,
        Some(digits) if length == 16 => hash_from_digits::<16>(digits).is_some(),
        Some(digits) => hash_from_digits::<32>(digits).is_some(),
    };
    for (digits, length, column) in
        [(&md5, 16, "ha1_md5"), (&sha256, 32, "ha1_sha256"), (&sha512_256, 32, "ha1_sha512_256")]
    {
        if !is_hash(digits, length) {
            return Err(bad(column));
        }
    }
    if md5.is_none() && sha256.is_none() && sha512_256.is_none() {
        return Err(bad("ha1_md5"));
    }
    row.boolean(5)?;
    row.number::<i64>(6)?;
    Ok(())
}

fn check_alias(row: &SqlRow) -> Result<(), Refusal> {
    check_address(&row.text(0)?)?;
    check_address(&row.text(1)?)
}

fn check_address(text: &str) -> Result<(), Refusal> {
    match Address::parse(text) {
        Ok(address) if address.as_str() == text => Ok(()),
        Ok(address) => Err(Refusal::Bad(format!("{text:?} is not written as {address}; correct the row"))),
        Err(error) => Err(error.into()),
    }
}
