//! The seven shells: each drives the same shards by other threads and processes.

mod event_based;
mod pool_thread_per_message;
mod process_pool;
mod thread_per_message;
mod thread_pool;
mod two_stage_processes;
mod two_stage_threads;

use std::fmt;
use std::io;

use clap::ValueEnum;

use crate::processes::Member;
use crate::shard_group::Setup;
use crate::socket::Socket;

/// How a server is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Architecture {
    /// One thread, one loop
    EventBased,
    /// A thread is made for each message
    ThreadPerMessage,
    /// One thread receives and hands each message to a thread of a pool
    PoolThreadPerMessage,
    /// Threads that all receive
    ThreadPool,
    /// Processes that all receive
    ProcessPool,
    /// One thread receives; the others each have their own users
    TwoStageThreads,
    /// One process receives; the others each have their own users
    TwoStageProcesses,
}

impl Architecture {
    /// All of them, in the paper's order.
    pub(crate) const ALL: [Self; 7] = [
        Self::EventBased,
        Self::ThreadPerMessage,
        Self::PoolThreadPerMessage,
        Self::ThreadPool,
        Self::ProcessPool,
        Self::TwoStageThreads,
        Self::TwoStageProcesses,
    ];

    /// Its threads or processes where nobody says how many: a pool of the size that the papers use, of second stages as many as
    /// this kind of machine has cores; of threads that come and go, how many there are at most.
    #[must_use]
    pub(crate) const fn usual_count(self) -> usize {
        match self {
            Self::EventBased => 1,
            Self::ThreadPerMessage => 1_000,
            Self::PoolThreadPerMessage | Self::ThreadPool | Self::ProcessPool => 4,
            Self::TwoStageThreads | Self::TwoStageProcesses => 2,
        }
    }

    /// Into how many brains its transactions and users are divided: as many as own one, or where they are behind locks, enough
    /// that threads seldom meet.
    #[must_use]
    pub(crate) fn brains(self, count: usize) -> u16 {
        match self {
            Self::EventBased => 1,
            Self::ThreadPerMessage | Self::PoolThreadPerMessage | Self::ThreadPool => 16,
            Self::ProcessPool | Self::TwoStageThreads | Self::TwoStageProcesses => {
                u16::try_from(count).unwrap_or(u16::MAX)
            }
        }
    }

    /// Of how many shards each of them is.
    #[must_use]
    pub(crate) const fn shards(self) -> u16 {
        match self {
            Self::ThreadPerMessage | Self::PoolThreadPerMessage | Self::ThreadPool => 1,
            Self::EventBased | Self::ProcessPool | Self::TwoStageThreads | Self::TwoStageProcesses => 16,
        }
    }

    /// Serves until the process ends. `ready` is called when messages are taken.
    ///
    /// # Errors
    /// When the socket cannot be read any more, or there is no thread or process to be had.
    pub(crate) fn serve(self, setup: &Setup, socket: Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
        match self {
            Self::EventBased => event_based::serve(setup, &socket, ready),
            Self::ThreadPerMessage => thread_per_message::serve(setup, socket, count, ready),
            Self::PoolThreadPerMessage => pool_thread_per_message::serve(setup, socket, count, ready),
            Self::ThreadPool => thread_pool::serve(setup, socket, count, ready),
            Self::ProcessPool => process_pool::serve(setup, &socket, count, ready),
            Self::TwoStageThreads => two_stage_threads::serve(setup, &socket, count, ready),
            Self::TwoStageProcesses => two_stage_processes::serve(setup, &socket, count, ready),
        }
    }

    /// Serves as a process of a server that another one has begun.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub(crate) fn join(self, setup: &Setup, socket: &Socket, member: &Member) -> io::Result<()> {
        match self {
            Self::ProcessPool => process_pool::join(setup, socket, member),
            Self::TwoStageProcesses => two_stage_processes::join(setup, socket, member),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "this architecture has one process")),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EventBased => "event-based",
            Self::ThreadPerMessage => "thread per message",
            Self::PoolThreadPerMessage => "pool thread per message",
            Self::ThreadPool => "thread pool",
            Self::ProcessPool => "process pool",
            Self::TwoStageThreads => "two-stage threads",
            Self::TwoStageProcesses => "two-stage processes",
        })
    }
}
