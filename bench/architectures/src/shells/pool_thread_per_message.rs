//! Pool thread per message: one thread receives and passes each message to a thread of a pool, which finishes it.
//!
//! In the paper this is the original architecture of sipd (row `thread pool` in table 2): thread per message without
//! the cost of creating threads. Each message costs at least two context switches, and the receiving thread is the
//! bottleneck on a machine with many processors. Here messages go through a bounded queue with one lock and two
//! condition variables. While it is full, the receiver waits and messages queue in the socket. The shards are behind
//! locks, see [`LockedShards`].

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::locked_shards::LockedShards;
use crate::shard_group::Setup;
use crate::socket::{MAX_DATAGRAM, PATIENCE, Socket};

/// Maximum number of messages waiting for a thread.
const QUEUE: usize = 64;

type Job = (SocketAddr, Box<[u8]>);

pub(super) fn serve(setup: &Setup, socket: Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
    let locked = LockedShards::start(setup, socket)?;
    let jobs = Arc::new(Jobs::default());
    for number in 0..count {
        let (locked, jobs) = (Arc::clone(&locked), Arc::clone(&jobs));
        thread::Builder::new().name(format!("pool-{number}")).spawn(move || work(&locked, &jobs))?;
    }
    let mut buffer = vec![0; MAX_DATAGRAM];
    locked.socket.wait_in_receive()?;
    ready();
    loop {
        if let Some((length, peer)) = locked.socket.receive(&mut buffer)? {
            jobs.give((peer, buffer[..length].into()));
        }
    }
}

fn work(locked: &LockedShards, jobs: &Jobs) {
    let mut own = locked.own();
    loop {
        match jobs.take(PATIENCE) {
            Some((peer, message)) => locked.handle(&mut own, peer, &message),
            None => locked.idle(&mut own),
        }
    }
}

/// Queue between the receiver and the pool.
#[derive(Default)]
struct Jobs {
    waiting: Mutex<VecDeque<Job>>,
    given: Condvar,
    taken: Condvar,
}

impl Jobs {
    /// Adds a job, waiting for space.
    fn give(&self, job: Job) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |waiting: &mut VecDeque<Job>| waiting.len() >= QUEUE;
        let mut waiting = self.taken.wait_while(waiting, is_full).unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(job);
        drop(waiting);
        self.given.notify_one();
    }

    /// Takes a job, waiting for at most `patience`.
    fn take(&self, patience: Duration) -> Option<Job> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |waiting: &mut VecDeque<Job>| waiting.is_empty();
        let (mut waiting, _) =
            self.given.wait_timeout_while(waiting, patience, is_empty).unwrap_or_else(PoisonError::into_inner);
        let was_full = waiting.len() >= QUEUE;
        let job = waiting.pop_front();
        drop(waiting);
        if was_full {
            self.taken.notify_one();
        }
        job
    }
}
