//! Rows that the core looks up and never writes: users with the hashes of their passwords, aliases, and gateways.
//!
//! A [`Directory`] is one immutable version of all rows. The shell loads the first version from its store and makes each
//! further one with [`Directory::with_changes`]; a version shares with its predecessor every stripe that no change
//! touched, so a new password among a million users costs the copy of a few thousand pointers.
//!
//! Keys are canonical addresses of record as bytes: `user@domain`, the user part unescaped, the domain in lower case.
//! Who asks and who writes must both bring them into this form; here bytes are only compared.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod directory;
mod gateway;
mod user;

pub use directory::{Directory, DirectoryChange};
pub use gateway::{Gateway, Gateways};
pub use user::{Ha1s, User};
