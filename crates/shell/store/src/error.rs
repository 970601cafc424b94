//! Errors of the store, who has to act, and how.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::AddressError;
use crate::limits::{MAX_GATEWAYS, MAX_SET_GATEWAYS, MAX_SET_NAME_LEN};

/// Error of the store. Each message says what to do next; none shows a password or a hash.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database's directory is missing and cannot be created.
    #[error("the folder {path} cannot be created: {cause}; create it, or choose another path for the users database")]
    Folder {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file cannot be created.
    #[error("the users database {path} cannot be created: {cause}; give this user write permission on its folder")]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file or its directory cannot be read and written.
    #[error(
        "the users database {path} cannot be opened for reading and writing; the user that runs this program needs both \
         rights to the file, and to its folder (SQLite keeps {path}-wal and {path}-shm beside it)"
    )]
    Permission {
        /// The file.
        path: PathBuf,
    },
    /// Everybody on this machine may read the hashes, and this user may not change that.
    #[error(
        "the users database {path} is accessible to everybody on this machine ({cause}); `chmod o= {path}` as its owner"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Why its mode could not be changed.
        cause: io::Error,
    },
    /// The path is a directory or a device.
    #[error("{path} is not a file; name the file of the users database")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is not a SQLite file.
    #[error("{path} is not a database; move it away, or name another file for the users database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is a SQLite file of another program.
    #[error("{path} is the database of another program; name another file for the users database")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "the users database {path} is damaged; restore a backup, or save what can be read: sqlite3 {path} .recover"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A row that violates the schema's constraints.
    #[error("the users database has a bad row: {column} of {key:?}; correct it, or remove the row and add it again")]
    BadRow {
        /// Address in the row.
        key: String,
        /// Wrong column.
        column: &'static str,
    },
    /// Another process holds the write lock too long.
    #[error(
        "another process keeps the users database {path} locked; find it with `fuser {path}`, wait for it to finish, then try again"
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of this program wrote the database.
    #[error(
        "the users database {path} has schema {found}, written by a newer version of this program; this one knows schemas \
         up to {known}: upgrade it, or restore the backup from before the upgrade"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Schema version of the file.
        found: i64,
        /// Latest version that this program supports.
        known: i64,
    },
    /// The disk is full.
    #[error("no room on the disk of the users database {path}; make some, then try again (nothing was changed)")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Reading or writing failed below SQLite.
    #[error("the users database {path} cannot be read or written: {cause}; look for errors of its disk")]
    Disk {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        cause: rusqlite::Error,
    },
    /// The target of a backup or a restore exists.
    #[error("{path} exists; name another file, or allow it to be replaced")]
    TargetExists {
        /// The file.
        path: PathBuf,
    },
    /// A process has the database open that should be replaced.
    #[error("the users database {path} is in use; stop the server (and whatever `fuser {path}` shows), then try again")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// There is no database to copy.
    #[error("there is no file {path}; name the database, or a backup of it")]
    NoSource {
        /// The file.
        path: PathBuf,
    },
    /// A file of a backup cannot be created, synced or renamed.
    #[error("{path} cannot be {doing}: {cause}; check the permissions of its folder and the disk, then try again")]
    File {
        /// The file.
        path: PathBuf,
        /// Failed operation, such as "synced".
        doing: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// An expiry that does not fit a row.
    #[error("the registration of {aor:?} has an expiry that cannot be stored; please report it")]
    BadExpiry {
        /// The address.
        aor: String,
    },
    /// A setting that the store uses itself.
    #[error("the setting {key:?} is the store's own; please report it")]
    ReservedSetting {
        /// The setting.
        key: String,
    },
    /// An invalid address of record.
    #[error("{typed:?} is not a valid address: {fault}; write user@domain, such as alice@example.com")]
    BadAddress {
        /// The input.
        typed: String,
        /// What is wrong with it.
        fault: AddressError,
    },
    /// A realm that cannot be used in a challenge.
    #[error("this is not a valid realm: {reason}; use a domain, such as example.com")]
    BadRealm {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A password that no phone could send.
    #[error("this is not a valid password: {reason}")]
    BadPassword {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The user exists already.
    #[error("{aor} already exists; `strowger user passwd` changes the password")]
    DuplicateUser {
        /// The user.
        aor: String,
    },
    /// There is no such user.
    #[error("there is no user {aor}; `strowger user list` shows all, `strowger user add` adds one")]
    UnknownUser {
        /// The address.
        aor: String,
    },
    /// A new user's address is an alias.
    #[error("{alias} is an alias of {aor}; remove the alias to create a user with this address")]
    UserIsAlias {
        /// The address.
        alias: String,
        /// Its user.
        aor: String,
    },
    /// The alias exists already.
    #[error("{alias} is already an alias of {aor}; remove it first to assign it to another user")]
    DuplicateAlias {
        /// The alias.
        alias: String,
        /// Its user.
        aor: String,
    },
    /// There is no such alias.
    #[error("there is no alias {alias}")]
    UnknownAlias {
        /// The address.
        alias: String,
    },
    /// A new alias is a user's own address.
    #[error("{alias} is a user, so it cannot be an alias too; choose another address, or remove the user")]
    AliasIsUser {
        /// The address.
        alias: String,
    },
    /// A new alias would resolve to another alias.
    #[error("{target} is itself an alias of {aor}; make the new alias point to {aor}")]
    AliasOfAlias {
        /// Target of the new alias.
        target: String,
        /// User of that alias.
        aor: String,
    },
    /// An invalid name of a gateway set.
    #[error(
        "{typed:?} is not a valid set name; write letters, digits, -, _ and ., {MAX_SET_NAME_LEN} at most, such as pstn"
    )]
    BadSet {
        /// The input.
        typed: String,
    },
    /// An invalid gateway.
    #[error("{uri:?} is not a valid gateway: {reason}")]
    BadGateway {
        /// The URI.
        uri: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The gateway exists already.
    #[error("{uri} is already in the set {set}; `strowger gateway change {set} {uri}` changes it")]
    DuplicateGateway {
        /// The set.
        set: String,
        /// The URI.
        uri: String,
    },
    /// There is no such gateway.
    #[error("there is no gateway {uri} in the set {set}; `strowger gateway list` shows all")]
    UnknownGateway {
        /// The set.
        set: String,
        /// The URI.
        uri: String,
    },
    /// The set is full.
    #[error("the set {set} has {MAX_SET_GATEWAYS} gateways, which is the maximum; remove one, or use another set")]
    FullSet {
        /// The set.
        set: String,
    },
    /// The maximum number of gateways is reached.
    #[error("there are {MAX_GATEWAYS} gateways, which is the maximum; remove one first")]
    TooManyGateways,
    /// The table of an import cannot be read to the end; nothing was imported.
    #[error("the table cannot be read: {cause}; nothing was imported")]
    Unreadable {
        /// The system's error.
        cause: io::Error,
    },
    /// A line of an import is invalid; nothing was imported.
    #[error("line {line}: {fault}; nothing was imported")]
    Import {
        /// Line number, from 1.
        line: u64,
        /// What is wrong with it.
        fault: ImportError,
    },
    /// An operation on the shared database failed.
    #[error(transparent)]
    Shared(strowger_sql::SqlError),
    /// No shared database was given.
    #[error("no shared database is configured; write postgresql:// or mysql://USER:PASSWORD@HOST:PORT/DATABASE")]
    SharedUnnamed,
    /// A newer version of this program created the tables.
    #[error(
        "the tables strowger_… of {database} have schema {found}, made by a newer version of this program; this one knows \
         schemas up to {known}: upgrade it"
    )]
    SharedNewerSchema {
        /// Its URL without the password.
        database: String,
        /// Schema version of the tables.
        found: i64,
        /// Latest version that this program supports.
        known: i64,
    },
    /// The tables have an unexpected value.
    #[error(
        "the tables strowger_… of {database} have unexpected contents; move them away, and this program creates new ones"
    )]
    SharedUnexpected {
        /// Its URL without the password.
        database: String,
    },
    /// The server has rows that the shared database lacks, and has not replicated that database before.
    #[error(
        "{rows} of this server's users and gateways are not in the database {database}: local users and gateways stay unchanged, and the database \
         is not followed. Import them into it with `strowger import strowger FILE`, such as data/strowger.db, and remove unwanted ones there"
    )]
    SharedLacks {
        /// Its URL without the password.
        database: String,
        /// Number of such rows.
        rows: i64,
    },
    /// The shared database is empty, and this server has users.
    #[error(
        "the database {database} has neither users nor gateways, but this server has some: they stay unchanged. Import them into it with \
         `strowger import strowger`"
    )]
    SharedEmpty {
        /// Its URL without the password.
        database: String,
    },
    /// A bug in this program.
    #[error("internal error: the users database {path} returned {cause}; please report it")]
    Internal {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        cause: rusqlite::Error,
    },
}

/// Who has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOwner {
    /// The requester: nothing is broken, but the request cannot be fulfilled as made.
    Request,
    /// The operator of this machine: the file, its directory, the disk or the installed version.
    Operator,
    /// The developers of this program.
    Program,
}

impl StoreError {
    /// Returns who has to act.
    #[must_use]
    pub fn owner(&self) -> ErrorOwner {
        match self {
            Self::Folder { .. }
            | Self::Create { .. }
            | Self::Permission { .. }
            | Self::Exposed { .. }
            | Self::NotAFile { .. }
            | Self::NotADatabase { .. }
            | Self::Foreign { .. }
            | Self::Damaged { .. }
            | Self::BadRow { .. }
            | Self::Locked { .. }
            | Self::NewerSchema { .. }
            | Self::Full { .. }
            | Self::InUse { .. }
            | Self::File { .. }
            | Self::Disk { .. }
            | Self::Shared(_)
            | Self::SharedNewerSchema { .. }
            | Self::SharedUnexpected { .. }
            | Self::SharedLacks { .. }
            | Self::SharedEmpty { .. } => ErrorOwner::Operator,
            Self::TargetExists { .. }
            | Self::SharedUnnamed
            | Self::NoSource { .. }
            | Self::BadAddress { .. }
            | Self::BadRealm { .. }
            | Self::BadPassword { .. }
            | Self::DuplicateUser { .. }
            | Self::UnknownUser { .. }
            | Self::UserIsAlias { .. }
            | Self::DuplicateAlias { .. }
            | Self::UnknownAlias { .. }
            | Self::AliasIsUser { .. }
            | Self::AliasOfAlias { .. }
            | Self::BadSet { .. }
            | Self::BadGateway { .. }
            | Self::DuplicateGateway { .. }
            | Self::UnknownGateway { .. }
            | Self::FullSet { .. }
            | Self::TooManyGateways
            | Self::Unreadable { .. }
            | Self::Import { .. } => ErrorOwner::Request,
            Self::BadExpiry { .. } | Self::ReservedSetting { .. } | Self::Internal { .. } => ErrorOwner::Program,
        }
    }
}

/// An error within a transaction, which does not know the file.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(rusqlite::Error),
    NewerSchema {
        found: i64,
    },
    Foreign,
    Damaged,
    Locked,
    /// A value that no column may have.
    Unexpected,
    Shared(strowger_sql::SqlError),
    Store(StoreError),
}

impl Fault {
    /// Converts to an error of a shared database.
    pub(crate) fn of_shared(self, url: &strowger_sql::DatabaseUrl) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Shared(error) => StoreError::Shared(error),
            _ => StoreError::SharedUnexpected { database: url.to_string() },
        }
    }

    /// Converts to an error of copying `source` to `copy`. SQLite does not say which of them failed, but a copy only
    /// lacks space or permissions.
    pub(crate) fn of_copy(self, source: &Path, copy: &Path) -> StoreError {
        match self.at(source) {
            StoreError::Full { .. } => StoreError::Full { path: copy.to_owned() },
            error => error,
        }
    }

    /// Converts to an error of the file at `path`. All SQLite errors are classified here.
    pub(crate) fn at(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        let cause = match self {
            Self::Store(error) => return error,
            Self::Shared(error) => return StoreError::Shared(error),
            Self::Locked => return StoreError::Locked { path },
            Self::Damaged | Self::Unexpected => return StoreError::Damaged { path },
            Self::Foreign => return StoreError::Foreign { path },
            Self::NewerSchema { found } => {
                return StoreError::NewerSchema { path, found, known: crate::migrations::LATEST };
            }
            Self::Sql(cause) => cause,
        };
        if is_of_another_schema(&cause) {
            return StoreError::Damaged { path };
        }
        match cause.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => StoreError::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                StoreError::Permission { path }
            }
            Some(ErrorCode::DiskFull) => StoreError::Full { path },
            Some(ErrorCode::SystemIoFailure | ErrorCode::FileLockingProtocolFailed) => StoreError::Disk { path, cause },
            _ => StoreError::Internal { path, cause },
        }
    }
}

/// Whether an error means that the file has another schema. The statements of this program and the types of its
/// tables are fixed, and existing keys are checked beforehand, so any mismatch is in the file.
fn is_of_another_schema(error: &rusqlite::Error) -> bool {
    use rusqlite::{Error, ffi};
    match error {
        Error::SqliteFailure(code, _) => matches!(
            code.extended_code,
            ffi::SQLITE_ERROR
                | ffi::SQLITE_TOOBIG
                | ffi::SQLITE_CONSTRAINT_DATATYPE
                | ffi::SQLITE_CONSTRAINT_NOTNULL
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_UNIQUE
        ),
        Error::SqlInputError { .. }
        | Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => true,
        _ => false,
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<strowger_sql::SqlError> for Fault {
    fn from(error: strowger_sql::SqlError) -> Self {
        Self::Shared(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The first line does not name the columns.
    #[error(
        "the first line names the columns: aor,password or aor,ha1_md5[,ha1_sha256[,ha1_sha512_256]], with commas between"
    )]
    Header,
    /// The number of columns differs from the first line.
    #[error("it has {found} columns, the first line {expected}")]
    Columns {
        /// Number of columns in the first line.
        expected: u64,
        /// Number of columns in this line.
        found: u64,
    },
    /// Not UTF-8.
    #[error("it is not UTF-8 text")]
    Text,
    /// An invalid hash.
    #[error("{column} is not {digits} hexadecimal digits")]
    Hash {
        /// Its column.
        column: &'static str,
        /// Number of digits its hashes have.
        digits: usize,
    },
    /// All hashes are empty.
    #[error("it has no hash")]
    NoHash,
    /// An address that occurs in an earlier line.
    #[error("{aor} is already on line {first}")]
    Twice {
        /// The address.
        aor: String,
        /// Number of the earlier line.
        first: u64,
    },
    /// An address, password or user that the store refuses.
    #[error("{0}")]
    Refused(Box<StoreError>),
    /// Another error of the CSV syntax.
    #[error("{0}")]
    Syntax(csv::Error),
}
