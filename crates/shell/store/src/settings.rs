//! Settings that go with the data, each with a checksum.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::StoreError;
use crate::error::Fault;
use crate::locations::CHECKPOINT_KEYS;
use crate::row_counts::ROWS_KEY;

/// What begins the keys that a backup has and the restored database has not.
pub(crate) const BACKUP_PREFIX: &str = "backup.";

/// The key of what tells the shared database from others that the users are a copy of.
pub(crate) const SHARED_SOURCE_KEY: &str = "users.followed";

/// A setting that may be damaged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Sound(Vec<u8>),
    Absent,
    Damaged,
}

impl Setting {
    /// For those settings whose loss cannot be made good.
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

/// Those that a backup was given, without their prefix, by key.
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

/// A setting as the outside names it: some keys are this crate's own.
pub(crate) fn is_ours(key: &str) -> bool {
    CHECKPOINT_KEYS.contains(&key) || key == ROWS_KEY || key == SHARED_SOURCE_KEY || key.starts_with(BACKUP_PREFIX)
}

/// For [`is_ours`] keys that the outside wants to write.
pub(crate) fn refuse(key: &str) -> StoreError {
    StoreError::ReservedSetting { key: key.to_owned() }
}
