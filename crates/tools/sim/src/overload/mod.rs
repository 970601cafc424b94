//! Policies of overload control, compared in virtual time before they are built.
//!
//! One worker runs the production [`Server`](crate::server::Server): real shards, real bytes, the real
//! [`Controller`](strowger_overload::Controller). Around it stand a kernel with receive queues, receive stamps, a socket filter and
//! drops ([`Policy`] says which of these there are), a table of [service times](Costs) that moves the worker's clock, and callers that
//! send again as RFC 3261 says. What the server does not serve comes back, as it does on a real network; [`Outcome`] says what
//! is left of the capacity.
//!
//! Callers do not cancel: one who has heard 180 waits for the answer. All else that they do is in `callers` and `callee`.

mod admission;
mod callee;
mod callers;
mod comparison;
mod costs;
mod cpu;
mod kernel;
mod kernel_filter;
mod load;
mod outcome;
mod requests;
mod schedule;
mod simulation;
mod worker;

pub use comparison::compare;
pub use costs::Costs;
pub use cpu::Cpu;
pub use load::Phase;
pub use outcome::{Drops, Outcome, PROMPT, Second};
pub use simulation::run;

use core::time::Duration;

/// What stands between the network and the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One queue, read in the order of arrival, as a plain server does.
    Fifo,
    /// Two queues: calls in progress are read before new work, whose queue is bounded in time. Nothing is refused.
    Sorted,
    /// The same and the controller, which refuses and drops in the worker.
    Control,
    /// The same, and the kernel drops what does not pass the controller's filter.
    KernelFilter,
    /// The same, and the kernel remembers what it dropped and drops the retransmissions too.
    KernelMemory,
}

impl Policy {
    /// All of them, the simplest first.
    pub const ALL: [Self; 5] = [Self::Fifo, Self::Sorted, Self::Control, Self::KernelFilter, Self::KernelMemory];

    /// Its name in a table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Sorted => "sorted",
            Self::Control => "control",
            Self::KernelFilter => "kernel-filter",
            Self::KernelMemory => "kernel-memory",
        }
    }

    /// Whether new work has a queue of its own.
    const fn sorts(self) -> bool {
        !matches!(self, Self::Fifo)
    }

    /// Whether the controller limits anything.
    const fn is_controlled(self) -> bool {
        matches!(self, Self::Control | Self::KernelFilter | Self::KernelMemory)
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// What stands before the shards.
    pub policy: Policy,
    /// Calls a second that the worker carries where nothing is sent twice.
    pub capacity: u32,
    /// How many calls are offered, from the beginning on.
    pub phases: Vec<Phase>,
    /// Service times. They are scaled to the capacity: only their ratios count.
    pub costs: Costs,
    /// How much of the processor there is when.
    pub cpu: Cpu,
    /// The room of a receive queue, in bytes as the kernel books them. That of the queue of new work is its greatest.
    pub receive_buffer_bytes: usize,
    /// Datagrams that are read at once.
    pub batch: usize,
    /// How long a datagram is on its way.
    pub delay: Duration,
    /// Addresses that calls come from.
    pub sources: u8,
    /// A caller who is answered later has hung up.
    pub patience: Duration,
    /// How long an answered call lasts at least and at most.
    pub talk: (Duration, Duration),
}

impl Setup {
    /// A run with the usual network, kernel and callers.
    #[must_use]
    pub const fn new(seed: u64, policy: Policy, capacity: u32, phases: Vec<Phase>) -> Self {
        Self {
            seed,
            policy,
            capacity,
            phases,
            costs: Costs::MEASURED,
            cpu: Cpu::WHOLE,
            receive_buffer_bytes: 8 << 20,
            batch: 8,
            delay: Duration::from_millis(2),
            sources: 40,
            patience: Duration::from_secs(32),
            talk: (Duration::from_secs(1), Duration::from_secs(3)),
        }
    }
}
