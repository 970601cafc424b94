//! The per-core event loop: sockets, shards, sockets.
//!
//! A [`Fleet`] is one thread per core. Each thread, a *worker*, has a socket on every listener (the kernel
//! distributes peers over them) and [`SHARDS_PER_WORKER`] shards. In each round it receives a batch, reads the clock
//! once and finds each message's shard. If the shard is local, it runs the shard and sends the output. Otherwise it
//! hands the message over through a bounded ring and wakes the other worker if it sleeps. Responses leave from the
//! worker that has the shard. Once buffers have grown, nothing is allocated per message. The only locks on the way
//! are those of tables that shards share, and no worker waits for another.
//!
//! A shard that panics is replaced by a new one, and the worker continues; see [`PanicReport`].

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")
)]

// The support of the integration tests, which unit tests share, has the crate under its name.
#[cfg(test)]
extern crate self as strowger_worker;

mod admission;
mod affinity;
mod calls;
mod connection;
mod connection_index;
mod datagram_socket;
mod fleet;
mod fleet_times;
mod framing;
mod handover;
mod handshakes;
mod ingress;
mod kernel_filter;
mod limits;
mod listener_socket;
mod log_interval;
mod media_socket;
mod migration;
mod new_work_queue;
mod options;
mod packet_timer;
mod panics;
mod predecessors;
mod process_handover;
mod rebalance;
mod record_result;
mod record_sink;
mod relaying;
mod resolve;
mod shard_factory;
mod shard_host;
mod slots;
mod socket;
mod source;
mod spin;
mod status;
mod stream_listener;
mod stream_reader;
mod streams;
#[cfg(test)]
mod tests;
mod timing;
mod trace;
mod transport_counters;
mod wake_timer;
mod web_socket_reader;
mod worker;
mod worker_handle;
mod worker_io;
mod worker_times;

pub use calls::{Account, CallInfo, CallList, DestinationTimes, TimesByDestination};
pub use fleet::{
    Fleet, FleetConfig, MAX_WORKERS, PreparedSockets, RelayInlet, SHARDS_PER_WORKER, TakenOver, shards_of,
};
pub use fleet_times::{FleetTimes, FleetTimesReader};
pub use handover::{HANDOVER_QUEUE, MIN_RING_CAPACITY};
pub use limits::{FREE_BYTES, KEPT_BYTES, QUEUED_BYTES, StreamLimits};
pub use migration::{MAX_HELD_BYTES, MAX_HELD_MESSAGES};
pub use options::{PacketSteering, Spin, WorkerOptions, WorkerSettings};
pub use panics::{PANIC_LIMIT, PANIC_WINDOW, PanicReport};
pub use predecessors::{MAX_PREDECESSORS, Predecessor, Predecessors, ProcessLink, RelayKind, RelayedMessage};
pub use process_handover::{FleetHandover, ListenerHandover};
pub use rebalance::{GROW_UTILIZATION, IMBALANCE_START, IMBALANCE_STOP, SETTLE_TIME, SHRINK_AFTER, SHRINK_UTILIZATION};
pub use record_sink::{RecordBatch, RecordSink, SecondaryAck};
pub use resolve::{MAX_DNS_QUERIES, Reply, Resolve};
pub use shard_factory::NONCE_STRIPES;
pub use socket::Socket;
pub use status::{Counters, FleetStatus, OverloadStatus, StreamCounters, WorkerStatus};
pub use trace::{
    CallSample, Direction, MAX_TRACED_BYTES, MAX_TRACED_CALLS, MAX_TRACES, SAMPLE_QUEUE, TRACE_QUEUE, TooManyTraces,
    Trace, TraceFilter, TraceRecord, TraceStop, Tracer,
};
pub use transport_counters::{STREAM_TRANSPORTS, TransportCount, TransportCounters};
pub use worker::TIMER_TICK;
pub use worker_io::{HANDOVER_OVERFLOW, HANDOVER_OVERFLOW_BYTES};
