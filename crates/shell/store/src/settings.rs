//! Settings stored with the data, each with a checksum.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::StoreError;
use crate::error::Fault;

/// Prefix of keys that a backup has and a restored database does not.
pub(crate) const BACKUP_PREFIX: &str = "backup.";

/// Key of the identity of the shared database that the users are replicated from.
pub(crate) const SHARED_SOURCE_KEY: &str = "users.followed";

/// A setting that may be damaged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Sound(Vec<u8>),
    Absent,
    Damaged,
}

impl Setting {
    /// Returns the value, or an error if it is damaged: for settings that cannot be replaced.
    pub(crate) fn or_damaged(self) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Self::Sound(value) => Ok(Some(value)),
            Self::Absent => Ok(None),
            Self::Damaged => Err(Fault::Damaged),
        }
    }
}

pub(crate) fn read(connection: &Connection, key: &str) -> Result<Setting, Fault> {
    let mut statement = connection.prepare_cached("SELECT value, sum FROM settings WHERE key = ?1")?;
    let row =
        statement.query_row([key], |row| Ok((row.get_ref(0)?.as_blob().map(<[u8]>::to_vec), row.get::<_, i64>(1))));
    Ok(match row.optional()? {
        None => Setting::Absent,
        Some((Ok(value), Ok(sum))) if sum == i64::from(checksum(key, &value)) => Setting::Sound(value),
        Some(_) => Setting::Damaged,
    })
}

pub(crate) fn write(connection: &Connection, key: &str, value: &[u8]) -> Result<(), Fault> {
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO settings (key, value, sum) VALUES (?1, ?2, ?3)")?;
    statement.execute(params![key, value, checksum(key, value)])?;
    Ok(())
}

/// Returns the additional values of a backup, without their prefix, ordered by key.
pub(crate) fn read_extra(connection: &Connection) -> Result<Vec<(String, Vec<u8>)>, Fault> {
    let mut statement = connection.prepare("SELECT key FROM settings ORDER BY key")?;
    let keys = statement.query_map((), |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    for key in keys {
        if let Some(name) = key.strip_prefix(BACKUP_PREFIX) {
            found.push((name.to_owned(), read(connection, &key)?.or_damaged()?.unwrap_or_default()));
        }
    }
    Ok(found)
}

pub(crate) fn remove_extra(connection: &Connection) -> Result<(), Fault> {
    connection.execute("DELETE FROM settings WHERE substr(key, 1, length(?1)) = ?1", [BACKUP_PREFIX])?;
    Ok(())
}

fn checksum(key: &str, value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), &[0]), value)
}

/// Whether a key is reserved for this crate.
pub(crate) fn is_ours(key: &str) -> bool {
    CHECKPOINT_KEYS.contains(&key) || key == ROWS_KEY || key == SHARED_SOURCE_KEY || key.starts_with(BACKUP_PREFIX)
}

/// Returns the error for writing a key that [`is_ours`].
pub(crate) fn refuse(key: &str) -> StoreError {
    StoreError::ReservedSetting { key: key.to_owned() }
}

pub(crate) const CHECKPOINT_KEYS: [&str; 2] = ["checkpoint", "checkpoint.copy"];

pub(crate) const ROWS_KEY: &str = "rows";
