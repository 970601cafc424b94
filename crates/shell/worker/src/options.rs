//! Options of the workers.

use std::time::Duration;

use strowger_auth::Network;

use crate::limits::StreamLimits;

/// Worker settings under the operator's control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// How workers wait for input.
    pub spin: Spin,
    /// Minimum number of workers with shards, regardless of load.
    pub min_workers: usize,
    /// Core of each worker, by index; workers without one are placed by the scheduler.
    pub cores: Vec<usize>,
    /// Which workers receive datagrams.
    pub steering: PacketSteering,
    /// Whether excess new work is refused, and whether the kernel sorts arriving datagrams for this.
    pub overload_control: bool,
    /// Whether the times of packets are measured.
    pub timing: bool,
    /// Whether shards stay where they are, for tests that move them explicitly.
    #[cfg(test)]
    pub(crate) is_rebalancing_off: bool,
}

/// What can change while the workers run.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Connection limits. Shorter times also apply to connections that exist; lower numbers close none.
    pub streams: StreamLimits,
    /// Balancers: their connections begin with the address of a client (PROXY protocol).
    pub balancers: Vec<Network>,
    /// How workers wait for input.
    pub spin: Spin,
    /// Minimum number of workers with shards, regardless of load.
    pub min_workers: usize,
    /// Core of each worker, by index; workers without one are placed by the scheduler.
    pub cores: Vec<usize>,
    /// Cores available to the process.
    pub usable_cores: Vec<usize>,
    /// Which workers receive datagrams.
    pub steering: PacketSteering,
}

/// How a worker waits for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// Spins for up to this long if that is likely to save a wake-up of similar cost, then sleeps. Zero: never spins.
    UpTo(Duration),
    /// Spins as long as it has shards and never yields its core. Without shards, as by default.
    Always,
}

/// Approximate cost of a wake-up.
pub(crate) const WAKE_UP: Duration = Duration::from_micros(10);

/// How datagrams are distributed over the workers with shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketSteering {
    /// All datagrams of a peer are received by one worker, in order.
    #[default]
    Peers,
    /// Each datagram may be received by any worker; datagrams of one peer may be reordered.
    Packets,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            spin: Spin::UpTo(WAKE_UP),
            min_workers: 1,
            cores: Vec::new(),
            steering: PacketSteering::Peers,
            overload_control: true,
            timing: true,
            #[cfg(test)]
            is_rebalancing_off: false,
        }
    }
}
