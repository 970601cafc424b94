//! Overload control: which new work is served, which is refused, and which is not even read.
//!
//! Two measures count. A shard holds no more than its [`Limits`]. And new work waits for a bounded time: a worker's [`Controller`]
//! watches how long requests have waited in the socket's queue, finds what the worker can carry, and serves the more important
//! [classes](Class) first. Under sustained overload it gives the kernel a [`Filter`], so that what would be refused is dropped
//! before it costs the server anything. A retransmission meets the same verdict as its original, because both stand at the same
//! [position](position()): the calls that are served are served at once, and the others not at all.

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
pub use proven::{MIX_FACTORS, MIX_SHIFTS, PROVEN_BITS, PROVEN_WORDS, ProvenSources, SOURCE_V4, SourceMemory};
pub use queue::{IN_PROGRESS, Queue, queue_of};
pub use queue_bound::{MAX_QUEUE_WAIT, MAX_QUEUE_WAIT_REMEMBERED, QueueBound};
pub use shares::MAX_SOURCES;
pub use shedding::{MAX_WORKERS, ShedLevel, Shedding, VALIDITY};
