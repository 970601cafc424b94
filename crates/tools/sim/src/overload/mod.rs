//! Policies of overload control, compared in virtual time before they are implemented.
//!
//! One worker runs the production [`Server`](crate::server::Server): real shards, real messages, the real
//! [`Controller`](strowger_overload::Controller). Simulated around it are a kernel with receive queues, timestamps, a
//! socket filter and drops ([`Policy`] selects which of these exist), a table of [service times](Costs) that advances
//! the worker's clock, and callers that retransmit by RFC 3261. Messages that the server does not serve return, as on
//! a real network. [`Outcome`] shows how much of the capacity remains.
//!
//! Callers do not cancel: after a 180 they wait for the answer. Their other behavior is in `callers` and `callee`.

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

/// Overload control between the network and the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One queue, read in the order of arrival, as in a plain server.
    Fifo,
    /// Two queues: calls in progress are read before new work, whose queue is bounded by waiting time. Nothing is
    /// rejected.
    Sorted,
    /// `Sorted` plus the controller, which rejects and drops in the worker.
    Control,
    /// `Control`, and the kernel drops what does not pass the controller's filter.
    KernelFilter,
    /// `KernelFilter`, and the kernel remembers dropped messages and drops their retransmissions too.
    KernelMemory,
}

impl Policy {
    /// All policies, simplest first.
    pub const ALL: [Self; 5] = [Self::Fifo, Self::Sorted, Self::Control, Self::KernelFilter, Self::KernelMemory];

    /// Returns the name for a table.
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

    /// Returns whether new work has its own queue.
    const fn sorts(self) -> bool {
        !matches!(self, Self::Fifo)
    }

    /// Returns whether the controller limits anything.
    const fn is_controlled(self) -> bool {
        matches!(self, Self::Control | Self::KernelFilter | Self::KernelMemory)
    }
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all random draws.
    pub seed: u64,
    /// Policy of overload control.
    pub policy: Policy,
    /// Calls per second that the worker carries without retransmissions.
    pub capacity: u32,
    /// Offered load, in phases from the start.
    pub phases: Vec<Phase>,
    /// Service times. They are scaled to the capacity: only their ratios matter.
    pub costs: Costs,
    /// Processor of the worker.
    pub cpu: Cpu,
    /// Size of a receive queue, in bytes as the kernel accounts them. For the queue of new work it is the maximum.
    pub receive_buffer_bytes: usize,
    /// Datagrams read at once.
    pub batch: usize,
    /// Network delay of a datagram.
    pub delay: Duration,
    /// Number of source addresses of calls.
    pub sources: u8,
    /// Time after which a caller without an answer gives up.
    pub patience: Duration,
    /// Shortest and longest duration of an answered call.
    pub talk: (Duration, Duration),
}

impl Setup {
    /// Creates a run with the default network, kernel and callers.
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
