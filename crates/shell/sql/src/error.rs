//! Errors, by who has to act.

/// Error of a database operation. Never shows a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// It cannot be reached or stopped answering. A write in progress may or may not have taken effect.
    #[error("the database {database} cannot be reached: {why}; check that it is running")]
    Unreachable {
        /// Its URL without the password.
        database: String,
        /// Cause.
        why: String,
    },
    /// It rejects the user, the password or the database name.
    #[error(
        "the database {database} refuses the connection: {why}; check the user, the password and the database name"
    )]
    Refused {
        /// Its URL without the password.
        database: String,
        /// Its message.
        why: String,
    },
    /// It is read-only because it is a replica.
    #[error("the database {database} is read-only; configure the writable server, or list all servers")]
    ReadOnly {
        /// Its URL without the password.
        database: String,
    },
    /// A statement failed.
    #[error("the database {database} failed: {why}")]
    Failed {
        /// Its URL without the password.
        database: String,
        /// Its message.
        why: String,
        /// SQLSTATE, if the server returns one, such as `23505`.
        state: Option<String>,
    },
    /// A value has an unexpected type or content.
    #[error("the column {column} cannot be read: {why}")]
    Unreadable {
        /// Name of the column.
        column: String,
        /// What is wrong with it.
        why: String,
    },
}

impl SqlError {
    /// Whether a later retry may succeed.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    pub(crate) fn unreadable(column: &str, why: impl Into<String>) -> Self {
        Self::Unreadable { column: column.to_owned(), why: why.into() }
    }
}
