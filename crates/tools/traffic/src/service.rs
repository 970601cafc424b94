//! An emulated server of known capacity: messages wait in one queue, first come first served, for one of c servers, each of
//! which is busy with one for a time of a law. What is served is then handled as if it had just come.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::SeedableRng as _;
use strowger_foundation::{BufPool, Timestamp};

use crate::law::{Law, Rng};

/// Which messages need service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Applies {
    /// Requests that begin something: all outside dialogs but ACK and CANCEL.
    #[default]
    New,
    /// All requests.
    Requests,
    /// All messages.
    All,
}

/// What is emulated.
#[derive(Clone, Debug)]
pub struct ServiceLaw {
    /// How long a server is busy with a message.
    pub law: Law,
    /// How many servers.
    pub servers: usize,
    /// How many messages may wait, those in service not counted; more are dropped.
    pub queue: usize,
    /// Which messages need service.
    pub applies: Applies,
}

/// A message that is served.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    /// When it leaves the server.
    pub at: Timestamp,
    number: u64,
    /// The socket or connection that it came by.
    pub link: u32,
    /// Who sent it.
    pub peer: SocketAddr,
    /// The message.
    pub bytes: Vec<u8>,
}

impl Ord for Job {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The servers and their queue, as one thread sees them: what it brought to the queue is handled by itself.
#[derive(Debug)]
pub struct Service {
    applies: Applies,
    servers: Arc<Mutex<Servers>>,
    jobs: BinaryHeap<Reverse<Job>>,
    number: u64,
    pool: BufPool,
    /// Messages that found the queue full.
    pub dropped: u64,
    /// Messages served.
    pub served: u64,
    /// All the time that servers were busy.
    pub busy: Duration,
}

/// What all threads share.
#[derive(Debug)]
struct Servers {
    law: Law,
    queue: usize,
    rng: Rng,
    /// When each server is free.
    free_at: BinaryHeap<Reverse<Timestamp>>,
    /// When those that wait begin to be served: in order, since the queue is fair.
    begins: VecDeque<Timestamp>,
}

impl Servers {
    /// When a message that came at `arrived` is served, and how long that takes; `None` where the queue is full.
    fn take(&mut self, arrived: Timestamp) -> Option<(Timestamp, Duration)> {
        while self.begins.front().is_some_and(|begin| *begin <= arrived) {
            self.begins.pop_front();
        }
        if self.begins.len() > self.queue
            || (self.begins.len() == self.queue && self.free_at.peek().is_some_and(|Reverse(free)| *free > arrived))
        {
            return None;
        }
        let free = self.free_at.pop().map_or(Timestamp::ZERO, |Reverse(free)| free);
        let begin = free.max(arrived);
        let time = self.law.sample(&mut self.rng);
        let at = begin + time;
        self.free_at.push(Reverse(at));
        if begin > arrived {
            self.begins.push_back(begin);
        }
        Some((at, time))
    }
}

impl Service {
    /// Servers that are all free.
    #[must_use]
    pub fn new(law: ServiceLaw, seed: u64) -> Self {
        let ServiceLaw { law, servers, queue, applies } = law;
        let free_at = (0..servers.max(1)).map(|_| Reverse(Timestamp::ZERO)).collect();
        let rng = Rng::seed_from_u64(seed);
        let servers = Arc::new(Mutex::new(Servers { law, queue, rng, free_at, begins: VecDeque::new() }));
        Self::of(applies, servers)
    }

    /// The same servers and the same queue, for another thread.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self::of(self.applies, Arc::clone(&self.servers))
    }

    fn of(applies: Applies, servers: Arc<Mutex<Servers>>) -> Self {
        Self {
            applies,
            servers,
            jobs: BinaryHeap::new(),
            number: 0,
            pool: BufPool::new(),
            dropped: 0,
            served: 0,
            busy: Duration::ZERO,
        }
    }

    /// Whether a message needs service.
    #[must_use]
    pub fn applies(&self, bytes: &[u8]) -> bool {
        let is_request = !bytes.starts_with(b"SIP/2.0 ");
        match self.applies {
            Applies::All => true,
            Applies::Requests => is_request,
            Applies::New => {
                let follows = [&b"ACK "[..], b"BYE ", b"CANCEL ", b"PRACK "];
                is_request && !follows.iter().any(|method| bytes.starts_with(method))
            }
        }
    }

    /// A message came at `arrived`.
    pub fn handle_message(&mut self, arrived: Timestamp, (link, peer): (u32, SocketAddr), bytes: &[u8]) {
        let taken = self.servers.lock().unwrap_or_else(PoisonError::into_inner).take(arrived);
        let Some((at, time)) = taken else {
            self.dropped += 1;
            return;
        };
        self.busy += time;
        self.number += 1;
        let bytes = self.pool.copy_of(bytes);
        self.jobs.push(Reverse(Job { at, number: self.number, link, peer, bytes }));
    }

    /// When the next message is done.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.jobs.peek().map(|Reverse(job)| job.at)
    }

    /// A message that is done at `now`. Give it back by [`recycle`](Self::recycle).
    pub fn poll_done(&mut self, now: Timestamp) -> Option<Job> {
        if self.poll_timeout()? > now {
            return None;
        }
        self.served += 1;
        self.jobs.pop().map(|Reverse(job)| job)
    }

    /// The buffer of a message that was handled.
    pub fn recycle(&mut self, job: Job) {
        self.pool.give(job.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival::Arrivals;

    /// Mean time in the system, and the share that was dropped.
    fn run(rate: f64, law: &str, servers: usize, queue: usize, count: usize) -> (f64, f64) {
        let law = ServiceLaw { law: Law::parse(law).expect("a law"), servers, queue, applies: Applies::All };
        let mut service = Service::new(law, 5);
        let mut total = 0.0;
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        for at in Arrivals::poisson(rate).moments(9, 0, 1).take(count) {
            let now = Timestamp::from_nanos(at);
            while let Some(job) = service.poll_done(now) {
                let came = u64::from_be_bytes(*job.bytes.first_chunk().expect("eight bytes"));
                total += (job.at.as_nanos() - came) as f64 / 1e9;
                service.recycle(job);
            }
            service.handle_message(now, (0, peer), &at.to_be_bytes());
        }
        (total / service.served as f64, service.dropped as f64 / count as f64)
    }

    #[test]
    fn one_server_is_an_mm1_queue() {
        let (time, dropped) = run(700.0, "exp(mean=1ms)", 1, usize::MAX, 400_000);
        assert!((time * 1e3 / (1.0 / 0.3) - 1.0).abs() < 0.05, "{time}");
        assert!(dropped == 0.0);
    }

    #[test]
    fn threads_share_the_servers_and_the_queue() {
        let law =
            ServiceLaw { law: Law::constant(Duration::from_secs(1)), servers: 1, queue: 1, applies: Applies::All };
        let mut first = Service::new(law, 5);
        let mut second = first.sibling();
        let (peer, at) = (SocketAddr::from(([127, 0, 0, 1], 1)), Timestamp::from_millis);
        first.handle_message(at(0), (0, peer), b"a");
        second.handle_message(at(100), (0, peer), b"b");
        assert_eq!((first.poll_timeout(), second.poll_timeout()), (Some(at(1_000)), Some(at(2_000))));
        first.handle_message(at(200), (0, peer), b"c");
        assert_eq!((first.dropped, second.dropped), (1, 0));
        assert!(first.poll_done(at(3_000)).is_some_and(|job| job.bytes == b"a"));
        assert!(second.poll_done(at(3_000)).is_some_and(|job| job.bytes == b"b"));
    }

    #[test]
    fn several_servers_and_a_bounded_queue_follow_erlang() {
        // M/M/2 at rho 0.7: W = 1/(mu(1-rho²)).
        let (time, _) = run(1_400.0, "exp(mean=1ms)", 2, usize::MAX, 400_000);
        assert!((time * 1e3 / (1.0 / (1.0 - 0.49)) - 1.0).abs() < 0.05, "{time}");
        // Erlang's loss formula, two servers, two erlangs: B = 0.4.
        let (_, dropped) = run(2_000.0, "exp(mean=1ms)", 2, 0, 200_000);
        assert!((dropped - 0.4).abs() < 0.01, "{dropped}");
        // M/M/1/5 (four waiting) at rho 2.
        let (_, dropped) = run(2_000.0, "exp(mean=1ms)", 1, 4, 200_000);
        let rho: f64 = 2.0;
        let expected = (1.0 - rho) * rho.powi(5) / (1.0 - rho.powi(6));
        assert!((dropped - expected).abs() < 0.01, "{dropped} for {expected}");
    }
}
