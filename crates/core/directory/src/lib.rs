//! Rows that the core reads but never writes: users with their password hashes, aliases and gateways.
//!
//! A [`Directory`] is one immutable version of all rows. The shell loads the first version from its store and creates
//! each further one with [`Directory::with_changes`]. A version shares all unchanged stripes with its predecessor, so
//! a new password among a million users costs the copy of a few thousand pointers.
//!
//! Keys are canonical addresses of record as bytes: `user@domain`, with the user part unescaped and the domain in
//! lower case. Readers and writers must canonicalize addresses; the directory compares bytes.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod directory;
mod gateway;
mod user;

pub use directory::{Directory, DirectoryChange};
pub use gateway::{Gateway, Gateways};
pub use user::{Ha1s, User};
