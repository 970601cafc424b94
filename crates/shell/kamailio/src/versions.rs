//! Supported versions of the tables.

use std::collections::BTreeMap;
use std::fmt;

use strowger_sql::{Database, SqlError};

/// The server a database belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// Kamailio 5.0 to 6.0.
    Kamailio,
    /// OpenSIPS 2.4 to 3.6.
    OpenSips,
}

impl Flavor {
    /// Returns the supported versions of a table.
    #[must_use]
    pub const fn supported_versions(self, table: Table) -> &'static [i64] {
        match (self, table) {
            (Self::Kamailio, Table::Subscriber) => &[6, 7],
            (Self::Kamailio, Table::Location) => &[8, 9],
            (Self::Kamailio, Table::Dispatcher) => &[4],
            (Self::OpenSips, Table::Subscriber) => &[7, 8],
            (Self::OpenSips, Table::Location) => &[1011, 1012, 1013],
            (Self::OpenSips, Table::Dispatcher) => &[8, 9],
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kamailio => "Kamailio",
            Self::OpenSips => "OpenSIPS",
        })
    }
}

/// A table that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Users who may register and call.
    Subscriber,
    /// Destinations of calls.
    Dispatcher,
    /// Registrations.
    Location,
}

impl Table {
    /// Returns its name in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Subscriber => "subscriber",
            Self::Dispatcher => "dispatcher",
            Self::Location => "location",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why tables cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// A query failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// A table's version is not supported.
    #[error(
        "the table {table} has version {found}, and of {flavor} only {known} is supported; check that its columns still have the same meaning, then \
         say that the version may be another one"
    )]
    Unknown {
        /// Configured server.
        flavor: Flavor,
        /// The table.
        table: Table,
        /// Its version.
        found: i64,
        /// Supported versions.
        known: String,
    },
    /// The database has no version of a table.
    #[error("the table version has no row for {table}, so this is not a database of {flavor} with that table")]
    Absent {
        /// Configured server.
        flavor: Flavor,
        /// The table.
        table: Table,
    },
}

/// Reads the table `version`.
pub(crate) fn read(database: &mut Database) -> Result<BTreeMap<String, i64>, SqlError> {
    let rows = database.query("SELECT table_name, table_version FROM version", &[])?;
    rows.iter().map(|row| Ok((row.text("table_name")?.to_owned(), row.integer("table_version")?))).collect()
}

/// Rejects an unsupported version.
pub(crate) fn check(flavor: Flavor, table: Table, versions: &BTreeMap<String, i64>) -> Result<(), VersionError> {
    let found = *versions.get(table.name()).ok_or(VersionError::Absent { flavor, table })?;
    let known = flavor.supported_versions(table);
    if known.contains(&found) {
        return Ok(());
    }
    let known: Vec<String> = known.iter().map(i64::to_string).collect();
    Err(VersionError::Unknown { flavor, table, found, known: known.join(" or ") })
}
