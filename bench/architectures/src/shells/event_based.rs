//! Event-based: one thread waits for a message or a timer, whichever comes first, and handles it to completion.
//!
//! In the paper (§6.2, §6.3), a single thread listens and processes; potentially blocking operations are made
//! non-blocking. It does not use a second processor. The same holds here. The only lock is the location table's,
//! which is uncontended. Nothing is shared: one shard group owns everything.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use crate::shard_group::{ProcessContext, Setup};
use crate::socket::{Clock, MAX_DATAGRAM, Socket, wait};

pub(super) fn serve(setup: &Setup, socket: &Socket, ready: impl FnOnce()) -> io::Result<()> {
    let rules = ProcessContext::new(setup);
    let mut brain = rules.brain(0);
    let clock = Clock::start();
    let mut buffer = vec![0; MAX_DATAGRAM];
    let send = |peer: SocketAddr, bytes: &[u8]| socket.send(peer, bytes);
    socket.wait_in_poll()?;
    ready();
    loop {
        let received = socket.receive(&mut buffer)?;
        let now = clock.now();
        if let Some((length, peer)) = received {
            brain.handle_datagram(&rules, now, peer, &buffer[..length], send);
        }
        if brain.wakeup() <= now {
            brain.handle_timeout(now, send);
        } else if received.is_none() {
            wait(socket.as_fd(), now, brain.wakeup())?;
        }
    }
}
