//! The registrar of RFC 3261 §10: what a REGISTER asks for, the location table that it changes, and what a look-up finds.
//!
//! Besides it keeps flows (RFC 5626), the paths of proxies between (RFC 3327) and what GRUUs are made from (RFC 5627).
//!
//! Nearly all REGISTERs only renew what is there: [`Renewal::read`], [`Locations::renew`]. For all others the order of use is
//! [`Update::read`], [`Locations::stage`], [`Locations::put`], [`Locations::write_contacts`]; calls use [`Locations::lookup`]; a
//! shard's timer drives [`Locations::expire`] and [`Locations::poll_keep_alive`].

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        reason = "a test may fail loudly"
    )
)]

mod binding;
mod chunks;
mod connections;
mod echo;
mod expiries;
mod ground;
mod index;
mod instance;
mod locations;
pub mod model;
mod piece;
mod plan;
mod policy;
mod reach;
pub mod record;
mod refusal;
mod renewal;
mod sharing;
mod staging;
mod stripe;
mod text;
mod update;
mod version;
mod versions;
mod wheel;

pub use echo::GruuText;
pub use instance::{GruuKey, MAX_INSTANCE_LEN};
pub use locations::{Applied, BindingView, KeepAliveDue, Locations, Source, Target};
pub use policy::{Durability, KeepAlive, Nat, Policy};
pub use reach::is_translated;
pub use record::{OneChange, Record};
pub use refusal::Refusal;
pub use renewal::Renewal;
pub use sharing::Cursor;
pub use update::{
    ContactUpdate, MAX_CONTACT_LEN, MAX_CONTACTS_IN_REGISTER, MAX_PATH_LEN, Path, Supported, Update, UpdateKind,
};
pub use version::{MemberId, Version};
