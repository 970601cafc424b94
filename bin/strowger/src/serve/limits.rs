//! How the workers share the machine, and their limits.

use strowger_control::config::values::Affinity;
use strowger_control::config::{self, Config};
use strowger_shard::Limits;
use strowger_worker::{PacketSteering, Spin, StreamLimits, WorkerOptions};

use crate::failure::Failure;
use crate::text::count;
use crate::{check, memory};

/// Number of open files besides connections: databases, listeners, the control socket, logs.
const OTHER_FILES: usize = 512;
/// Divisor of the memory: requests, from first packet to last timer, may use one part in this many.
const PART_FOR_REQUESTS: u64 = 2;

/// Returns how the workers share work and cores.
pub(super) fn worker_options(config: &Config, workers: u16) -> WorkerOptions {
    let server = &config.server;
    let cores = match &server.affinity {
        Affinity::None => Vec::new(),
        Affinity::Auto => check::usable_cores(),
        Affinity::Cores(cores) => cores.iter().copied().map(usize::from).collect(),
    };
    let steering = match server.steering {
        config::Steering::Peers => PacketSteering::Peers,
        config::Steering::Packets => PacketSteering::Packets,
    };
    let spin = match server.spin {
        config::values::Spin::UpTo(span) => Spin::UpTo(span.0),
        config::values::Spin::Always => {
            tracing::info!("server.spin: workers with shards busy-poll, each occupying a core");
            Spin::Always
        }
    };
    let (overload_control, timing) = (config.overload.control, server.timing);
    WorkerOptions { spin, min_workers: config.min_workers(workers).into(), cores, steering, overload_control, timing }
}

/// Returns the limits of each shard, so that requests use at most one part in [`PART_FOR_REQUESTS`] of the memory.
pub(super) fn limits_of_shards(workers: u16) -> Result<Limits, Failure> {
    let shards = shards_of(workers)?;
    let bytes = memory::allowed() / PART_FOR_REQUESTS / u64::from(shards);
    let limits = Limits::within(usize::try_from(bytes).unwrap_or(usize::MAX));
    let all = |each: usize| count((each * usize::from(shards)) as u64, "request");
    let (going_on, held) = (all(limits.in_progress), all(limits.server_transactions));
    tracing::info!("limits: {going_on} in progress, {held} held until their timers expire");
    Ok(limits)
}

pub(super) fn shards_of(workers: u16) -> Result<u16, Failure> {
    strowger_worker::shards_of(workers.into())
        .map_err(|error| Failure::No(format!("server.workers = {workers}: {error}")))
}

/// Returns the connection limits, given the maximum number of open files.
pub(super) fn stream_limits(config: &Config, files: u64) -> StreamLimits {
    let tcp = &config.tcp;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let files = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES);
    StreamLimits {
        connections: number(tcp.connections).min(files),
        tls: config.tls.connections.map_or(usize::MAX, number),
        web_sockets: config.websocket.connections.map_or(usize::MAX, number),
        per_source: number(tcp.per_source),
        message_timeout: tcp.message_timeout.0,
        idle: tcp.idle.0,
        connect_timeout: tcp.connect_timeout.0,
        user_timeout: tcp.user_timeout.0,
        ping: config.websocket.ping.0,
        ..StreamLimits::default()
    }
}
