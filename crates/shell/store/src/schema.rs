//! Schema versions. `PRAGMA user_version` is the number of migrations applied.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::Fault;
use crate::migrations::{LATEST, MIGRATIONS};

/// First schema version with registrations and settings.
pub(crate) const WITH_LOCATIONS: i64 = 2;

/// First schema version with gateways.
pub(crate) const WITH_GATEWAYS: i64 = 3;

/// `PRAGMA application_id`: "Strg".
const APPLICATION_ID: i64 = 0x5374_7267;

/// Migrates the file to the latest schema.
///
/// Refuses a file of another program before writing anything to it.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    migrate_with(connection, &MIGRATIONS)
}

/// Refuses a file of another program or of a newer version of this one.
pub(crate) fn check_origin(connection: &Connection) -> Result<(), Fault> {
    // One transaction, because another process may be creating the schema.
    let transaction = connection.unchecked_transaction()?;
    let application_id = application_id(&transaction)?;
    if application_id == APPLICATION_ID {
        return check_version(&transaction);
    }
    let objects: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    if application_id == 0 && version(&transaction)? == 0 && objects == 0 { Ok(()) } else { Err(Fault::Foreign) }
}

/// Refuses anything but a database created by this version of the program or an older one.
pub(crate) fn check_ours(connection: &Connection) -> Result<(), Fault> {
    let transaction = connection.unchecked_transaction()?;
    if application_id(&transaction)? != APPLICATION_ID {
        return Err(Fault::Foreign);
    }
    check_version(&transaction)
}

/// Refuses a file of another program; accepts any version of this one.
pub(crate) fn check_not_foreign(connection: &Connection) -> Result<(), Fault> {
    match check_origin(connection) {
        Err(Fault::NewerSchema { .. }) => Ok(()),
        result => result,
    }
}

/// Refuses a newer schema. Checked in each transaction, because another process may migrate while this one runs.
pub(crate) fn check_version(connection: &Connection) -> Result<(), Fault> {
    let found = version(connection)?;
    if found > LATEST { Err(Fault::NewerSchema { found }) } else { Ok(()) }
}

fn migrate_with(connection: &mut Connection, migrations: &[&str]) -> Result<(), Fault> {
    if pending(connection, migrations)?.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    run_pending(&transaction, migrations)?;
    transaction.commit()?;
    Ok(())
}

/// Runs the pending migrations. Checks again which are pending, since another process may have got the lock first.
fn run_pending(transaction: &Transaction<'_>, migrations: &[&str]) -> Result<(), Fault> {
    for migration in pending(transaction, migrations)? {
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", version(transaction)? + 1)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    Ok(())
}

fn pending<'a>(connection: &Connection, migrations: &'a [&'a str]) -> Result<&'a [&'a str], Fault> {
    let found = version(connection)?;
    usize::try_from(found).ok().and_then(|seen| migrations.get(seen..)).ok_or(Fault::NewerSchema { found })
}

fn application_id(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.pragma_query_value(None, "application_id", |row| row.get(0))?)
}

/// Returns the number of migrations applied.
pub(crate) fn version(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [&str; 2] = ["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y; INSERT INTO a VALUES (1, 2)"];

    #[test]
    fn migrations_run_once_each_and_in_order() {
        let mut connection = Connection::open_in_memory().expect("memory");
        migrate_with(&mut connection, &TWO[..1]).expect("the first");
        assert_eq!(version(&connection).expect("version"), 1);
        for _ in 0..2 {
            migrate_with(&mut connection, &TWO).expect("the second, once");
            assert_eq!(version(&connection).expect("version"), 2);
        }
        let rows: i64 = connection.query_row("SELECT count(*) FROM a", (), |row| row.get(0)).expect("rows");
        assert_eq!(rows, 1);
        assert!(matches!(migrate_with(&mut connection, &TWO[..1]), Err(Fault::NewerSchema { found: 2 })));
    }

    #[test]
    fn a_failed_migration_leaves_nothing() {
        let mut connection = Connection::open_in_memory().expect("memory");
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (x); INSERT INTO nowhere VALUES (1)"];
        assert!(matches!(migrate_with(&mut connection, &broken), Err(Fault::Sql(_))));
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0)).expect("count");
        assert_eq!((tables, version(&connection).expect("version")), (0, 0));
    }
}
