//! What both processes of an upgrade agree on: names of what is handed over, and one clock.

use rustix::time::{ClockId, clock_gettime};
use strowger_foundation::Transport;
use strowger_net::Clock;
use strowger_takeover::ListenerInfo;

/// Names of descriptors that belong to no worker.
pub(super) const CONTROL: &str = "control";
pub(super) const ADMINISTRATION: &str = "administration";
/// Name of the socket for the messages of the other members.
pub(super) const MEMBER: &str = "member";
/// Name of the section with the other members that are alive, as JSON.
pub(super) const LIVE_MEMBERS: &str = "live-members";
/// Name of the section with the used nonce counts.
pub(super) const NONCES: &str = "nonces";
/// Name of the section with the sources that have proven their address.
pub(super) const PROVEN_SOURCES: &str = "proven-sources";
/// Version of the form of both.
pub(super) const CLIENTS_VERSION: u32 = 1;
/// Name of the section with the state of targets.
pub(super) const TARGETS: &str = "targets";
/// Names of the sections with the calls of a shard begin so.
pub(super) const CALLS: &str = "calls-";
/// Name of the section with the time at which the other process has stopped reading.
pub(super) const FROZEN_AT: &str = "frozen-at";

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let ns = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
    u64::try_from(ns).unwrap_or(0)
}

/// Returns `CLOCK_MONOTONIC` at the origin of a clock.
pub(super) fn origin_of(clock: Clock) -> u64 {
    monotonic_ns().saturating_sub(clock.now().as_nanos())
}

/// Returns the transport of a listener.
pub(super) fn transport_of(info: &ListenerInfo) -> std::io::Result<Transport> {
    Transport::from_token(info.transport.as_bytes()).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}
