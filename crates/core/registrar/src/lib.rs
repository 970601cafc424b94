//! The registrar of RFC 3261 §10: parsing of REGISTER requests, the location table, and lookups.
//!
//! It also stores flows (RFC 5626), the paths of intermediate proxies (RFC 3327) and the data of GRUUs (RFC 5627).
//!
//! Nearly all REGISTERs only refresh bindings: [`RefreshRequest::read`], [`Locations::refresh`]. All others use
//! [`Update::read`], [`Locations::stage`], [`Locations::put`] and [`Locations::write_contacts`], in this order; calls
//! use [`Locations::lookup`]; a shard's timer drives [`Locations::expire`] and [`Locations::poll_keep_alive`].

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
mod chunked_vec;
mod connections;
mod contact_header;
mod expiries;
mod gruu;
mod index;
mod listener_addresses;
mod locations;
pub mod model;
mod plan;
mod policy;
mod reachability;
pub mod record;
mod record_buffer;
mod record_context;
mod refresh;
mod refusal;
mod register_sequence;
mod replication;
mod staging;
mod stripe;
mod text;
mod update;
mod values;
mod version;
mod version_table;
mod wheel;

pub use contact_header::GruuText;
pub use gruu::{GruuKey, MAX_INSTANCE_LEN};
pub use listener_addresses::MAX_LISTENER_IDS;
pub use locations::Locations;
pub use policy::{Durability, KeepAlive, LocalContacts, Nat, Policy};
pub use reachability::{destination_uri, is_translated};
pub use record::{ContactChange, Record};
pub use refresh::RefreshRequest;
pub use refusal::Refusal;
pub use replication::Cursor;
pub use update::{
    ContactUpdate, MAX_CONTACT_LEN, MAX_CONTACTS_IN_REGISTER, MAX_PATH_LEN, OptionTags, Path, Update, UpdateKind,
};
pub use values::{BindingView, ContactTarget, PendingKeepAlive, Source, UpdateCounts};
pub use version::{MemberId, Version};
