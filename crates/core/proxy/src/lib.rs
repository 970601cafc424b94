//! The proxy (RFC 3261 §16): response contexts, forking, routing, CANCEL, and responses that it generates itself.
//!
//! [`Proxy`] uses the transaction layer and knows nothing of users, registrations or configuration. The shard decides
//! where a request goes and passes a [`Forwarding`].

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
mod body_numbers;
pub mod branch;
pub mod cluster_request;
mod context;
mod ending;
mod engine;
mod failover;
pub mod flow_token;
mod fork;
pub mod forward;
mod forward_params;
mod health;
mod listener;
pub mod local;
mod overload;
mod policy;
mod response_times;
pub mod routing;
mod shared_branches;
mod stateless;
mod target;
mod target_body;

pub use engine::{
    CallProgress, Counters, NO_CONTEXT, NextHopEvent, OWN_USERS, Proxy, ProxyCallbacks, ProxyConfig, ResponseOutcome,
};
pub use fork::{MAX_QUESTIONS, QueryOrigin};
pub use forward_params::{Forwarding, ForwardingPolicy};
pub use listener::{Listener, ListenerState, Listeners};
pub use policy::{
    AddedHeader, Changes, DEFAULT_MAX_BREADTH, MAX_ATTEMPTS, MAX_BRANCHES, MAX_REDIRECTIONS, OverloadControl, Policy,
    Stateless, TargetBody,
};
pub use target::{BalancedTarget, CallDestination, NextHop, NextHopAddress, NextHopKind, SentAs, Target};
pub use target_body::ResponseOrigin;
