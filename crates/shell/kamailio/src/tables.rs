//! The database and its tables.

use std::fmt;
use std::time::Duration;

use strowger_sql::{Database, DatabaseUrl, Row, SqlError};

use crate::dispatcher::{self, Destination, DestinationSet};
use crate::location::Registration;
use crate::subscriber::{Identity, Subscriber};
use crate::versions::{self, Flavor, Table, VersionError};

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Its table.
    pub table: Table,
    /// Which row it is, for people; without secrets.
    pub row: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.table, self.row, self.why)
    }
}

/// A database of Kamailio or OpenSIPS.
pub struct Tables {
    database: Database,
    flavor: Flavor,
}

impl Tables {
    /// Of the database at `url`, to which it connects at the first use; `patience` bounds each wait.
    #[must_use]
    pub fn new(url: &DatabaseUrl, flavor: Flavor, patience: Duration) -> Self {
        Self { database: Database::new(url, patience), flavor }
    }

    /// Whose it is.
    #[must_use]
    pub const fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Looks whether `tables` have versions that are known.
    ///
    /// # Errors
    /// [`VersionError`] of the first that has not.
    pub fn check(&mut self, tables: &[Table]) -> Result<(), VersionError> {
        let versions = versions::read(&mut self.database)?;
        tables.iter().try_for_each(|table| versions::check(self.flavor, *table, &versions))
    }

    /// How many rows the table has.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub fn count(&mut self, table: Table) -> Result<u64, SqlError> {
        let rows = self.database.query(&format!("SELECT count(*) AS n FROM {table}"), &[])?;
        let count = rows.first().map_or(Ok(0), |row| row.integer("n"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Gives each subscriber.
    ///
    /// # Errors
    /// When the database cannot be read to the end.
    pub fn for_each_subscriber(
        &mut self,
        identity: &Identity,
        each: &mut dyn FnMut(Result<Subscriber, BadRow>),
    ) -> Result<(), SqlError> {
        self.database.for_each("SELECT * FROM subscriber", &[], &mut |row| {
            each(Subscriber::read(&row, identity));
            Ok(())
        })
    }

    /// All sets of destinations, each called `prefix` and its number, and the rows that are in none.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn sets(&mut self, prefix: &str) -> Result<(Vec<DestinationSet>, Vec<BadRow>), SqlError> {
        let rows = self.database.query("SELECT * FROM dispatcher ORDER BY setid, id", &[])?;
        Ok(dispatcher::sets(rows.iter().map(|row| Destination::read(row, self.flavor)), prefix))
    }

    /// Gives each contact that is registered, also those that have expired.
    ///
    /// # Errors
    /// When the database cannot be read to the end.
    pub fn for_each_registration(
        &mut self,
        identity: &Identity,
        each: &mut dyn FnMut(Result<Registration, BadRow>),
    ) -> Result<(), SqlError> {
        let now = self.database.now()?;
        self.database.for_each("SELECT * FROM location", &[], &mut |row| {
            each(Registration::read(&row, identity, &now));
            Ok(())
        })
    }
}

/// A text; nothing for NULL, for what is no text, and where there is no such column.
pub(crate) fn text<'r>(row: &'r Row, column: &str) -> Option<&'r str> {
    row.text_or_null(column).ok().flatten()
}
