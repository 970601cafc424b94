//! What can fail, by who is to blame.

/// Why a database did not do what it was asked. None shows a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// It cannot be reached, or it stopped answering. What was being written may or may not have been.
    #[error("the database {database} cannot be reached: {why}; see whether it runs there")]
    Unreachable {
        /// Its URL without the password.
        database: String,
        /// What happened.
        why: String,
    },
    /// It does not take this user, password or database's name.
    #[error(
        "the database {database} refuses the connection: {why}; see the user, the password and the database's name"
    )]
    Refused {
        /// Its URL without the password.
        database: String,
        /// What it says.
        why: String,
    },
    /// It takes no writes, for it follows another one.
    #[error("the database {database} takes no writes; name the server that does, or all of them in a list")]
    ReadOnly {
        /// Its URL without the password.
        database: String,
    },
    /// It did not carry out a statement.
    #[error("the database {database} failed: {why}")]
    Failed {
        /// Its URL without the password.
        database: String,
        /// What it says.
        why: String,
        /// The SQLSTATE of servers that tell one, as `23505`.
        state: Option<String>,
    },
    /// A value is not what was expected there.
    #[error("the column {column} cannot be read: {why}")]
    Unreadable {
        /// The column's name.
        column: String,
        /// What is wrong with it.
        why: String,
    },
}

impl SqlError {
    /// Whether the database may answer when it is asked again later.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    pub(crate) fn unreadable(column: &str, why: impl Into<String>) -> Self {
        Self::Unreadable { column: column.to_owned(), why: why.into() }
    }
}
