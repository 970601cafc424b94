//! Either storage backend.

use crate::backend::{Backend, Sql, Transact};
use crate::error::Fault;
use crate::sqlite_file::SqliteFile;
use crate::{SharedDatabase, StoreError, UserStore};

/// Either backend, for callers that support both.
#[derive(Debug)]
pub enum AnyBackend {
    /// A file.
    File(SqliteFile),
    /// A shared database.
    Shared(SharedDatabase),
}

impl Backend for AnyBackend {}

impl Transact for AnyBackend {
    fn read<T>(&mut self, job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        match self {
            Self::File(file) => file.read(job),
            Self::Shared(shared) => shared.read(job),
        }
    }

    fn write<T>(&mut self, job: impl FnMut(&mut dyn Sql) -> Result<T, Fault>) -> Result<T, StoreError> {
        match self {
            Self::File(file) => file.write(job),
            Self::Shared(shared) => shared.write(job),
        }
    }
}

impl From<UserStore<SqliteFile>> for UserStore<AnyBackend> {
    fn from(store: UserStore<SqliteFile>) -> Self {
        Self { backend: AnyBackend::File(store.backend) }
    }
}

impl From<UserStore<SharedDatabase>> for UserStore<AnyBackend> {
    fn from(store: UserStore<SharedDatabase>) -> Self {
        Self { backend: AnyBackend::Shared(store.backend) }
    }
}
