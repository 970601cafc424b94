//! The seven shells. Each drives the same shards with other threads and processes.

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

use crate::member::Member;
use crate::shard_group::Setup;
use crate::socket::Socket;

/// Server architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Architecture {
    /// One thread, one loop
    EventBased,
    /// A new thread for each message
    ThreadPerMessage,
    /// One thread receives and passes each message to a thread of a pool
    PoolThreadPerMessage,
    /// All threads receive
    ThreadPool,
    /// All processes receive
    ProcessPool,
    /// One thread receives; each of the others owns a set of users
    TwoStageThreads,
    /// One process receives; each of the others owns a set of users
    TwoStageProcesses,
}

impl Architecture {
    /// All architectures, in the paper's order.
    pub(crate) const ALL: [Self; 7] = [
        Self::EventBased,
        Self::ThreadPerMessage,
        Self::PoolThreadPerMessage,
        Self::ThreadPool,
        Self::ProcessPool,
        Self::TwoStageThreads,
        Self::TwoStageProcesses,
    ];

    /// Returns the default number of threads or processes. A pool has the size used in the papers, a second stage has
    /// one per core of the test machine; for thread-per-message it is the maximum.
    #[must_use]
    pub(crate) const fn usual_count(self) -> usize {
        match self {
            Self::EventBased => 1,
            Self::ThreadPerMessage => 1_000,
            Self::PoolThreadPerMessage | Self::ThreadPool | Self::ProcessPool => 4,
            Self::TwoStageThreads | Self::TwoStageProcesses => 2,
        }
    }

    /// Returns the number of shard groups over which transactions and users are divided: one per owner, or with
    /// locks, enough that threads seldom contend.
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

    /// Returns the number of shards per group.
    #[must_use]
    pub(crate) const fn shards(self) -> u16 {
        match self {
            Self::ThreadPerMessage | Self::PoolThreadPerMessage | Self::ThreadPool => 1,
            Self::EventBased | Self::ProcessPool | Self::TwoStageThreads | Self::TwoStageProcesses => 16,
        }
    }

    /// Serves until the process ends. Calls `ready` when the server accepts messages.
    ///
    /// # Errors
    /// If the socket cannot be read, or a thread or process cannot be started.
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

    /// Serves as a process of a server that another process started.
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
