//! The store and what can be asked of it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use strowger_directory::Ha1s;

use crate::backup::open_to_look;
use crate::error::Fault;
use crate::{Address, StoreError, file, ha1, transact};

/// The users database. Several may be open on one file, in one process or many; each sees what the others committed.
///
/// Every call may wait for the disk, and up to five seconds for another process that writes: it belongs on the control
/// plane.
#[derive(Debug)]
pub struct UserStore {
    connection: Connection,
    path: PathBuf,
}

/// Whether the database at `path`, which stays as it is, has a user; none where there is no database.
///
/// # Errors
/// What befalls the file.
pub fn has_users_at(path: &Path) -> Result<bool, StoreError> {
    match open_to_look(path) {
        Ok(connection) => transact::read(&connection, path, |transaction| {
            Ok(transaction.query_row("SELECT EXISTS (SELECT 1 FROM users)", (), |row| row.get(0))?)
        }),
        Err(StoreError::NoSource { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A user as [`UserStore::list`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedUser {
    /// The canonical address of record.
    pub aor: String,
    /// The realm that the hashes are for: a password works only where the server's challenge has the same.
    pub realm: String,
    /// The algorithms whose hash is known, by their names in RFC 8760.
    pub algorithms: Vec<&'static str>,
    /// Whether the user may register and call.
    pub enabled: bool,
    /// When it was added, in seconds since 1970.
    pub created_s: i64,
}

/// An alias as [`UserStore::list_aliases`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAlias {
    /// The address that leads elsewhere.
    pub alias: String,
    /// The user that it leads to.
    pub aor: String,
}

impl UserStore {
    /// Opens the database at `path`. What is missing is made: folders with mode 0700, the file with 0600. Rights that
    /// everybody has to an existing file are taken away.
    ///
    /// # Errors
    /// Those that [`Blame::Operator`](crate::Blame::Operator) stands for.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let (connection, path) = file::open(path.as_ref())?;
        Ok(Self { connection, path })
    }

    /// A database in memory, which ends with this value.
    ///
    /// # Errors
    /// [`StoreError::Internal`] only.
    pub fn open_memory() -> Result<Self, StoreError> {
        let (connection, path) = file::open_memory()?;
        Ok(Self { connection, path })
    }

    /// Adds a user with the hashes of `password` in `realm`; returns its canonical address.
    ///
    /// # Errors
    /// A bad address, realm or password; [`StoreError::DuplicateUser`]; [`StoreError::UserIsAlias`]; what befalls the
    /// file.
    pub fn add_user(&mut self, aor: &str, realm: &str, password: &str) -> Result<Address, StoreError> {
        let address = Address::parse(aor)?;
        let ha1 = hashes(&address, realm, password)?;
        self.write(|transaction| insert_user(transaction, &address, realm, &ha1))?;
        Ok(address)
    }

    /// Replaces the user's realm and hashes.
    ///
    /// # Errors
    /// A bad address, realm or password; [`StoreError::UnknownUser`]; what befalls the file.
    pub fn set_password(&mut self, aor: &str, realm: &str, password: &str) -> Result<Address, StoreError> {
        let address = Address::parse(aor)?;
        let [md5, sha256, sha512_256] = hexadecimal(&hashes(&address, realm, password)?);
        self.change_user(address, |transaction, aor| {
            transaction.execute(
                "UPDATE users SET realm = ?2, ha1_md5 = ?3, ha1_sha256 = ?4, ha1_sha512_256 = ?5 WHERE aor = ?1",
                params![aor, realm, md5, sha256, sha512_256],
            )
        })
    }

    /// Lets the user register and call, or not; its password stays.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownUser`]; what befalls the file.
    pub fn set_enabled(&mut self, aor: &str, enabled: bool) -> Result<Address, StoreError> {
        self.change_user(Address::parse(aor)?, |transaction, aor| {
            transaction.execute("UPDATE users SET enabled = ?2 WHERE aor = ?1", params![aor, enabled])
        })
    }

    /// Removes the user, and the aliases that lead to it.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownUser`]; what befalls the file.
    pub fn remove_user(&mut self, aor: &str) -> Result<Address, StoreError> {
        self.change_user(Address::parse(aor)?, |transaction, aor| {
            transaction.execute("DELETE FROM users WHERE aor = ?1", [aor])
        })
    }

    /// Whether there is such a user.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn has_user(&self, address: &Address) -> Result<bool, StoreError> {
        self.read(|transaction| is_user(transaction, address))
    }

    /// All users, by address.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn list(&self) -> Result<Vec<ListedUser>, StoreError> {
        self.read(|transaction| {
            let mut statement = transaction.prepare(
                "SELECT aor, realm, ha1_md5 IS NOT NULL, ha1_sha256 IS NOT NULL, ha1_sha512_256 IS NOT NULL, enabled, \
                 created FROM users ORDER BY aor",
            )?;
            let rows = statement.query_map((), |row| {
                let mut algorithms = Vec::new();
                for (column, name) in [(2, "MD5"), (3, "SHA-256"), (4, "SHA-512-256")] {
                    if row.get(column)? {
                        algorithms.push(name);
                    }
                }
                let (aor, realm) = (row.get(0)?, row.get(1)?);
                Ok(ListedUser { aor, realm, algorithms, enabled: row.get(5)?, created_s: row.get(6)? })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Lets `alias` lead to the user `aor`; returns both in canonical form.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownUser`], [`StoreError::AliasIsUser`], [`StoreError::AliasOfAlias`],
    /// [`StoreError::DuplicateAlias`]; what befalls the file.
    pub fn add_alias(&mut self, alias: &str, aor: &str) -> Result<(Address, Address), StoreError> {
        let (alias, aor) = (Address::parse(alias)?, Address::parse(aor)?);
        self.write(|transaction| insert_alias(transaction, &alias, &aor))?;
        Ok((alias, aor))
    }

    /// Removes an alias.
    ///
    /// # Errors
    /// A bad address; [`StoreError::UnknownAlias`]; what befalls the file.
    pub fn remove_alias(&mut self, alias: &str) -> Result<Address, StoreError> {
        let alias = Address::parse(alias)?;
        self.write(|transaction| {
            match transaction.execute("DELETE FROM aliases WHERE alias = ?1", [alias.as_str()])? {
                0 => Err(StoreError::UnknownAlias { alias: alias.to_string() }.into()),
                _ => Ok(()),
            }
        })?;
        Ok(alias)
    }

    /// All aliases, by alias.
    ///
    /// # Errors
    /// What befalls the file.
    pub fn list_aliases(&self) -> Result<Vec<ListedAlias>, StoreError> {
        self.read(|transaction| {
            let mut statement = transaction.prepare("SELECT alias, aor FROM aliases ORDER BY alias")?;
            let rows = statement.query_map((), |row| Ok(ListedAlias { alias: row.get(0)?, aor: row.get(1)? }))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// All reads of `job` see one state of the database.
    pub(crate) fn read<T>(&self, job: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T, StoreError> {
        transact::read(&self.connection, &self.path, job)
    }

    /// All writes of `job` happen, or none.
    pub(crate) fn write<T>(&mut self, job: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T, StoreError> {
        transact::write(&mut self.connection, &self.path, job)
    }

    /// `job` returns how many rows it changed.
    fn change_user(
        &mut self,
        address: Address,
        job: impl FnOnce(&Transaction<'_>, &str) -> rusqlite::Result<usize>,
    ) -> Result<Address, StoreError> {
        self.write(|transaction| match job(transaction, address.as_str())? {
            0 => Err(StoreError::UnknownUser { aor: address.to_string() }.into()),
            _ => Ok(()),
        })?;
        Ok(address)
    }
}

pub(crate) fn hashes(address: &Address, realm: &str, password: &str) -> Result<Ha1s, StoreError> {
    ha1::check_realm(realm)?;
    ha1::check_password(password)?;
    Ok(ha1::ha1s(address.user(), realm, password))
}

pub(crate) fn insert_user(
    transaction: &Transaction<'_>,
    address: &Address,
    realm: &str,
    ha1: &Ha1s,
) -> Result<(), Fault> {
    if is_user(transaction, address)? {
        return Err(StoreError::DuplicateUser { aor: address.to_string() }.into());
    }
    if let Some(aor) = target_of(transaction, address)? {
        return Err(StoreError::UserIsAlias { alias: address.to_string(), aor }.into());
    }
    let [md5, sha256, sha512_256] = hexadecimal(ha1);
    transaction
        .prepare_cached(
            "INSERT INTO users (aor, realm, ha1_md5, ha1_sha256, ha1_sha512_256) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![address.as_str(), realm, md5, sha256, sha512_256])?;
    Ok(())
}

fn insert_alias(transaction: &Transaction<'_>, alias: &Address, target: &Address) -> Result<(), Fault> {
    if is_user(transaction, alias)? {
        return Err(StoreError::AliasIsUser { alias: alias.to_string() }.into());
    }
    if let Some(aor) = target_of(transaction, alias)? {
        return Err(StoreError::DuplicateAlias { alias: alias.to_string(), aor }.into());
    }
    if let Some(aor) = target_of(transaction, target)? {
        return Err(StoreError::AliasOfAlias { target: target.to_string(), aor }.into());
    }
    if !is_user(transaction, target)? {
        return Err(StoreError::UnknownUser { aor: target.to_string() }.into());
    }
    transaction.execute("INSERT INTO aliases (alias, aor) VALUES (?1, ?2)", [alias.as_str(), target.as_str()])?;
    Ok(())
}

pub(crate) fn is_user(transaction: &Transaction<'_>, address: &Address) -> Result<bool, Fault> {
    Ok(transaction.prepare_cached("SELECT 1 FROM users WHERE aor = ?1")?.exists([address.as_str()])?)
}

pub(crate) fn target_of(transaction: &Transaction<'_>, alias: &Address) -> Result<Option<String>, Fault> {
    let mut statement = transaction.prepare_cached("SELECT aor FROM aliases WHERE alias = ?1")?;
    Ok(statement.query_row([alias.as_str()], |row| row.get(0)).optional()?)
}

pub(crate) fn hexadecimal(ha1: &Ha1s) -> [Option<String>; 3] {
    let digits = |hash: &[u8]| data_encoding::HEXLOWER.encode(hash);
    [ha1.md5.map(|hash| digits(&hash)), ha1.sha256.map(|hash| digits(&hash)), ha1.sha512_256.map(|hash| digits(&hash))]
}
