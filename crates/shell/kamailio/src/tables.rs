//! The database and its tables.

use std::time::Duration;

use strowger_sql::{Database, DatabaseUrl, SqlError};

use crate::dispatcher::{self, Destination, DestinationSet};
use crate::location::Registration;
use crate::row::BadRow;
use crate::subscriber::{Identity, Subscriber};
use crate::versions::{self, Flavor, Table, VersionError};

/// A database of Kamailio or OpenSIPS.
pub struct Tables {
    database: Database,
    flavor: Flavor,
}

impl Tables {
    /// Creates access to the database at `url`, which connects on first use. Each wait is limited by the timeout.
    #[must_use]
    pub fn new(url: &DatabaseUrl, flavor: Flavor, patience: Duration) -> Self {
        Self { database: Database::new(url, patience), flavor }
    }

    /// Returns whether the database is Kamailio's or OpenSIPS's.
    #[must_use]
    pub const fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Checks that the versions of `tables` are supported.
    ///
    /// # Errors
    /// [`VersionError`] of the first that is not.
    pub fn check(&mut self, tables: &[Table]) -> Result<(), VersionError> {
        let versions = versions::read(&mut self.database)?;
        tables.iter().try_for_each(|table| versions::check(self.flavor, *table, &versions))
    }

    /// Returns the number of rows of a table.
    ///
    /// # Errors
    /// If the query fails.
    pub fn count(&mut self, table: Table) -> Result<u64, SqlError> {
        let rows = self.database.query(&format!("SELECT count(*) AS n FROM {table}"), &[])?;
        let count = rows.first().map_or(Ok(0), |row| row.integer("n"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Passes each subscriber to the closure.
    ///
    /// # Errors
    /// If the table cannot be read to the end.
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

    /// Returns all destination sets, named `prefix` and number, and the rows that are in none.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn sets(&mut self, prefix: &str) -> Result<(Vec<DestinationSet>, Vec<BadRow>), SqlError> {
        let rows = self.database.query("SELECT * FROM dispatcher ORDER BY setid, id", &[])?;
        Ok(dispatcher::sets(rows.iter().map(|row| Destination::read(row, self.flavor)), prefix))
    }

    /// Passes each registered contact to the closure, including expired ones.
    ///
    /// # Errors
    /// If the table cannot be read to the end.
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
