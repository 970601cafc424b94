//! One shard's whole brain: the only façade that a shell sees.
//!
//! A shell is a short loop: it chooses the shard by [`Steering`], hands it an [`Input`], and drains its [`Output`]s. Nothing
//! here names a socket, a clock or a source of entropy.

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

mod boundary;
mod register;
mod request;
mod shard;
mod snapshot;
mod steering;
mod way;

pub use boundary::{Counters, Event, Input, Output};
pub use shard::{MAX_EVENTS, Shard, ShardConfig};
pub use snapshot::{Listener, Snapshot};
pub use steering::Steering;
