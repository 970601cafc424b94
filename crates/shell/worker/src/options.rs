//! How the workers share the work and the machine.

use std::time::Duration;

/// What an operator may decide about the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// How workers wait for what comes next.
    pub spin: Spin,
    /// How many workers have shards at least, whatever there is to do.
    pub min_workers: usize,
    /// The cores of each worker, by its number; whoever has none goes where the system likes.
    pub cores: Vec<usize>,
    /// Which workers receive.
    pub spread: Spread,
    /// Whether more new work than can be served is refused, and the kernel sorts what arrives for that.
    pub overload_control: bool,
    /// Whether shards stay where they are, for tests that move them themselves.
    #[cfg(test)]
    pub(crate) is_rebalancing_off: bool,
}

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// Awake for up to this long where that is likely to save a wake-up, which is worth as much; then asleep. Zero: never awake.
    UpTo(Duration),
    /// Awake as long as it has shards, whatever comes: its core is never given up. Without shards as by default.
    Always,
}

/// About what a wake-up costs.
pub(crate) const WAKE_UP: Duration = Duration::from_micros(10);

/// How datagrams are spread over the workers that have shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All of one peer are received by one worker, in their order.
    #[default]
    Peers,
    /// Each is received by any: what one peer sends in a row may be overtaken by what it sends next.
    Packets,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            spin: Spin::UpTo(WAKE_UP),
            min_workers: 1,
            cores: Vec::new(),
            spread: Spread::Peers,
            overload_control: true,
            #[cfg(test)]
            is_rebalancing_off: false,
        }
    }
}
