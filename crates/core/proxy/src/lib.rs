//! The proxy (RFC 3261 §16): response contexts, forking, routing, CANCEL, and the responses that it makes itself.
//!
//! [`Proxy`] stands on the transactions and knows nothing of users, registrations or configuration: the shard decides where
//! a request goes and hands it a [`Forwarding`].

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

mod answer;
pub mod branch;
mod context;
mod engine;
pub mod forward;
pub mod local;
mod policy;
pub mod routing;

pub use engine::{Counters, Forwarding, NO_CONTEXT, Proxy, Target};
pub use policy::{Action, DEFAULT_MAX_BREADTH, MAX_BRANCHES, Policy, Route, RouteTarget, Stateless};
