//! The control of media engines, without I/O: the protocol `ng` of rtpengine, and which offers and answers (RFC 3264)
//! of a call an engine has to see.
//!
//! - [`bencode`]: the encoding of the messages.
//! - [`Command`] and [`Reply`]: the messages.
//! - [`Client`]: requests to engines with retransmission, time-outs and failover.
//! - [`Engines`]: the engines and their health, shared by all shards.
//! - [`MediaCalls`]: the calls whose media go through an engine.
//!
//! The crate knows nothing of SIP messages; the shard reads and writes them.

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

pub mod bencode;
mod calls;
mod client;
mod command;
mod cookie;
mod engine;
mod policy;
mod reply;
mod transfer;

pub use calls::{Exchange, MAX_CALLS, MAX_EXCHANGES, MediaCall, MediaCalls, SdpRole};
pub use client::{Client, Counters, MAX_REQUESTS, Outcome, Request, RequestKind, Transmit};
pub use command::{Command, Dialog, Profile, SessionKind};
pub use cookie::{Cookie, shard_of};
pub use engine::{Engine, EngineChange, Engines, MAX_ENGINES};
pub use policy::{FailurePolicy, MediaPolicy, When};
pub use reply::{MAX_REPLY, Reply, ReplyFault};
