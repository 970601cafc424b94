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

mod accounts;
mod boundary;
mod class;
mod clusters;
mod follow;
mod gruu;
mod guide;
mod keep_alive;
mod keeping;
mod named;
mod options;
mod places;
mod probes;
mod register;
mod removal;
mod reply;
mod request;
mod responder;
mod route;
mod shard;
mod snapshot;
mod steering;
mod unregister;
mod way;

pub use boundary::{Counters, Event, Input, Output};
pub use class::{Classified, Classifier, begins_work, may_begin_work};
pub use clusters::Clusters;
pub use keeping::{MAX_ORDERS, MAX_WAITING, MAX_WAITING_OF_ONE, STORE_PATIENCE};
pub use named::{Owner, PlaceName};
pub use responder::MAX_AMPLIFICATION;
pub use route::{Action, Match as RouteMatch, Place, Route, RouteTarget};
pub use shard::{MAX_EVENTS, Shard, ShardConfig};
pub use snapshot::Snapshot;
pub use steering::{Steered, Steering};
pub use strowger_overload::{Limits, Neighbours, ProvenSources, Shedding, Verdict};
pub use strowger_proxy::{Listener, Listeners};
