//! Where users and aliases are kept: one SQLite file, with the hashes of passwords and never a password.
//!
//! A server [loads](UserStore::load) a [`Directory`](strowger_directory::Directory) when it starts and then asks now and
//! again [what changed](UserStore::changes_since). Triggers in the database write the log that answers this, so it makes
//! no difference who changed a row: this process, `strowger user …` in another one, or any SQL client.
//!
//! What a person types is brought into canonical form here, by [`Address`]; what stands in the database is canonical.

#![forbid(unsafe_code)]

mod address;
mod changes;
mod error;
mod file;
mod ha1;
mod import;
mod schema;
mod users;

pub use address::{Address, AddressFault, MAX_ADDRESS_LEN};
pub use changes::{Changes, MAX_LOG_ROWS, Seq};
pub use error::{Blame, StoreError};
pub use ha1::ha1s;
pub use import::ImportFault;
pub use users::{ListedAlias, ListedUser, UserStore};
