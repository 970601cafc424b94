//! Two-stage thread pool: the first thread receives and reads just enough to choose a second-stage thread by a hash
//! of the called user. Each second-stage thread is event-based and owns its users and their transactions.
//!
//! In the paper (§6.3), this was the best architecture for a stateful proxy on several processors. `strowger serve`
//! refines it: each worker receives, in batches, and passes on only messages that another worker owns. The only locks
//! are those of the queues between the stages and of the location table, of which no two threads use the same stripe.
//! While a queue is full, the first stage waits and messages queue in the socket.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use crate::shard_group::{ProcessContext, Setup};
use crate::socket::{Clock, MAX_DATAGRAM, PATIENCE, Socket};

/// Maximum number of messages waiting for a second-stage thread.
const QUEUE: usize = 64;

type Job = (SocketAddr, Box<[u8]>);

pub(super) fn serve(setup: &Setup, socket: &Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
    let rules = &ProcessContext::new(setup);
    let clock = Clock::start();
    socket.wait_in_receive()?;
    thread::scope(|scope| {
        let mut second: Vec<SyncSender<Job>> = Vec::new();
        for number in 0..u16::try_from(count).unwrap_or(u16::MAX) {
            let (give, take) = sync_channel(QUEUE);
            let name = format!("second-{number}");
            thread::Builder::new().name(name).spawn_scoped(scope, move || work(rules, number, &take, clock, socket))?;
            second.push(give);
        }
        ready();
        first(rules, socket, &second)
    })
}

/// Receives and dispatches.
fn first(rules: &ProcessContext, socket: &Socket, second: &[SyncSender<Job>]) -> io::Result<()> {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let Some((length, peer)) = socket.receive(&mut buffer)? else { continue };
        let bytes = &buffer[..length];
        let Some(letter) = rules.steer(bytes) else { continue };
        if let Some(owner) = second.get(usize::from(letter.brain)) {
            owner.send((peer, bytes.into())).map_err(|_| io::Error::other("a thread of the second stage has ended"))?;
        }
    }
}

/// Runs one thread of the second stage until the first stage ends.
fn work(rules: &ProcessContext, number: u16, jobs: &Receiver<Job>, clock: Clock, socket: &Socket) {
    let mut brain = rules.brain(number);
    let send = |peer: SocketAddr, bytes: &[u8]| socket.send(peer, bytes);
    loop {
        let patience = || brain.wakeup().saturating_since(clock.now()).min(PATIENCE);
        let job = match jobs.try_recv() {
            Ok(job) => Some(job),
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => jobs.recv_timeout(patience()).ok(),
        };
        let now = clock.now();
        if let Some((peer, message)) = job {
            brain.handle_datagram(rules, now, peer, &message, send);
        }
        if brain.wakeup() <= now {
            brain.handle_timeout(now, send);
        }
    }
}
