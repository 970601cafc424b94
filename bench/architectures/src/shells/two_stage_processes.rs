//! Two-stage processes: the first process receives and reads just enough to choose a second-stage process by a hash
//! of the called user. Each second-stage process is event-based and owns its users and their transactions.
//!
//! In the paper (§6.3), this is the two-stage thread pool with processes, over pipes or shared memory; it was not
//! measured. Here the first stage forwards over local datagram sockets, which preserve message boundaries, unlike
//! pipes. The second stage sends through the common UDP socket. There are no locks, and nothing else is shared. While
//! a queue is full, the first stage waits and messages queue in the socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use super::Architecture;
use crate::member::Member;
use crate::processes::{ChildProcesses, Inbox, Outbox, announce};
use crate::shard_group::{ProcessContext, Setup};
use crate::socket::{Clock, MAX_DATAGRAM, Socket, wait};

/// Runs the first stage.
pub(super) fn serve(setup: &Setup, socket: &Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
    let rules = ProcessContext::new(setup);
    let numbers = 0..u16::try_from(count).unwrap_or(u16::MAX);
    let _family = ChildProcesses::begin(Architecture::TwoStageProcesses, setup, socket, numbers)?;
    let mut outbox = Outbox::open(&Member::first(), rules.brains())?;
    socket.wait_in_receive()?;
    ready();
    loop {
        let Some((length, peer)) = socket.receive(outbox.buffer())? else { continue };
        if let Some(owner) = rules.steer(outbox.message(length)).map(|letter| letter.brain) {
            outbox.hand_over(owner, peer, length, None)?;
        }
    }
}

/// Runs a process of the second stage.
pub(super) fn join(setup: &Setup, socket: &Socket, member: &Member) -> io::Result<()> {
    let rules = ProcessContext::new(setup);
    let mut brain = rules.brain(member.number);
    let clock = Clock::start();
    let inbox = Inbox::open(member)?;
    let mut buffer = vec![0; MAX_DATAGRAM + 64];
    let send = |peer: SocketAddr, bytes: &[u8]| socket.send(peer, bytes);
    announce()?;
    loop {
        let received = inbox.receive(&mut buffer)?;
        let now = clock.now();
        let is_idle = received.is_none();
        if let Some((peer, message)) = received {
            brain.handle_datagram(&rules, now, peer, message, send);
        }
        if brain.wakeup() <= now {
            brain.handle_timeout(now, send);
        } else if is_idle {
            wait(inbox.as_fd(), now, brain.wakeup())?;
        }
    }
}
