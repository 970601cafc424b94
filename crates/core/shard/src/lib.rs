//! One shard: the only interface of the core that a shell uses.
//!
//! A shell is a short loop: it chooses the shard by [`Steering`], hands it an [`Input`], and drains its [`Output`]s.
//! This crate uses no socket, clock or source of entropy.

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
mod call_tracking;
mod callbacks;
mod class;
mod cluster_routes;
mod clusters;
mod ending;
mod gruu;
mod hop_events;
mod hop_names;
mod imported_state;
mod keep_alive;
mod media;
mod next_hops;
mod options;
mod own_responses;
mod pending_registers;
mod probes;
mod receive;
mod register;
mod removal;
mod request;
mod responder;
mod route;
mod router;
mod setup_times;
mod shard;
mod snapshot;
mod steering;
mod transfer;
mod trunk_registrations;
mod unregister;
mod uri_address;

pub use boundary::{Counters, Event, Input, Inquiry, Output};
pub use class::{Classification, Classifier, begins_work, may_begin_work};
pub use cluster_routes::Clusters;
pub use ending::MAX_BYES;
pub use hop_names::{NextHopName, NextHopOwner};
pub use imported_state::{ImportedState, StateError};
pub use media::MAX_HELD_FOR_MEDIA;
pub use pending_registers::{MAX_PENDING_PER_AOR, MAX_PENDING_REGISTERS, MAX_UNREGISTER_COMMANDS, STORE_TIMEOUT};
pub use responder::MAX_AMPLIFICATION;
pub use route::{Action, Match as RouteMatch, Route, RouteTarget, TargetAddress};
pub use setup_times::MAX_SETUP_DESTINATIONS;
pub use shard::{MAX_EVENTS, Shard, ShardConfig, TRIM_INTERVAL};
pub use snapshot::Snapshot;
pub use steering::{Steering, SteeringResult};
pub use strowger_overload::{Limits, Neighbours, ProvenSources, Shedding, Verdict};
pub use strowger_proxy::branch::PROCESS_NUMBERS;
pub use strowger_proxy::{CallDestination, Listener, ListenerState, Listeners};
pub use strowger_transaction::ServerKey;
pub use transfer::shard_of_state;
