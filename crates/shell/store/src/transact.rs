//! Transactions, as every store here makes them.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::Fault;
use crate::{StoreError, schema};

/// All reads of `job` see one state of the database.
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

/// All writes of `job` happen, or none; when this returns they are on the disk.
pub(crate) fn write<T>(
    connection: &mut Connection,
    path: &Path,
    job: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let run = || {
        // At once, because a read that becomes a write cannot wait for another writer.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        schema::check_version(&transaction)?;
        let result = job(&transaction)?;
        transaction.commit()?;
        Ok(result)
    };
    run().map_err(|fault: Fault| fault.at(path))
}
