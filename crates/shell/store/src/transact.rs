//! Transactions of all SQLite stores.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::Fault;
use crate::{StoreError, schema};

/// Runs `job`, whose reads see one state of the database.
pub(crate) fn read<T>(
    connection: &Connection,
    path: &Path,
    job: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let run = || {
        let transaction = connection.unchecked_transaction()?;
        schema::check_version(&transaction)?;
        let result = job(&transaction)?;
        transaction.finish()?;
        Ok(result)
    };
    run().map_err(|fault: Fault| fault.at(path))
}

/// Runs `job`, whose writes take effect as a whole or not at all; they are synced when this returns.
pub(crate) fn write<T>(
    connection: &mut Connection,
    path: &Path,
    job: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let run = || {
        // Immediate, because a read transaction that starts to write cannot wait for another writer.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        schema::check_version(&transaction)?;
        let result = job(&transaction)?;
        transaction.commit()?;
        Ok(result)
    };
    run().map_err(|fault: Fault| fault.at(path))
}
