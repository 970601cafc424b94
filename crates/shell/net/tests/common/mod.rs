//! A socket polled with mio, with a deadline.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use strowger_net::{BufferSizes, Flush, OrderingKey, PeerError, RecvBatch, SendBatch, UdpSocket};

/// Far more than any machine needs; bounds the time of a failing test.
const DEADLINE: Duration = Duration::from_secs(20);

/// One end of a conversation.
pub(crate) struct End {
    pub(crate) socket: UdpSocket,
    pub(crate) inbox: RecvBatch,
    pub(crate) outbox: SendBatch,
    /// All datagrams received by [`End::receive`]: peer and bytes.
    pub(crate) seen: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) errors: Vec<PeerError>,
    poll: Poll,
}

impl End {
    pub(crate) fn new(mut socket: UdpSocket) -> Self {
        let poll = Poll::new().expect("epoll");
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut socket, Token(0), interests).expect("a fresh socket");
        let (inbox, outbox) = (RecvBatch::new(), SendBatch::new());
        Self { socket, inbox, outbox, seen: Vec::new(), errors: Vec::new(), poll }
    }

    pub(crate) fn bind(ip: &str) -> Self {
        Self::new(bind(ip).expect("loopback has a free port"))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    pub(crate) fn commit(&mut self, peer: SocketAddr, bytes: &[u8]) {
        self.outbox.next_slot().extend_from_slice(bytes);
        self.outbox.commit(peer, OrderingKey::ALL);
    }

    pub(crate) fn send(&mut self) -> Flush {
        let Self { socket, outbox, errors, .. } = self;
        socket.send(outbox, |error| errors.push(error))
    }

    /// Receives until the socket is empty.
    pub(crate) fn receive(&mut self) {
        loop {
            self.socket.recv(&mut self.inbox).expect("a sound socket");
            self.seen.extend(self.inbox.iter().map(|datagram| (datagram.peer, datagram.bytes.to_vec())));
            if !self.inbox.is_full() {
                return;
            }
        }
    }

    /// Waits for events, receiving after each, until `count` datagrams have arrived.
    pub(crate) fn receive_until(&mut self, count: usize) {
        self.wait_until(|end, _| {
            end.receive();
            end.seen.len() >= count
        });
    }

    /// Calls `is_done` now and after each event of the socket, passing whether the event is an error, until it
    /// returns true.
    pub(crate) fn wait_until(&mut self, mut is_done: impl FnMut(&mut Self, bool) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        let mut events = Events::with_capacity(8);
        let mut is_error = false;
        while !is_done(self, is_error) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing more came; {} datagrams, {:?}", self.seen.len(), self.errors);
            self.poll.poll(&mut events, Some(left)).expect("epoll");
            is_error = events.iter().any(mio::event::Event::is_error);
        }
    }
}

pub(crate) fn bind(ip: &str) -> Result<UdpSocket, strowger_net::BindError> {
    UdpSocket::bind(SocketAddr::new(ip.parse().expect("an address"), 0), BufferSizes::DEFAULT)
}

/// Returns the loopback addresses of this machine.
pub(crate) fn loopbacks() -> Vec<&'static str> {
    let mut found = vec!["127.0.0.1"];
    match bind("::1") {
        Ok(_) => found.push("::1"),
        Err(error) => eprintln!("skipped for IPv6: {error}"),
    }
    found
}

/// A port without a listener. No other process can bind it while this lives; its socket receives only from itself.
pub(crate) struct DeadPeer {
    pub(crate) addr: SocketAddr,
    _reserved: std::net::UdpSocket,
}

impl DeadPeer {
    pub(crate) fn new(ip: &str) -> Self {
        let socket = std::net::UdpSocket::bind((ip, 0)).expect("loopback has a free port");
        let addr = socket.local_addr().expect("bound");
        socket.connect(addr).expect("its own address");
        Self { addr, _reserved: socket }
    }
}

/// Calls `is_done` repeatedly until it returns true, for conditions without an event.
pub(crate) fn spin_until(mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_done() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::yield_now();
    }
}
