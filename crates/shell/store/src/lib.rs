//! Storage of users, aliases and gateways: one SQLite file, with password hashes and never a password.
//!
//! A server [loads](UserStore::load) a [`Directory`](strowger_directory::Directory) at startup and then polls for
//! [changes](UserStore::changes_since). Triggers in the database write the change log, so changes are seen regardless
//! of who made them: this process, `strowger user …` in another one, or any SQL client.
//!
//! [`LocationStore`] keeps registrations in the same file, as the checkpoint of the server's journal. [`backup`]
//! copies the file while it is in use; [`restore`] replaces the database by such a copy.
//!
//! [`Address`] canonicalizes what a person types; the database has canonical addresses only.

#![forbid(unsafe_code)]

mod address;
mod address_error;
mod any_backend;
mod backend;
mod backup;
mod bulk;
mod changes;
mod error;
mod file;
mod gateways;
mod ha1;
mod import;
mod limits;
mod locations;
mod lock;
mod migrations;
mod replica;
mod restore;
mod row_counts;
mod schema;
mod settings;
mod shared;
mod sqlite_file;
mod staging;
mod transact;
mod transfer;
mod user_pages;
mod users;

pub use address::Address;
pub use address_error::AddressError;
pub use any_backend::AnyBackend;
pub use backend::Backend;
pub use backup::{BackupInfo, BackupOptions, backup, inspect};
pub use bulk::{NewUser, OnConflict, PutOutcome};
pub use changes::{Changes, MAX_LOG_ROWS, Seq};
pub use error::{ErrorOwner, ImportError, StoreError};
pub use gateways::{
    GatewayChange, GatewayEntry, MAX_CAPACITY, MAX_DESCRIPTION_LEN, MAX_URI_LEN, NewGateway, gateways_at,
};
pub use ha1::ha1s;
pub use limits::{MAX_ADDRESS_LEN, MAX_GATEWAYS, MAX_SET_GATEWAYS, MAX_SET_NAME_LEN};
pub use locations::{
    Checkpoint, GetResult, LoadCounts, Location, LocationChange, LocationStore, MergeRecords, MergeResult, PurgeCounts,
    SlotRange, WriteCounts, WritePace,
};
pub use lock::{DatabaseLock, lock};
pub use replica::{Replicator, SyncResult};
pub use restore::{RestoreResult, restore, restore_with};
pub use shared::SharedDatabase;
pub use sqlite_file::SqliteFile;
pub use transfer::{TransferCounts, TransferReport};
pub use user_pages::{MAX_PAGE, Page, UserSelection};
pub use users::{AliasEntry, UserEntry, UserStore, has_users_at};
