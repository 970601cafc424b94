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
mod calls;
mod connection;
mod connection_index;
mod datagram_socket;
mod fleet;
mod framing;
mod handover;
mod ingress;
mod kernel_filter;
mod limits;
mod migration;
mod new_work_queue;
mod options;
mod panics;
mod rebalance;
mod record_sink;
mod resolve;
mod shard_factory;
mod shard_host;
mod slots;
mod socket;
mod spin;
mod status;
mod stream_listener;
mod stream_reader;
mod streams;
#[cfg(test)]
mod tests;
mod trace;
mod worker;
mod worker_handle;
mod worker_io;

pub use calls::{Account, CallInfo, CallList};
pub use fleet::{Fleet, FleetConfig, MAX_WORKERS, SHARDS_PER_WORKER, shards_of};
pub use handover::{HANDOVER_QUEUE, MIN_RING_CAPACITY};
pub use limits::{FREE_BYTES, KEPT_BYTES, QUEUED_BYTES, StreamLimits};
pub use migration::{MAX_HELD_BYTES, MAX_HELD_MESSAGES};
pub use options::{Spin, Spread, WorkerOptions};
pub use panics::{PANIC_LIMIT, PANIC_WINDOW, PanicReport};
pub use rebalance::{GROW_UTILIZATION, IMBALANCE_START, IMBALANCE_STOP, SETTLE_TIME, SHRINK_AFTER, SHRINK_UTILIZATION};
pub use record_sink::{RecordBatch, RecordSink, SecondaryAck};
pub use resolve::{MAX_DNS_QUERIES, Reply, Resolve};
pub use shard_factory::NONCE_STRIPES;
pub use socket::Socket;
pub use status::{Counters, FleetStatus, OverloadStatus, StreamCounters, WorkerStatus};
pub use trace::{
    Direction, MAX_TRACED_BYTES, MAX_TRACED_CALLS, MAX_TRACES, TRACE_QUEUE, TooManyTraces, Trace, TraceFilter,
    TraceRecord, Tracer,
};
pub use worker::TIMER_TICK;
pub use worker_io::{HANDOVER_OVERFLOW, HANDOVER_OVERFLOW_BYTES};
