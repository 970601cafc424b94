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
#![cfg_attr(not(test), forbid(unsafe_code))]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")
)]

mod brain;
mod desk;
mod fleet;
mod handover;
mod outlet;
mod panics;
mod status;
#[cfg(test)]
mod tests;
mod worker;

pub use fleet::{Fleet, FleetConfig, MAX_WORKERS, SHARDS_PER_WORKER};
pub use handover::HANDOVER_QUEUE;
pub use panics::{PANIC_LIMIT, PANIC_WINDOW, PanicReport};
pub use status::{Counters, FleetStatus, WorkerStatus};
