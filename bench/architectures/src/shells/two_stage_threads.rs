//! Two-stage thread pool: a first thread receives and reads just enough to choose, by a hash of the user who is called, one of
//! the second stage's threads, each of which is event-based and has its users and their transactions to itself.
//!
//! In the paper (§6.3) this was the best for a stateful proxy on several processors, and it is what `strowger serve` refines: its
//! workers each receive too, in batches, and hand over only what is another's. There are no locks but those of the queues between
//! the stages, and the location table's, whose stripe no two threads ask for. Where a queue is full the first stage waits, and
//! messages do so in the socket.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use crate::shard_group::{ProcessContext, Setup};
use crate::socket::{Clock, MAX_DATAGRAM, PATIENCE, Socket};

/// Messages that wait for a thread of the second stage at most.
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

/// The loop of one thread of the second stage; it ends with the first.
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
