//! Which versions of the tables are known.

use std::collections::BTreeMap;
use std::fmt;

use strowger_sql::{Database, SqlError};

/// Whose database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// Kamailio's, as of 5.0 to 6.0.
    Kamailio,
    /// That of OpenSIPS, as of 2.4 to 3.6.
    OpenSips,
}

impl Flavor {
    /// The versions of a table that are read as this program means to.
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
    /// Who may register and call.
    Subscriber,
    /// Where calls go.
    Dispatcher,
    /// Who is registered.
    Location,
}

impl Table {
    /// Its name in the database.
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

/// Why tables are not read.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The database cannot be asked.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// A table has a version that is not known.
    #[error(
        "the table {table} has version {found}, and of {flavor} only {known} is known here; see whether its columns still mean the same, then \
         say that the version may be another one"
    )]
    Unknown {
        /// Whose it should be.
        flavor: Flavor,
        /// The table.
        table: Table,
        /// Its version.
        found: i64,
        /// The known ones.
        known: String,
    },
    /// The database says no version of a table.
    #[error("the table version says nothing of {table}, so this is no database of {flavor} that has it")]
    Absent {
        /// Whose it should be.
        flavor: Flavor,
        /// The table.
        table: Table,
    },
}

/// What the table `version` says of each table.
pub(crate) fn read(database: &mut Database) -> Result<BTreeMap<String, i64>, SqlError> {
    let rows = database.query("SELECT table_name, table_version FROM version", &[])?;
    rows.iter().map(|row| Ok((row.text("table_name")?.to_owned(), row.integer("table_version")?))).collect()
}

/// Refuses a version that is not known.
pub(crate) fn check(flavor: Flavor, table: Table, versions: &BTreeMap<String, i64>) -> Result<(), VersionError> {
    let found = *versions.get(table.name()).ok_or(VersionError::Absent { flavor, table })?;
    let known = flavor.supported_versions(table);
    if known.contains(&found) {
        return Ok(());
    }
    let known: Vec<String> = known.iter().map(i64::to_string).collect();
    Err(VersionError::Unknown { flavor, table, found, known: known.join(" or ") })
}
