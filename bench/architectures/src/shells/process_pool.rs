//! Process pool: identical processes that all wait on the one socket; who has received a message finishes it.
//!
//! In the paper (§6.2, and the SIP express router) the processes share the users and, for a stateful proxy, which it left
//! unmeasured, the transactions, in shared memory under locks. Here they share the socket and nothing else, and there is no lock:
//! a process has the users whom a hash gives it, with their bindings and the transactions of calls to them. A message that is
//! another's goes into that one's local socket: in a stateful proxy all but one in n, in a stateless one only the requests that
//! need a look-up or register. What the paper's processes paid in locks, these pay in hand-overs.
//!
//! A packet wakes one process (`EPOLLEXCLUSIVE`), as it does where processes sleep in `recvfrom`.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::Architecture;
use crate::processes::{ChildProcesses, Inbox, Member, Outbox, announce};
use crate::shard_group::{Affinity, ProcessContext, Setup, ShardGroup};
use crate::socket::{Clock, MAX_DATAGRAM, Socket, timespec};

pub(super) fn serve(setup: &Setup, socket: &Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
    // The others begin to hand over before this one would have opened its inbox.
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

/// What is this process's, and can be worked on while another's queue is full.
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

    /// Takes one message from the socket that all share; whether there was one.
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
    /// Deals with one message that another process has handed over; whether there was one.
    fn work_off(&self, rules: &ProcessContext) -> io::Result<bool> {
        let mut buffer = self.buffer.borrow_mut();
        let Some((peer, message)) = self.inbox.receive(&mut buffer)? else { return Ok(false) };
        let send = |peer: SocketAddr, bytes: &[u8]| self.socket.send(peer, bytes);
        self.brain.borrow_mut().handle_datagram(rules, self.clock.now(), peer, message, send);
        Ok(true)
    }

    /// Does what is due; when something is due again.
    fn handle_timeout(&self) -> strowger_foundation::Timestamp {
        let mut brain = self.brain.borrow_mut();
        let now = self.clock.now();
        if brain.wakeup() <= now {
            brain.handle_timeout(now, |peer, bytes| self.socket.send(peer, bytes));
        }
        brain.wakeup()
    }
}
