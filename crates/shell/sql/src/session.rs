//! What each kind of connection does.

use std::time::Duration;

use crate::{Row, SqlError, Value};

/// What is done with each row.
pub(crate) type Each<'e> = &'e mut dyn FnMut(Row) -> Result<(), SqlError>;

/// One connection. After a fault other than `Failed` it is not used again: what it still has to say is not read.
pub(crate) trait Session: Send {
    /// Gives each row to `each` as it comes.
    fn for_each(&mut self, sql: &str, values: &[Value], each: Each<'_>) -> Result<(), Fault>;

    /// How many rows the statement has inserted, changed or deleted.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault>;

    /// Carries out several statements without placeholders.
    fn batch(&mut self, sql: &str) -> Result<(), Fault>;
}

/// Why a connection did not do something; the database is named elsewhere.
#[derive(Debug)]
pub(crate) enum Fault {
    Unreachable(String),
    Refused(String),
    Failed {
        why: String,
        state: Option<String>,
    },
    /// What the caller's own closure said, or a value that cannot be read.
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
