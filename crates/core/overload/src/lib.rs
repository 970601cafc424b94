//! Overload control: decides which new work is served, refused, or not even read.
//!
//! There are two measures. A shard holds no more than its [`Limits`]. And new work waits for a bounded time: a
//! worker's [`Controller`] measures how long requests have waited in the socket's queue, estimates the worker's
//! capacity, and serves the more important [classes](Class) first. Under sustained overload it gives the kernel a
//! [`Filter`], which drops excess requests before they cost the server anything. A retransmission gets the same
//! decision as its original, because both have the same [position](position()): calls are served at once or not at
//! all.

#![forbid(unsafe_code)]

mod class;
mod connections;
mod controller;
mod feedback;
mod filter;
mod limits;
mod neighbour;
mod position;
mod proven;
mod proven_transfer;
mod queue;
mod queue_bound;
mod shares;
mod shedding;
mod threshold;
mod token_bucket;
mod window;

pub use class::{CLASSES, Class};
pub use connections::{ConnectionLimit, FEW_CONNECTIONS, LATE_WAIT};
pub use controller::{
    Controller, ControllerStatus, OfferedRequest, STALE, STALE_REMEMBERED, TARGET_WAIT, Verdict, WINDOW,
};
pub use feedback::{Algorithm, Feedback};
pub use filter::{
    FILTERED_KINDS, Filter, FilterAbilities, FilteredKind, is_to_service, kind_of, may_be_dropped_unread,
};
pub use limits::{Admission, Limits, Load, RETRY_AFTER, admit};
pub use neighbour::{MAX_NEIGHBOURS, MAX_VALIDITY, Neighbours, OutgoingRequest};
pub use position::{
    HASH_BEGIN, HASH_BLOCK_BYTES, HASH_BLOCKS, HASH_FACTOR, POSITIONS, Position, fingerprint, position, position_of,
};
pub use proven::{MIX_FACTORS, MIX_SHIFTS, PROVEN_BITS, PROVEN_WORDS, ProvenSources, SourceMemory};
pub use queue::{IN_PROGRESS, Queue, STUN_COOKIE, queue_of};
pub use queue_bound::{MAX_QUEUE_WAIT, MAX_QUEUE_WAIT_REMEMBERED, QueueBound};
pub use shares::MAX_SOURCES;
pub use shedding::{MAX_WORKERS, ShedLevel, Shedding, VALIDITY};
pub use strowger_foundation::SOURCE_V4;
