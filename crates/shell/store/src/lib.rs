//! Where users, aliases and gateways are kept: one SQLite file, with the hashes of passwords and never a password.
//!
//! A server [loads](UserStore::load) a [`Directory`](strowger_directory::Directory) when it starts and then asks now and
//! again [what changed](UserStore::changes_since). Triggers in the database write the log that answers this, so it makes
//! no difference who changed a row: this process, `strowger user …` in another one, or any SQL client.
//!
//! [`LocationStore`] keeps registrations in the same file, as the checkpoint of the server's journal. [`backup`] copies the
//! file while it is in use, [`restore`] puts such a copy in its place.
//!
//! What a person types is brought into canonical form here, by [`Address`]; what stands in the database is canonical.

#![forbid(unsafe_code)]

mod address;
mod backup;
mod bulk;
mod changes;
mod copy;
mod error;
mod file;
mod gateways;
mod ha1;
mod hold;
mod import;
mod incoming;
mod locations;
mod place;
mod restore;
mod row_counts;
mod schema;
mod settings;
mod shared;
mod transact;
mod transfer;
mod users;

pub use address::{Address, AddressFault, MAX_ADDRESS_LEN};
pub use backup::{BackupInfo, BackupOptions, backup, inspect};
pub use bulk::{Existing, NewUser, Put};
pub use changes::{Changes, MAX_LOG_ROWS, Seq};
pub use copy::{Copied, Copier};
pub use error::{Blame, StoreError};
pub use gateways::{
    GatewayChange, ListedGateway, MAX_CAPACITY, MAX_DESCRIPTION_LEN, MAX_GATEWAYS, MAX_SET_GATEWAYS, MAX_SET_NAME_LEN,
    MAX_URI_LEN, NewGateway, gateways_at,
};
pub use ha1::ha1s;
pub use hold::{Hold, hold};
pub use import::ImportFault;
pub use locations::{
    Checkpoint, Got, Loaded, Location, LocationChange, LocationStore, MergeRecords, Merged, Pace, Part, Purged, Written,
};
pub use place::{Anywhere, File, Place};
pub use restore::{Restored, restore, restore_with};
pub use shared::Shared;
pub use transfer::{AllTransferred, Transferred};
pub use users::{ListedAlias, ListedUser, UserStore, has_users_at};
