//! Operations on users and gateways in the database, for the commands and for the API.

mod gateways;
mod users;

use std::fmt;
use std::path::{Path, PathBuf};

use strowger_administration::Refusal;
use strowger_control::config::Config;
use strowger_control::config::values::StoreUrl;
use strowger_store::{AnyBackend, StoreError, UserStore};

use crate::failure::Failure;

pub(crate) use gateways::GatewayOperations;
pub(crate) use users::UserOperations;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum OperationError {
    /// The database, or what is in it.
    Store(StoreError),
    /// There is no database.
    NoDatabase(String),
    /// The configuration names no database.
    NotStored(String),
    /// A value cannot be used.
    Invalid { field: &'static str, why: String },
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::NoDatabase(why) | Self::NotStored(why) | Self::Invalid { why, .. } => f.write_str(why),
        }
    }
}

impl From<StoreError> for OperationError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Store(error) => error.into(),
            OperationError::NoDatabase(why) => Self::No(why),
            OperationError::NotStored(why) | OperationError::Invalid { why, .. } => Self::Usage(why),
        }
    }
}

impl From<OperationError> for Refusal {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Store(error) => of_store(&error),
            OperationError::NoDatabase(why) => Self::NotFound(why),
            OperationError::NotStored(why) => Self::Conflict(why),
            OperationError::Invalid { field, why } => Self::Invalid { field: Some(field), why },
        }
    }
}

/// Says what kind of refusal an error of the database is.
fn of_store(error: &StoreError) -> Refusal {
    let why = error.to_string();
    let invalid = |field| Refusal::Invalid { field: Some(field), why: why.clone() };
    match error {
        StoreError::UnknownUser { .. } | StoreError::UnknownAlias { .. } | StoreError::UnknownGateway { .. } => {
            Refusal::NotFound(why)
        }
        StoreError::DuplicateUser { .. }
        | StoreError::UserIsAlias { .. }
        | StoreError::DuplicateAlias { .. }
        | StoreError::AliasIsUser { .. }
        | StoreError::AliasOfAlias { .. }
        | StoreError::DuplicateGateway { .. }
        | StoreError::FullSet { .. }
        | StoreError::TooManyGateways => Refusal::Conflict(why),
        StoreError::BadAddress { .. } => invalid("aor"),
        StoreError::BadPassword { .. } => invalid("password"),
        StoreError::BadRealm { .. } => Refusal::Failed(why),
        StoreError::BadSet { .. } => invalid("set"),
        StoreError::BadGateway { .. } => Refusal::Invalid { field: None, why },
        StoreError::Locked { .. } | StoreError::Shared(_) => Refusal::Busy(why),
        _ => Refusal::Failed(why),
    }
}

/// The database where users and gateways are written.
struct Database<'a> {
    config: &'a Config,
    /// What it has, for messages: `users` or `gateways`, and the command that adds one.
    what: (&'static str, &'static str),
}

impl Database<'_> {
    /// Opens the existing database. Only adding creates one: a command in the wrong folder must not.
    fn open(&self) -> Result<UserStore<AnyBackend>, OperationError> {
        if let Some(path) = self.path_of_new()? {
            let (what, command) = self.what;
            return Err(OperationError::NoDatabase(format!(
                "there are no {what} at {}; add one with `strowger {command} add`, change to the server's folder, or give \
                 its configuration with -c",
                path.display()
            )));
        }
        self.open_or_make()
    }

    fn open_or_make(&self) -> Result<UserStore<AnyBackend>, OperationError> {
        if !self.config.store.shared_users.is_any() {
            return Ok(UserStore::connect(&self.config.shared_users())?.into());
        }
        Ok(UserStore::open(self.path()?)?.into())
    }

    /// Returns the path of the database to be created, if none exists.
    fn path_of_new(&self) -> Result<Option<PathBuf>, OperationError> {
        if !self.config.store.shared_users.is_any() {
            return Ok(None);
        }
        let path = self.path()?;
        Ok((!path.exists()).then(|| absolute(&path)))
    }

    fn path(&self) -> Result<PathBuf, OperationError> {
        match self.config.store_url() {
            StoreUrl::Sqlite(path) => Ok(path),
            StoreUrl::Memory => {
                let what = self.what.0;
                Err(OperationError::NotStored(format!(
                    "store.url is memory:, so {what} cannot be stored; write url = \"sqlite:data/strowger.db\", or leave it out"
                )))
            }
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
