//! Interface of the connections.

use std::time::Duration;

use crate::{Row, SqlError, Value};

/// Callback for each row.
pub(crate) type Each<'e> = &'e mut dyn FnMut(Row) -> Result<(), SqlError>;

/// A connection. After a fault other than `Failed` it is not used again, because unread replies may remain.
pub(crate) trait Session: Send {
    /// Passes each row to `each` as it arrives.
    fn for_each(&mut self, sql: &str, values: &[Value], each: Each<'_>) -> Result<(), Fault>;

    /// Executes a statement and returns the number of rows inserted, changed or deleted.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault>;

    /// Executes several statements without placeholders.
    fn batch(&mut self, sql: &str) -> Result<(), Fault>;
}

/// Error of a connection, without the database's name.
#[derive(Debug)]
pub(crate) enum Fault {
    Unreachable(String),
    Refused(String),
    Failed {
        why: String,
        state: Option<String>,
    },
    /// An error of the caller's closure, or an unreadable value.
    Other(SqlError),
}

impl Fault {
    pub(crate) fn timeout(patience: Duration) -> Self {
        Self::Unreachable(format!("it has not answered for {} s", patience.as_secs_f32()))
    }

    pub(crate) fn of(self, database: String) -> SqlError {
        match self {
            Self::Unreachable(why) => SqlError::Unreachable { database, why },
            Self::Refused(why) => SqlError::Refused { database, why },
            Self::Failed { why, state } => SqlError::Failed { database, why, state },
            Self::Other(error) => error,
        }
    }
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Self::Other(error)
    }
}
