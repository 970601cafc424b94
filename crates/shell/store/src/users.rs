//! The users database and its operations.

use std::path::Path;

use strowger_directory::Ha1s;
use strowger_sql::Value;

use crate::backend::{Sql, SqlRow};
use crate::backup::open_read_only;
use crate::error::Fault;
use crate::{Address, Backend, SqliteFile, StoreError, file, ha1, transact};

/// The users database. Several stores may be open on one file, in one or several processes; each sees what the others
/// have committed.
///
/// Every call may block on the disk or the network, and up to five seconds on another writing process. Use it on the
/// control plane only.
#[derive(Debug)]
pub struct UserStore<P: Backend = SqliteFile> {
    pub(crate) backend: P,
}

/// Whether the database at `path` has any user, without changing it; `false` if there is no database.
///
/// # Errors
/// File errors.
pub fn has_users_at(path: &Path) -> Result<bool, StoreError> {
    match open_read_only(path) {
        Ok(connection) => transact::read(&connection, path, |transaction| {
            Ok(transaction.query_row("SELECT EXISTS (SELECT 1 FROM users)", (), |row| row.get(0))?)
        }),
        Err(StoreError::NoSource { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A user as listed by [`UserStore::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserEntry {
    /// Canonical address of record.
    pub aor: String,
    /// Realm of the hashes. A password works only if the server's challenge has the same realm.
    pub realm: String,
    /// Algorithms with a known hash, by their names in RFC 8760.
    pub algorithms: Vec<&'static str>,
    /// Whether the user may register and call.
    pub enabled: bool,
    /// When it was added, in seconds since 1970.
    pub created_s: i64,
}

/// An alias as listed by [`UserStore::list_aliases`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasEntry {
    /// Address of the alias.
    pub alias: String,
    /// User that it resolves to.
    pub aor: String,
}

impl UserStore<SqliteFile> {
    /// Opens the database at `path`. Creates what is missing: directories with mode 0700, the file with 0600. Removes
    /// the permissions that everybody has on an existing file.
    ///
    /// # Errors
    /// Errors of [`ErrorOwner::Operator`](crate::ErrorOwner::Operator).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let (connection, path) = file::open(path.as_ref())?;
        Ok(Self { backend: SqliteFile { connection, path } })
    }

    /// Opens an in-memory database, which ends with this value.
    ///
    /// # Errors
    /// [`StoreError::Internal`] only.
    pub fn open_memory() -> Result<Self, StoreError> {
        let (connection, path) = file::open_memory()?;
        Ok(Self { backend: SqliteFile { connection, path } })
    }
}

impl<P: Backend> UserStore<P> {
    /// Adds a user with the hashes of `password` in `realm` and returns its canonical address.
    ///
    /// # Errors
    /// A bad address, realm or password; [`StoreError::DuplicateUser`]; [`StoreError::UserIsAlias`]; file errors.
    pub fn add_user(&mut self, aor: &str, realm: &str, password: &str) -> Result<Address, StoreError> {
        let address = Address::parse(aor)?;
        let ha1 = hashes(&address, realm, password)?;
        self.backend.write(|sql| insert_user(sql, &address, realm, &ha1))?;
        Ok(address)
    }

    /// Replaces the user's realm and hashes.
    ///
    /// # Errors
    /// A bad address, realm or password; [`StoreError::UnknownUser`]; file errors.
    pub fn set_password(&mut self, aor: &str, realm: &str, password: &str) -> Result<Address, StoreError> {
        let address = Address::parse(aor)?;
        let [md5, sha256, sha512_256] = hexadecimal(&hashes(&address, realm, password)?);
        let values = [realm.into(), md5, sha256, sha512_256];
        self.change_user(
            address,
            "UPDATE {users} SET realm = ?, ha1_md5 = ?, ha1_sha256 = ?, ha1_sha512_256 = ? WHERE aor = ?",
            &values,
        )
    }

    /// Enables or disables a user; its password stays.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownUser`]; file errors.
    pub fn set_enabled(&mut self, aor: &str, enabled: bool) -> Result<Address, StoreError> {
        let address = Address::parse(aor)?;
        self.change_user(address, "UPDATE {users} SET enabled = ? WHERE aor = ?", &[i64::from(enabled).into()])
    }

    /// Removes a user and the aliases that resolve to it.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownUser`]; file errors.
    pub fn remove_user(&mut self, aor: &str) -> Result<Address, StoreError> {
        self.change_user(Address::parse(aor)?, "DELETE FROM {users} WHERE aor = ?", &[])
    }

    /// Whether the user exists.
    ///
    /// # Errors
    /// File errors.
    pub fn has_user(&mut self, address: &Address) -> Result<bool, StoreError> {
        self.backend.read(|sql| is_user(sql, address))
    }

    /// Returns all users, ordered by address.
    ///
    /// # Errors
    /// File errors.
    pub fn list(&mut self) -> Result<Vec<UserEntry>, StoreError> {
        self.backend.read(|sql| {
            let users = sql.tables().users;
            let query = format!(
                "SELECT aor, realm, ha1_md5, ha1_sha256, ha1_sha512_256, enabled, created FROM {users} ORDER BY aor"
            );
            sql.query(&query, &[])?.iter().map(user_entry).collect()
        })
    }

    /// Adds an alias that resolves to the user `aor`; returns both in canonical form.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownUser`], [`StoreError::AliasIsUser`], [`StoreError::AliasOfAlias`],
    /// [`StoreError::DuplicateAlias`]; file errors.
    pub fn add_alias(&mut self, alias: &str, aor: &str) -> Result<(Address, Address), StoreError> {
        let (alias, aor) = (Address::parse(alias)?, Address::parse(aor)?);
        self.backend.write(|sql| insert_alias(sql, &alias, &aor))?;
        Ok((alias, aor))
    }

    /// Removes an alias.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownAlias`]; file errors.
    pub fn remove_alias(&mut self, alias: &str) -> Result<Address, StoreError> {
        let alias = Address::parse(alias)?;
        self.backend.write(|sql| {
            let aliases = sql.tables().aliases;
            match sql.execute(&format!("DELETE FROM {aliases} WHERE alias = ?"), &[alias.as_str().into()])? {
                0 => Err(StoreError::UnknownAlias { alias: alias.to_string() }.into()),
                _ => Ok(()),
            }
        })?;
        Ok(alias)
    }

    /// Returns all aliases, ordered by alias.
    ///
    /// # Errors
    /// File errors.
    pub fn list_aliases(&mut self) -> Result<Vec<AliasEntry>, StoreError> {
        self.backend.read(|sql| {
            let aliases = sql.tables().aliases;
            let rows = sql.query(&format!("SELECT alias, aor FROM {aliases} ORDER BY alias"), &[])?;
            rows.iter().map(|row| Ok(AliasEntry { alias: row.text(0)?, aor: row.text(1)? })).collect()
        })
    }

    /// Executes a statement whose last value is the user's address.
    fn change_user(&mut self, address: Address, statement: &str, values: &[Value]) -> Result<Address, StoreError> {
        let values: Vec<Value> = values.iter().cloned().chain([address.as_str().into()]).collect();
        self.backend.write(|sql| match sql.execute(&statement.replace("{users}", sql.tables().users), &values)? {
            0 => Err(StoreError::UnknownUser { aor: address.to_string() }.into()),
            _ => Ok(()),
        })?;
        Ok(address)
    }
}

pub(crate) fn user_entry(row: &SqlRow) -> Result<UserEntry, Fault> {
    let mut algorithms = Vec::new();
    for (column, name) in [(2, "MD5"), (3, "SHA-256"), (4, "SHA-512-256")] {
        if row.text_or_null(column)?.is_some() {
            algorithms.push(name);
        }
    }
    Ok(UserEntry {
        aor: row.text(0)?,
        realm: row.text(1)?,
        algorithms,
        enabled: row.boolean(5)?,
        created_s: row.number(6)?,
    })
}

pub(crate) fn hashes(address: &Address, realm: &str, password: &str) -> Result<Ha1s, StoreError> {
    ha1::check_realm(realm)?;
    ha1::check_password(password)?;
    Ok(ha1::ha1s(address.user(), realm, password))
}

pub(crate) fn insert_user(sql: &mut dyn Sql, address: &Address, realm: &str, ha1: &Ha1s) -> Result<(), Fault> {
    if is_user(sql, address)? {
        return Err(StoreError::DuplicateUser { aor: address.to_string() }.into());
    }
    if let Some(aor) = target_of(sql, address)? {
        return Err(StoreError::UserIsAlias { alias: address.to_string(), aor }.into());
    }
    let [md5, sha256, sha512_256] = hexadecimal(ha1);
    let users = sql.tables().users;
    let insert =
        format!("INSERT INTO {users} (aor, realm, ha1_md5, ha1_sha256, ha1_sha512_256) VALUES (?, ?, ?, ?, ?)");
    sql.execute(&insert, &[address.as_str().into(), realm.into(), md5, sha256, sha512_256])?;
    Ok(())
}

fn insert_alias(sql: &mut dyn Sql, alias: &Address, target: &Address) -> Result<(), Fault> {
    if is_user(sql, alias)? {
        return Err(StoreError::AliasIsUser { alias: alias.to_string() }.into());
    }
    if let Some(aor) = target_of(sql, alias)? {
        return Err(StoreError::DuplicateAlias { alias: alias.to_string(), aor }.into());
    }
    if let Some(aor) = target_of(sql, target)? {
        return Err(StoreError::AliasOfAlias { target: target.to_string(), aor }.into());
    }
    if !is_user(sql, target)? {
        return Err(StoreError::UnknownUser { aor: target.to_string() }.into());
    }
    let insert = format!("INSERT INTO {} (alias, aor) VALUES (?, ?)", sql.tables().aliases);
    sql.execute(&insert, &[alias.as_str().into(), target.as_str().into()])?;
    Ok(())
}

pub(crate) fn is_user(sql: &mut dyn Sql, address: &Address) -> Result<bool, Fault> {
    let query = format!("SELECT 1 FROM {} WHERE aor = ?", sql.tables().users);
    Ok(!sql.query(&query, &[address.as_str().into()])?.is_empty())
}

pub(crate) fn target_of(sql: &mut dyn Sql, address: &Address) -> Result<Option<String>, Fault> {
    let query = format!("SELECT aor FROM {} WHERE alias = ?", sql.tables().aliases);
    sql.query(&query, &[address.as_str().into()])?.first().map(|row| row.text(0)).transpose()
}

pub(crate) fn hexadecimal(ha1: &Ha1s) -> [Value; 3] {
    let digits = |hash: &[u8]| data_encoding::HEXLOWER.encode(hash);
    let texts = [
        ha1.md5.map(|hash| digits(&hash)),
        ha1.sha256.map(|hash| digits(&hash)),
        ha1.sha512_256.map(|hash| digits(&hash)),
    ];
    texts.map(Value::from)
}
