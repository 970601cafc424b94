//! Process pool: identical processes wait on one socket; the one that receives a message finishes it.
//!
//! In the paper (§6.2, and the SIP express router), the processes share the users in shared memory under locks, and
//! for a stateful proxy, which the paper did not measure, also the transactions. Here they share only the socket,
//! without locks: a hash assigns users to processes, with their bindings and the transactions of calls to them. A
//! process passes a message of another process's user to that process's local socket: all but one in n messages in a
//! stateful proxy, only requests that need a lookup or register in a stateless one. These processes pay in message
//! passing what the paper's pay in locks.
//!
//! A packet wakes one process (`EPOLLEXCLUSIVE`), as it does when processes block in `recvfrom`.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::Architecture;
use crate::member::Member;
use crate::processes::{ChildProcesses, Inbox, Outbox, announce};
use crate::shard_group::{Affinity, ProcessContext, Setup, ShardGroup};
use crate::socket::{Clock, MAX_DATAGRAM, Socket, timespec};

pub(super) fn serve(setup: &Setup, socket: &Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
    // The inbox must be open before the other processes start to pass messages.
    let worker = Worker::new(setup, socket, &Member::first())?;
    let others = 1..u16::try_from(count).unwrap_or(u16::MAX);
    let _family = ChildProcesses::begin(Architecture::ProcessPool, setup, socket, others)?;
    ready();
    worker.run()
}

pub(super) fn join(setup: &Setup, socket: &Socket, member: &Member) -> io::Result<()> {
    let worker = Worker::new(setup, socket, member)?;
    announce()?;
    worker.run()
}

/// One process of the pool.
struct Worker<'a> {
    number: u16,
    rules: ProcessContext,
    socket: &'a Socket,
    outbox: Outbox,
    own: ProcessState<'a>,
    events: OwnedFd,
}

/// State of this process that can be worked on while another process's queue is full.
struct ProcessState<'a> {
    brain: RefCell<ShardGroup>,
    inbox: Inbox,
    buffer: RefCell<Vec<u8>>,
    socket: &'a Socket,
    clock: Clock,
}

impl<'a> Worker<'a> {
    fn new(setup: &Setup, socket: &'a Socket, member: &Member) -> io::Result<Self> {
        let rules = ProcessContext::new(setup);
        let inbox = Inbox::open(member)?;
        socket.wait_in_poll()?;
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&events, socket.as_fd(), EventData::new_u64(0), EventFlags::IN | EventFlags::EXCLUSIVE)?;
        epoll::add(&events, inbox.as_fd(), EventData::new_u64(1), EventFlags::IN)?;
        let own = ProcessState {
            brain: RefCell::new(rules.brain(member.number)),
            inbox,
            buffer: RefCell::new(vec![0; MAX_DATAGRAM + 64]),
            socket,
            clock: Clock::start(),
        };
        let outbox = Outbox::open(member, setup.brains)?;
        Ok(Self { number: member.number, rules, socket, outbox, own, events })
    }

    fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(2);
        loop {
            let has_worked = self.receive()? | self.own.work_off(&self.rules)?;
            let next = self.own.handle_timeout();
            if !has_worked {
                ready.clear();
                let timeout = timespec(self.own.clock.now(), next);
                match epoll::wait(&self.events, spare_capacity(&mut ready), timeout.as_ref()) {
                    Err(error) if error != rustix::io::Errno::INTR => return Err(error.into()),
                    _ => {}
                }
            }
        }
    }

    /// Receives and handles one message from the shared socket. Returns whether there was one.
    fn receive(&mut self) -> io::Result<bool> {
        let Self { number, rules, socket, outbox, own, .. } = self;
        let Some((length, peer)) = socket.receive(outbox.buffer())? else { return Ok(false) };
        let Some(letter) = rules.steer(outbox.message(length)) else { return Ok(true) };
        if letter.bound == Affinity::Nothing || letter.brain == *number {
            let send = |peer: SocketAddr, bytes: &[u8]| socket.send(peer, bytes);
            own.brain.borrow_mut().handle_message(own.clock.now(), peer, &letter, send);
        } else {
            let owner = letter.brain;
            outbox.hand_over(owner, peer, length, Some((&own.inbox, &|| own.work_off(rules))))?;
        }
        Ok(true)
    }
}

impl ProcessState<'_> {
    /// Handles one message passed by another process. Returns whether there was one.
    fn work_off(&self, rules: &ProcessContext) -> io::Result<bool> {
        let mut buffer = self.buffer.borrow_mut();
        let Some((peer, message)) = self.inbox.receive(&mut buffer)? else { return Ok(false) };
        let send = |peer: SocketAddr, bytes: &[u8]| self.socket.send(peer, bytes);
        self.brain.borrow_mut().handle_datagram(rules, self.clock.now(), peer, message, send);
        Ok(true)
    }

    /// Runs due timers and returns the time of the next one.
    fn handle_timeout(&self) -> strowger_foundation::Timestamp {
        let mut brain = self.brain.borrow_mut();
        let now = self.clock.now();
        if brain.wakeup() <= now {
            brain.handle_timeout(now, |peer, bytes| self.socket.send(peer, bytes));
        }
        brain.wakeup()
    }
}
