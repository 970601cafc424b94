//! The basis of every other crate: time, ids, flows, keyed tags, seeded maps, tables, buffer pools and the timer
//! wheel.
//!
//! Nothing here reads a clock, a socket or entropy: the shell passes in monotonic time, wall time and seeds.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod base16;
pub mod base64url;
pub mod flow;
mod fnv;
pub mod id;
pub mod map;
pub mod pool;
pub mod prefetch;
mod siphash;
pub mod slots;
pub mod tag;
pub mod time;
pub mod wheel;

pub use flow::{Flow, Transport, octets};
pub use fnv::fnv1a;
pub use id::{ConnId, ListenerId, ShardId};
pub use pool::{Buf, BufPool};
pub use prefetch::prefetch;
pub use slots::Slots;
pub use tag::{KeyRing, Seal, Tag, TagKey};
pub use time::{Timestamp, WallTime};
pub use wheel::{TimerId, TimerWheel};

/// When a state machine next needs its [`handle_timeout`](TimerWheel::poll_expired), and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The earliest deadline.
    pub at: Timestamp,
    /// The reason, for traces and the simulator.
    pub reason: &'static str,
}
