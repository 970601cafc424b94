//! The four transaction state machines of RFC 3261 §17, as amended by RFC 6026 and RFC 4320, and the layer that runs
//! them.
//!
//! The proxy uses [`Transactions`]. Requests are matched by [`ServerKey`], responses by the [`ClientId`] in our
//! branch. Transactions release memory early: a message that will not be resent returns to the pool at once.

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

mod client;
mod client_slot;
mod derived;
mod id;
mod key;
mod layer;
mod limits;
mod machine;
mod outgoing_request;
mod output;
mod prefetch;
mod response_cache;
mod server;
mod server_slot;
mod timer_queues;
mod timers;
mod timing;
mod unanswered_index;

pub use client::{MAX_CLOSED_SCAN, MAX_UNREACHABLE_SCAN, ResponseVerdict};
pub use id::{ClientId, ServerId};
pub use key::{RequestFingerprint, ServerKey};
pub use layer::{MAX_TIMERS_PER_CALL, Transactions};
pub use limits::{MAX_CLIENT, MAX_SERVER, TableFull};
pub use machine::{ClientState, Kind, ServerState};
pub use output::{Counters, Event, MAX_OUTPUTS, NO_USER};
pub use server::AckVerdict;
pub use timing::Timing;
