//! The per-core loop: sockets in, shards, sockets out.
//!
//! A [`Fleet`] is one thread a core. Each thread, a *worker*, has a socket on every listener (the kernel spreads peers over
//! them) and [`SHARDS_PER_WORKER`] shards. Its round: receive a batch, read the clock once, find each message's shard; where
//! the shard sits here, let it act and send what comes of it; where it sits elsewhere, hand the message over through a
//! bounded ring and wake that worker if it sleeps. Answers leave from the worker that has the shard. Nothing is allocated
//! for a message once buffers have grown, nothing is locked on its way but what the shards share, and nobody waits for
//! another worker.
//!
//! A shard that panics is replaced by a fresh one, and the worker goes on; see [`PanicReport`].

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")
)]

mod admission;
mod balance;
mod brain;
mod calls;
mod connection;
mod contact;
mod crew;
mod desk;
mod entrance;
mod exits;
mod fleet;
mod handover;
mod index;
mod intake;
mod keep;
mod kernel_filter;
mod limits;
mod moving;
mod options;
mod outlet;
mod panics;
mod queue;
mod reading;
mod resolve;
mod slots;
mod socket;
mod spin;
mod status;
mod streams;
#[cfg(test)]
mod tests;
mod trace;
mod worker;

pub use balance::{CALM_FOR, EVEN_AT, GATHER_AT, SETTLE, SPREAD_AT, UNEVEN_AT};
pub use brain::NONCE_STRIPES;
pub use calls::{Account, CallLine, CallList};
pub use exits::{HANDOVER_OVERFLOW, HANDOVER_OVERFLOW_BYTES};
pub use fleet::{Fleet, FleetConfig, MAX_WORKERS, SHARDS_PER_WORKER, shards_of};
pub use handover::{HANDOVER_PART, HANDOVER_QUEUE};
pub use keep::{Keep, KeepBatch, SecondKeep};
pub use limits::{FREE_BYTES, KEPT_BYTES, QUEUED_BYTES, StreamLimits};
pub use moving::{HELD, HELD_BYTES};
pub use options::{Spin, Spread, WorkerOptions};
pub use panics::{PANIC_LIMIT, PANIC_WINDOW, PanicReport};
pub use resolve::{QUESTIONS, Reply, Resolve};
pub use socket::Socket;
pub use status::{Counters, FleetStatus, OverloadStatus, StreamCounters, WorkerStatus};
pub use trace::{
    Direction, MAX_TRACED_BYTES, MAX_TRACED_CALLS, MAX_TRACES, TRACE_QUEUE, TooManyTraces, Trace, TraceFilter, Traced,
    Tracer,
};
pub use worker::TIMER_TICK;
