//! The basis of every other crate: time, ids, flows, keyed tags, seeded maps, tables, buffer pools and the timer
//! wheel.
//!
//! Nothing here reads a clock, a socket or entropy: the shell passes in monotonic time, wall time and seeds.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod base16;
pub mod base64url;
pub mod bytes;
mod duration_histogram;
pub mod flow;
mod fnv;
pub mod id;
pub mod map;
pub mod pool;
pub mod prefetch;
mod siphash;
pub mod slots;
mod source;
pub mod tag;
pub mod time;
pub mod wheel;

pub use duration_histogram::DurationHistogram;
pub use flow::{Flow, HostId, Transport, octets};
pub use fnv::fnv1a;
pub use id::{ConnId, ListenerId, ShardId};
pub use pool::{Buf, BufPool};
pub use prefetch::prefetch;
pub use slots::Slots;
pub use source::{SOURCE_V4, source_bits, source_network};
pub use tag::{KeyRing, Seal, Tag, TagKey};
pub use time::{Timestamp, WallTime};
pub use wheel::{TimerId, TimerWheel};

/// When a state machine next needs its [`handle_timeout`](TimerWheel::poll_expired), and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The earliest deadline.
    pub at: Timestamp,
    /// Until when the call may wait for another occasion: later than `at` if only memory is freed until then.
    pub latest: Timestamp,
    /// The reason, for traces and the simulator.
    pub reason: &'static str,
}

impl Wakeup {
    /// A wake-up that must not wait.
    #[inline]
    #[must_use]
    pub const fn at(at: Timestamp, reason: &'static str) -> Self {
        Self { at, latest: at, reason }
    }

    /// Returns the wake-up for both: the earlier of each time.
    #[inline]
    #[must_use]
    pub fn sooner(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        let reason = if other.at < one.at { other.reason } else { one.reason };
        Some(Self { at: one.at.min(other.at), latest: one.latest.min(other.latest), reason })
    }
}
