//! One worker, driven round by round from the test's own thread.

use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use mio::{Events, Poll, Token};
use strowger_foundation::{ShardId, Timestamp};
use strowger_net::Clock;

use super::puppet::Stage;
use super::{options, phone, snapshot, sockets, spin_until};
use crate::balance::Balance;
use crate::contact::Contact;
use crate::desk::{Common, Desk};
use crate::exits::{Exits, Neighbour, Port};
use crate::handover::{self, Doorbell, Receiver};
use crate::index::Index;
use crate::outlet::Outlet;
use crate::panics::PanicLog;
use crate::streams::Streams;
use crate::worker::{DOORBELL, LOOKS_AT_ONE_SOCKET, Worker};
use crate::{Counters, Socket, StreamLimits, WorkerOptions};

/// A worker that nobody runs, the first of two, and the far end of the ring to the second.
pub(super) struct Alone {
    pub(super) worker: Worker<Stage>,
    pub(super) address: SocketAddr,
    /// Of its second listener.
    other_address: SocketAddr,
    pub(super) contact: Arc<Contact>,
    to_second: Receiver,
    _second: Poll,
    events: Events,
}

impl Alone {
    pub(super) fn new(ring_capacity: usize) -> Self {
        let sockets = sockets(1, 2).pop().expect("one worker");
        let [address, other_address] = [0, 1].map(|listener: usize| sockets[listener].local_addr());
        let snapshot = snapshot(&sockets);
        let contact =
            |poll: &Poll| Arc::new(Contact::new(Doorbell::new(poll.registry(), DOORBELL).expect("a file descriptor")));
        let (poll, second) = (Poll::new().expect("epoll"), Poll::new().expect("epoll"));
        let registry = Arc::new(poll.registry().try_clone().expect("a file descriptor"));
        let port = |(token, socket)| match socket {
            Socket::Udp(socket) => Port::Udp(Outlet::new(socket, &registry, Token(token)).expect("a fresh socket")),
            Socket::Tcp(_) => panic!("datagrams"),
        };
        let ports = sockets.into_iter().enumerate().map(port).collect();
        let balance = Balance::frozen(2, 2, 32);
        let owners = balance.owners().to_vec();
        let common = Common {
            maker: Stage,
            panics: Arc::new(PanicLog::default()),
            arrivals: vec![Mutex::default(), Mutex::default()],
            moving: Arc::default(),
            balance: Mutex::new(balance),
        };
        let (queue, _) = sync_channel(1);
        let (give, to_second) = handover::ring(ring_capacity);
        let (_, take) = handover::ring(ring_capacity);
        let second_contact = contact(&second);
        let neighbour = Neighbour::new(second_contact, give, take);
        let contact = contact(&poll);
        let registry = poll.registry().try_clone().expect("a file descriptor");
        let exits = Exits {
            index: 0,
            contact: Arc::clone(&contact),
            ports,
            streams: Streams::new(0, registry, Arc::new(Index::new(1, 1)), StreamLimits::default(), 1),
            neighbours: vec![None, Some(neighbour)],
            resolver: None,
            keeper: None,
            records: Vec::new(),
            tracer: Arc::default(),
            unconnected: Vec::new(),
            counters: Counters::default(),
            owed_since: None,
            owners,
        };
        let desk = Desk::new(Arc::new(common), exits, snapshot, queue);
        let worker = Worker::new(poll, Clock::start(), desk, &WorkerOptions::default());
        Self { worker, address, other_address, contact, to_second, _second: second, events: Events::with_capacity(8) }
    }

    /// One wait and one round.
    pub(super) fn step(&mut self) {
        self.worker.wait(&mut self.events).expect("epoll");
        self.worker.handle_events(&self.events);
        self.worker.round();
    }
}

#[test]
fn a_neighbour_that_does_not_keep_up_costs_its_own_messages_only() {
    let mut alone = Alone::new(4);
    let phone = phone(alone.address);
    for number in 0..10 {
        phone.send(&options(&format!("1-{number}"))).expect("loopback takes it");
        phone.send(&options(&format!("2-{number}"))).expect("loopback takes it");
    }
    let mut status = alone.contact.board.read(Timestamp::ZERO);
    spin_until(|| {
        alone.step();
        alone.worker.post(Clock::start().now());
        status = alone.contact.board.read(Timestamp::ZERO);
        status.net.received == 20
    });
    assert_eq!((status.worker.handed_over, status.worker.handover_drops), (4, 6));
    assert_eq!((status.shard.requests, status.net.sent), (10, 10), "its own messages were all answered");
    let waiting: Vec<_> = std::iter::from_fn(|| alone.to_second.poll()).collect();
    let expected: Vec<_> = (0..4).map(|number| options(&format!("1-{number}"))).collect();
    assert_eq!(waiting.iter().map(|handed| handed.bytes.clone()).collect::<Vec<_>>(), expected);
    assert!(
        waiting
            .iter()
            .all(|handed| handed.shard == ShardId(1) && handed.flow.peer == phone.local_addr().expect("bound"))
    );
}

#[test]
fn a_socket_that_always_has_something_leaves_the_others_their_turn() {
    let mut alone = Alone::new(4);
    let (busy, seldom) = (phone(alone.address), phone(alone.other_address));
    seldom.set_nonblocking(true).expect("a sound socket");
    // Whenever the worker looks something is there, so it waits awake.
    let step = |alone: &mut Alone| {
        busy.send(&options("0-busy")).expect("loopback takes it");
        alone.step();
    };
    (0..64).for_each(|_| step(&mut alone));
    for number in 0..20 {
        seldom.send(&options("0-seldom")).expect("loopback takes it");
        let heard = (0..2 * LOOKS_AT_ONE_SOCKET).find(|_| {
            step(&mut alone);
            seldom.recv(&mut [0; 2048]).is_ok()
        });
        assert!(heard.is_some(), "question {number}");
        // The worker watches the busy one again.
        (0..LOOKS_AT_ONE_SOCKET).for_each(|_| step(&mut alone));
    }
}
