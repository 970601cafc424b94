//! Gateways in the database: rows that a command writes and a server reads as sets.

use std::path::Path;

use rusqlite::{OptionalExtension as _, Row, Transaction, params};
use strowger_directory::{Gateway, Gateways};

use crate::backup::open_to_look;
use crate::error::Fault;
use crate::{StoreError, UserStore, schema, transact};

/// The most members of one set.
pub const MAX_SET_GATEWAYS: usize = 64;
/// The most gateways of all sets.
pub const MAX_GATEWAYS: usize = 4096;
/// The longest name of a set, in bytes.
pub const MAX_SET_NAME_LEN: usize = 64;
/// The longest URI, in bytes.
pub const MAX_URI_LEN: usize = 255;
/// The longest description, in characters.
pub const MAX_DESCRIPTION_LEN: usize = 255;
/// The greatest capacity, in calls.
pub const MAX_CAPACITY: u32 = 1_000_000;

const COLUMNS: &str = "set_name, uri, priority, weight, capacity, enabled";

/// What [`UserStore::add_gateway`] adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGateway<'a> {
    /// The SIP URI of its place. The caller has read it: here it is only looked at for what no such URI has.
    pub uri: &'a str,
    /// Those of a lower one are tried first.
    pub priority: u16,
    /// The share among those of the same priority.
    pub weight: u16,
    /// The most calls at one time, 1 to [`MAX_CAPACITY`]; `None`: no limit.
    pub capacity: Option<u32>,
    /// What people want to know of it; may be empty.
    pub description: &'a str,
    /// Whether calls go there.
    pub enabled: bool,
}

/// What [`UserStore::change_gateway`] changes: all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayChange<'a> {
    /// The priority.
    pub priority: Option<u16>,
    /// The weight.
    pub weight: Option<u16>,
    /// The capacity; inner `None`: no limit.
    pub capacity: Option<Option<u32>>,
    /// The description.
    pub description: Option<&'a str>,
    /// Whether calls go there.
    pub enabled: Option<bool>,
}

/// A gateway as [`UserStore::list_gateways`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGateway {
    /// The set that it is a member of.
    pub set: String,
    /// Its place.
    pub uri: String,
    /// Those of a lower one are tried first.
    pub priority: u16,
    /// The share among those of the same priority.
    pub weight: u16,
    /// The most calls at one time; `None`: no limit.
    pub capacity: Option<u32>,
    /// Whether calls go there.
    pub enabled: bool,
    /// What people want to know of it.
    pub description: String,
    /// When it was added, in seconds since 1970.
    pub created_s: i64,
}

impl UserStore {
    /// Adds a gateway to the set, which begins with its first.
    ///
    /// # Errors
    /// [`StoreError::BadSet`], [`StoreError::BadGateway`], [`StoreError::DuplicateGateway`], [`StoreError::FullSet`],
    /// [`StoreError::TooManyGateways`]; what befalls the file.
    pub fn add_gateway(&mut self, set: &str, gateway: &NewGateway<'_>) -> Result<(), StoreError> {
        let NewGateway { uri, priority, weight, capacity, description, enabled } = *gateway;
        check_set(set)?;
        check_uri(uri)?;
        check_limits(uri, capacity, description)?;
        self.write(|transaction| {
            if state_of(transaction, set, uri)?.is_some() {
                return Err(StoreError::DuplicateGateway { set: set.to_owned(), uri: uri.to_owned() }.into());
            }
            check_room(transaction, set)?;
            transaction.execute(
                "INSERT INTO gateways (set_name, uri, priority, weight, capacity, description, enabled) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![set, uri, priority, weight, capacity, description, enabled],
            )?;
            Ok(())
        })
    }

    /// Changes a gateway of the set. What is as it should be already is not written.
    ///
    /// # Errors
    /// [`StoreError::BadSet`], [`StoreError::BadGateway`], [`StoreError::UnknownGateway`]; what befalls the file.
    pub fn change_gateway(&mut self, set: &str, uri: &str, change: &GatewayChange<'_>) -> Result<(), StoreError> {
        let GatewayChange { priority, weight, capacity, description, enabled } = *change;
        check_set(set)?;
        check_limits(uri, capacity.flatten(), description.unwrap_or_default())?;
        self.write(|transaction| {
            let Some(old) = state_of(transaction, set, uri)? else { return Err(unknown(set, uri).into()) };
            let new = ListedGateway {
                priority: priority.unwrap_or(old.priority),
                weight: weight.unwrap_or(old.weight),
                capacity: capacity.unwrap_or(old.capacity),
                enabled: enabled.unwrap_or(old.enabled),
                description: description.map_or_else(|| old.description.clone(), str::to_owned),
                ..old.clone()
            };
            if new != old {
                transaction.execute(
                    "UPDATE gateways SET priority = ?3, weight = ?4, capacity = ?5, enabled = ?6, description = ?7 \
                     WHERE set_name = ?1 AND uri = ?2",
                    params![set, uri, new.priority, new.weight, new.capacity, new.enabled, new.description],
                )?;
            }
            Ok(())
        })
    }

    /// Removes a gateway from the set, which ends with its last.
    ///
    /// # Errors
    /// [`StoreError::BadSet`], [`StoreError::UnknownGateway`]; what befalls the file.
    pub fn remove_gateway(&mut self, set: &str, uri: &str) -> Result<(), StoreError> {
        check_set(set)?;
        self.write(|transaction| {
            match transaction.execute("DELETE FROM gateways WHERE set_name = ?1 AND uri = ?2", [set, uri])? {
                0 => Err(unknown(set, uri).into()),
                _ => Ok(()),
            }
        })
    }

    /// The gateways of one set or of all, by set, priority and URI.
    ///
    /// # Errors
    /// [`StoreError::BadSet`]; what befalls the file.
    pub fn list_gateways(&self, set: Option<&str>) -> Result<Vec<ListedGateway>, StoreError> {
        set.map_or(Ok(()), check_set)?;
        self.read(|transaction| {
            let mut statement = transaction.prepare(&format!(
                "SELECT {COLUMNS}, description, created FROM gateways WHERE set_name = ?1 OR ?1 IS NULL \
                 ORDER BY set_name, priority, uri"
            ))?;
            let rows = statement.query_map([set], listed)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

/// The gateways of the database at `path`, which stays as it is; none where there is no database, or one from before there
/// were gateways.
///
/// # Errors
/// What befalls the file.
pub fn gateways_at(path: &Path) -> Result<Gateways, StoreError> {
    let mut gateways = Gateways::default();
    let connection = match open_to_look(path) {
        Ok(connection) => connection,
        Err(StoreError::NoSource { .. }) => return Ok(gateways),
        Err(error) => return Err(error),
    };
    transact::read(&connection, path, |transaction| {
        if schema::version(transaction)? >= schema::WITH_GATEWAYS {
            read_sets(transaction, |set, members| gateways.put(set, members))?;
        }
        Ok(())
    })?;
    Ok(gateways)
}

/// Gives out every set with its members.
pub(crate) fn read_sets(
    transaction: &Transaction<'_>,
    mut take: impl FnMut(Box<[u8]>, Vec<Gateway>),
) -> Result<(), Fault> {
    let mut statement = transaction.prepare(&format!("SELECT {COLUMNS} FROM gateways ORDER BY set_name"))?;
    let mut rows = statement.query(())?;
    let mut set = String::new();
    let mut members = Vec::new();
    while let Some(row) = rows.next()? {
        let of: String = row.get(0)?;
        if of != set && !members.is_empty() {
            take(set.into_bytes().into(), std::mem::take(&mut members));
        }
        set = of;
        members.push(gateway_of(row)?);
    }
    if !members.is_empty() {
        take(set.into_bytes().into(), members);
    }
    Ok(())
}

pub(crate) fn read_set(transaction: &Transaction<'_>, set: &str) -> Result<Vec<Gateway>, Fault> {
    let mut statement = transaction.prepare_cached(&format!("SELECT {COLUMNS} FROM gateways WHERE set_name = ?1"))?;
    let rows = statement.query_and_then([set], gateway_of)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The columns are [`COLUMNS`].
fn gateway_of(row: &Row<'_>) -> rusqlite::Result<Gateway> {
    let uri: String = row.get(1)?;
    Ok(Gateway {
        uri: uri.into_bytes().into(),
        priority: row.get(2)?,
        weight: row.get(3)?,
        capacity: row.get(4)?,
        enabled: row.get(5)?,
    })
}

/// The columns are [`COLUMNS`], the description and the time.
fn listed(row: &Row<'_>) -> rusqlite::Result<ListedGateway> {
    Ok(ListedGateway {
        set: row.get(0)?,
        uri: row.get(1)?,
        priority: row.get(2)?,
        weight: row.get(3)?,
        capacity: row.get(4)?,
        enabled: row.get(5)?,
        description: row.get(6)?,
        created_s: row.get(7)?,
    })
}

fn state_of(transaction: &Transaction<'_>, set: &str, uri: &str) -> Result<Option<ListedGateway>, Fault> {
    let query = format!("SELECT {COLUMNS}, description, created FROM gateways WHERE set_name = ?1 AND uri = ?2");
    Ok(transaction.query_row(&query, [set, uri], listed).optional()?)
}

fn check_room(transaction: &Transaction<'_>, set: &str) -> Result<(), Fault> {
    let mut statement =
        transaction.prepare_cached("SELECT count(*) FILTER (WHERE set_name = ?1), count(*) FROM gateways")?;
    let (of_set, all): (i64, i64) = statement.query_row([set], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let is_full = |rows: i64, most: usize| usize::try_from(rows).is_ok_and(|rows| rows >= most);
    if is_full(of_set, MAX_SET_GATEWAYS) {
        return Err(StoreError::FullSet { set: set.to_owned() }.into());
    }
    if is_full(all, MAX_GATEWAYS) { Err(StoreError::TooManyGateways.into()) } else { Ok(()) }
}

fn check_set(set: &str) -> Result<(), StoreError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=MAX_SET_NAME_LEN).contains(&set.len()) && set.bytes().all(fits) {
        return Ok(());
    }
    Err(StoreError::BadSet { typed: set.to_owned() })
}

fn check_uri(uri: &str) -> Result<(), StoreError> {
    let bad = |reason| Err(StoreError::BadGateway { uri: uri.to_owned(), reason });
    if uri.len() > MAX_URI_LEN {
        return bad("it is longer than 255 bytes");
    }
    if uri.bytes().any(|byte| !byte.is_ascii_graphic() || b"<>\"?".contains(&byte)) {
        return bad("it has a character that no target's URI has; write sip:HOST or sip:HOST:PORT");
    }
    match uri.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("sip") && !rest.is_empty() => Ok(()),
        _ => bad("it is no SIP URI; write sip:HOST or sip:HOST:PORT, as sip:192.0.2.1:5060"),
    }
}

fn check_limits(uri: &str, capacity: Option<u32>, description: &str) -> Result<(), StoreError> {
    let bad = |reason| Err(StoreError::BadGateway { uri: uri.to_owned(), reason });
    if capacity.is_some_and(|calls| !(1..=MAX_CAPACITY).contains(&calls)) {
        return bad("its capacity is not from 1 to 1000000 calls; without one there is no limit");
    }
    if description.chars().count() > MAX_DESCRIPTION_LEN || description.chars().any(char::is_control) {
        return bad("its note is no line of at most 255 characters");
    }
    Ok(())
}

fn unknown(set: &str, uri: &str) -> StoreError {
    StoreError::UnknownGateway { set: set.to_owned(), uri: uri.to_owned() }
}
