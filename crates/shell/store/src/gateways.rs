//! Gateways in the database: rows that commands write and servers read as sets.

use std::path::Path;

use rusqlite::{Row, Transaction};
use strowger_directory::{Gateway, Gateways};
use strowger_sql::Value;

use crate::backend::{Sql, SqlRow};
use crate::backup::open_read_only;
use crate::error::Fault;
use crate::limits::{MAX_GATEWAYS, MAX_SET_GATEWAYS, MAX_SET_NAME_LEN};
use crate::{Backend, StoreError, UserStore, schema, transact};

/// Maximum length of a URI, in bytes.
pub const MAX_URI_LEN: usize = 255;
/// Maximum length of a description, in characters.
pub const MAX_DESCRIPTION_LEN: usize = 255;
/// Maximum capacity, in calls.
pub const MAX_CAPACITY: u32 = 1_000_000;

const COLUMNS: &str = "set_name, uri, priority, weight, capacity, enabled";
const ENTRY_COLUMNS: &str = "set_name, uri, priority, weight, capacity, enabled, description, created";

/// Gateway for [`UserStore::add_gateway`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGateway<'a> {
    /// SIP URI of the gateway. The caller has parsed it; here it is only checked for characters that no such URI has.
    pub uri: &'a str,
    /// Priority; lower first.
    pub priority: u16,
    /// Share among gateways of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls, 1 to [`MAX_CAPACITY`]; `None` for no limit.
    pub capacity: Option<u32>,
    /// Description for people; may be empty.
    pub description: &'a str,
    /// Whether it takes calls.
    pub enabled: bool,
}

/// Fields for [`UserStore::change_gateway`]; only those that are `Some` change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayChange<'a> {
    /// The priority.
    pub priority: Option<u16>,
    /// The weight.
    pub weight: Option<u16>,
    /// The capacity; inner `None` for no limit.
    pub capacity: Option<Option<u32>>,
    /// The description.
    pub description: Option<&'a str>,
    /// Whether it takes calls.
    pub enabled: Option<bool>,
}

/// A gateway as listed by [`UserStore::list_gateways`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEntry {
    /// Its set.
    pub set: String,
    /// Its SIP URI.
    pub uri: String,
    /// Priority; lower first.
    pub priority: u16,
    /// Share among gateways of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls; `None` for no limit.
    pub capacity: Option<u32>,
    /// Whether it takes calls.
    pub enabled: bool,
    /// Description for people.
    pub description: String,
    /// When it was added, in seconds since 1970.
    pub created_s: i64,
}

impl<P: Backend> UserStore<P> {
    /// Adds a gateway to a set. The first gateway creates the set.
    ///
    /// # Errors
    /// [`StoreError::BadSet`], [`StoreError::BadGateway`], [`StoreError::DuplicateGateway`], [`StoreError::FullSet`],
    /// [`StoreError::TooManyGateways`]; file errors.
    pub fn add_gateway(&mut self, set: &str, gateway: &NewGateway<'_>) -> Result<(), StoreError> {
        let NewGateway { uri, priority, weight, capacity, description, enabled } = *gateway;
        check_set(set)?;
        check_uri(uri)?;
        check_limits(uri, capacity, description)?;
        self.backend.write(|sql| {
            if state_of(sql, set, uri)?.is_some() {
                return Err(StoreError::DuplicateGateway { set: set.to_owned(), uri: uri.to_owned() }.into());
            }
            check_room(sql, set)?;
            let insert = format!(
                "INSERT INTO {} (set_name, uri, priority, weight, capacity, description, enabled) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
                sql.tables().gateways
            );
            let [priority, weight, capacity] = numbers(priority, weight, capacity);
            let (description, enabled) = (description.into(), i64::from(enabled).into());
            sql.execute(&insert, &[set.into(), uri.into(), priority, weight, capacity, description, enabled])?;
            Ok(())
        })
    }

    /// Changes a gateway of a set. Writes nothing if nothing changes.
    ///
    /// # Errors
    /// [`StoreError::BadSet`], [`StoreError::BadGateway`], [`StoreError::UnknownGateway`]; file errors.
    pub fn change_gateway(&mut self, set: &str, uri: &str, change: &GatewayChange<'_>) -> Result<(), StoreError> {
        let GatewayChange { priority, weight, capacity, description, enabled } = *change;
        check_set(set)?;
        check_limits(uri, capacity.flatten(), description.unwrap_or_default())?;
        self.backend.write(|sql| {
            let Some(old) = state_of(sql, set, uri)? else { return Err(unknown(set, uri).into()) };
            let new = GatewayEntry {
                priority: priority.unwrap_or(old.priority),
                weight: weight.unwrap_or(old.weight),
                capacity: capacity.unwrap_or(old.capacity),
                enabled: enabled.unwrap_or(old.enabled),
                description: description.map_or_else(|| old.description.clone(), str::to_owned),
                ..old.clone()
            };
            if new != old {
                let update = format!(
                    "UPDATE {} SET priority = ?, weight = ?, capacity = ?, enabled = ?, description = ? \
                     WHERE set_name = ? AND uri = ?",
                    sql.tables().gateways
                );
                let [priority, weight, capacity] = numbers(new.priority, new.weight, new.capacity);
                let (enabled, description) = (i64::from(new.enabled).into(), new.description.into());
                sql.execute(&update, &[priority, weight, capacity, enabled, description, set.into(), uri.into()])?;
            }
            Ok(())
        })
    }

    /// Removes a gateway from a set. The set ends with its last gateway.
    ///
    /// # Errors
    /// [`StoreError::BadSet`], [`StoreError::UnknownGateway`]; file errors.
    pub fn remove_gateway(&mut self, set: &str, uri: &str) -> Result<(), StoreError> {
        check_set(set)?;
        self.backend.write(|sql| {
            let delete = format!("DELETE FROM {} WHERE set_name = ? AND uri = ?", sql.tables().gateways);
            match sql.execute(&delete, &[set.into(), uri.into()])? {
                0 => Err(unknown(set, uri).into()),
                _ => Ok(()),
            }
        })
    }

    /// Returns the gateways of one set or of all, ordered by set, priority and URI.
    ///
    /// # Errors
    /// [`StoreError::BadSet`]; file errors.
    pub fn list_gateways(&mut self, set: Option<&str>) -> Result<Vec<GatewayEntry>, StoreError> {
        set.map_or(Ok(()), check_set)?;
        self.backend.read(|sql| {
            let of_set = if set.is_some() { "WHERE set_name = ?" } else { "" };
            let query = format!(
                "SELECT {ENTRY_COLUMNS} FROM {} {of_set} ORDER BY set_name, priority, uri",
                sql.tables().gateways
            );
            let values: Vec<Value> = set.map(Value::from).into_iter().collect();
            sql.query(&query, &values)?.iter().map(gateway_entry).collect()
        })
    }
}

/// Reads the gateways of the database at `path` without changing it. Returns none if there is no database, or if its
/// schema has no gateways.
///
/// # Errors
/// File errors.
pub fn gateways_at(path: &Path) -> Result<Gateways, StoreError> {
    let mut gateways = Gateways::default();
    let connection = match open_read_only(path) {
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

/// Passes every set with its members to the closure.
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

/// The columns are [`ENTRY_COLUMNS`].
fn gateway_entry(row: &SqlRow) -> Result<GatewayEntry, Fault> {
    Ok(GatewayEntry {
        set: row.text(0)?,
        uri: row.text(1)?,
        priority: row.number(2)?,
        weight: row.number(3)?,
        capacity: row.number_or_null(4)?,
        enabled: row.boolean(5)?,
        description: row.text(6)?,
        created_s: row.number(7)?,
    })
}

fn state_of(sql: &mut dyn Sql, set: &str, uri: &str) -> Result<Option<GatewayEntry>, Fault> {
    let query = format!("SELECT {ENTRY_COLUMNS} FROM {} WHERE set_name = ? AND uri = ?", sql.tables().gateways);
    sql.query(&query, &[set.into(), uri.into()])?.first().map(gateway_entry).transpose()
}

fn numbers(priority: u16, weight: u16, capacity: Option<u32>) -> [Value; 3] {
    [i64::from(priority).into(), i64::from(weight).into(), capacity.map(i64::from).into()]
}

fn check_room(sql: &mut dyn Sql, set: &str) -> Result<(), Fault> {
    let gateways = sql.tables().gateways;
    let mut count = |of: &str, values: &[Value]| -> Result<usize, Fault> {
        let rows = sql.query(&format!("SELECT count(*) FROM {gateways} {of}"), values)?;
        rows.first().ok_or(Fault::Unexpected)?.number(0)
    };
    if count("WHERE set_name = ?", &[set.into()])? >= MAX_SET_GATEWAYS {
        return Err(StoreError::FullSet { set: set.to_owned() }.into());
    }
    if count("", &[])? >= MAX_GATEWAYS { Err(StoreError::TooManyGateways.into()) } else { Ok(()) }
}

pub(crate) fn check_set(set: &str) -> Result<(), StoreError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=MAX_SET_NAME_LEN).contains(&set.len()) && set.bytes().all(fits) {
        return Ok(());
    }
    Err(StoreError::BadSet { typed: set.to_owned() })
}

pub(crate) fn check_uri(uri: &str) -> Result<(), StoreError> {
    let bad = |reason| Err(StoreError::BadGateway { uri: uri.to_owned(), reason });
    if uri.len() > MAX_URI_LEN {
        return bad("it is longer than 255 bytes");
    }
    if uri.bytes().any(|byte| !byte.is_ascii_graphic() || b"<>\"?".contains(&byte)) {
        return bad("it has a character that is not allowed in a target's URI; write sip:HOST or sip:HOST:PORT");
    }
    match uri.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("sip") && !rest.is_empty() => Ok(()),
        _ => bad("it is not a SIP URI; write sip:HOST or sip:HOST:PORT, such as sip:192.0.2.1:5060"),
    }
}

pub(crate) fn check_limits(uri: &str, capacity: Option<u32>, description: &str) -> Result<(), StoreError> {
    let bad = |reason| Err(StoreError::BadGateway { uri: uri.to_owned(), reason });
    if capacity.is_some_and(|calls| !(1..=MAX_CAPACITY).contains(&calls)) {
        return bad("its capacity is not from 1 to 1000000 calls; omit it for no limit");
    }
    if description.chars().count() > MAX_DESCRIPTION_LEN || description.chars().any(char::is_control) {
        return bad("its note is not one line of at most 255 characters");
    }
    Ok(())
}

fn unknown(set: &str, uri: &str) -> StoreError {
    StoreError::UnknownGateway { set: set.to_owned(), uri: uri.to_owned() }
}
