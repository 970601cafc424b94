//! A worker's socket on one listener, with what waits to leave through it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::{Interest, Registry, Token};
use strowger_foundation::Timestamp;
use strowger_net::{
    Cause, Flush, OrderingKey, PeerError, ReceiverSelection, Receivers, RecvBatch, SendBatch, UdpSocket,
};

use crate::options::Spread;

/// Peers that became unreachable and have not been told to the shards yet; past this many the hints are forgotten, and
/// the transactions end by their timers.
pub(crate) const MAX_DELIVERY_FAILURES: usize = 256;

/// A socket and its state as mio's edges have told it.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    registry: Arc<Registry>,
    token: Token,
    batch: SendBatch,
    /// Whether something may wait to be received.
    pub(crate) is_readable: bool,
    /// Whether the send buffer was full and mio, which is asked for as long, has not said since that it is not.
    is_blocked: bool,
    /// Whether mio tells of it; where it does not the socket is [asked](Self::ask).
    pub(crate) is_registered: bool,
    /// Whether mio refused to tell of it when it was last asked for that.
    is_refused: bool,
    /// When to try to receive again after an error.
    pub(crate) retry: Option<Timestamp>,
    failures: Vec<DeliveryFailure>,
}

/// A datagram that did not get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryFailure {
    /// The peer cannot be reached.
    Unreachable(SocketAddr),
    /// It did not leave this machine, as where the socket's address is another's now or too much waits already: that says nothing of
    /// the peer.
    Unsent(SocketAddr),
}

impl DatagramSocket {
    /// Registers `socket` under `token`.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn new(mut socket: UdpSocket, registry: &Arc<Registry>, token: Token) -> io::Result<Self> {
        // Not for writing: each datagram that has left makes room, and each time the kernel would tell.
        registry.register(&mut socket, token, Interest::READABLE)?;
        // What arrived before has made no edge that we could see.
        Ok(Self {
            socket,
            registry: Arc::clone(registry),
            token,
            batch: SendBatch::new(),
            is_readable: true,
            is_blocked: false,
            is_registered: true,
            is_refused: false,
            retry: None,
            failures: Vec::with_capacity(MAX_DELIVERY_FAILURES),
        })
    }

    /// Has mio tell no more of this socket, which is then to be [asked](Self::ask) for as long. While a socket is waited for, each
    /// datagram that arrives and each one that has left looks for who waits, under a lock; a worker that never sleeps has no need
    /// of that. Not while it is blocked: then mio is to say when there is room.
    pub(crate) fn deregister(&mut self) {
        if self.is_registered && !self.is_blocked {
            // Where the kernel refuses, mio goes on telling.
            self.is_registered = self.registry.deregister(&mut self.socket).is_err();
        }
    }

    /// Has mio tell of this socket again: at once, where there is something already. Whether it does.
    pub(crate) fn reregister(&mut self) -> bool {
        if !self.is_registered {
            self.wait_for(Interest::READABLE);
        }
        self.is_registered
    }

    /// Finds out what mio would tell of a socket that it does not tell of.
    pub(crate) fn poll_readiness(&mut self) {
        if !self.is_registered {
            self.is_readable |= self.retry.is_none();
            self.take_errors();
        }
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// How many messages wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.batch.len()
    }

    /// Receives a batch; see [`UdpSocket::recv`].
    ///
    /// # Errors
    /// When the socket cannot be read now.
    pub(crate) fn recv(&mut self, inbox: &mut RecvBatch) -> io::Result<()> {
        let result = self.socket.recv(inbox);
        self.is_readable = result.is_ok() && inbox.is_full();
        result
    }

    /// What mio had to say.
    pub(crate) fn on_event(&mut self, event: &mio::event::Event) {
        self.is_readable |= event.is_readable();
        if self.is_blocked && event.is_writable() {
            self.is_blocked = false;
            self.wait_for(Interest::READABLE);
        }
        if event.is_error() {
            self.take_errors();
        }
    }

    fn take_errors(&mut self) {
        while let Some(error) = self.socket.poll_error() {
            note(&mut self.failures, error);
        }
    }

    /// Lets `message` leave for `peer` with the next batch, in its order within its `strand`, and takes an empty buffer in its place.
    pub(crate) fn send(&mut self, peer: SocketAddr, message: &mut Vec<u8>, strand: OrderingKey) {
        std::mem::swap(self.batch.next_slot(), message);
        if !self.batch.commit(peer, strand) {
            push(&mut self.failures, DeliveryFailure::Unsent(peer));
        }
        if self.batch.is_full() {
            self.flush();
        }
    }

    /// Sends what waits, unless the socket is known to be full.
    pub(crate) fn flush(&mut self) {
        if self.batch.is_empty() || self.is_blocked {
            return;
        }
        let Self { socket, batch, failures: lost, .. } = self;
        if socket.send(batch, |error| note_unsent(lost, error)) == Flush::Blocked {
            self.is_blocked = true;
            self.wait_for(Interest::READABLE | Interest::WRITABLE);
        }
    }

    /// Says what the kernel is to tell of. What is so already it tells at once.
    fn wait_for(&mut self, interests: Interest) {
        let Self { registry, socket, token, .. } = self;
        let outcome = if self.is_registered {
            registry.reregister(socket, *token, interests)
        } else {
            registry.register(socket, *token, interests)
        };
        self.is_registered |= outcome.is_ok();
        let was_refused = std::mem::replace(&mut self.is_refused, outcome.is_err());
        if let Err(error) = outcome {
            if !was_refused {
                let address = self.socket.local_addr();
                tracing::error!(
                    %address, %error,
                    "the kernel cannot tell when a socket is ready; raise fs.epoll.max_user_watches, or free memory: until it \
                     can, the worker asks over and over, which costs processor time"
                );
            }
            // To try with every round is dear, and better than never.
            self.is_blocked = false;
        }
    }

    /// Whether there are [lost peers](Self::poll_lost).
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// A peer to which nothing was sent.
    pub(crate) fn poll_failure(&mut self) -> Option<DeliveryFailure> {
        self.failures.pop()
    }
}

/// Which sockets of an address receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    /// The first so many workers.
    pub(crate) active: usize,
    /// Of so many.
    pub(crate) all: usize,
    pub(crate) spread: Spread,
    /// Whether each has a second socket, for new work.
    pub(crate) is_sorted: bool,
}

impl Receiving {
    /// Tells the kernel, by any socket of the address; whether it does so.
    pub(crate) fn apply(self, socket: &UdpSocket) -> bool {
        let receivers = match (self.spread, self.active) {
            // What the kernel does by itself.
            (Spread::Peers, active) if active >= self.all => Receivers::Any,
            (Spread::Peers, active) => Receivers::ByPeer(active),
            (Spread::Packets, active) => Receivers::ByPacket(active),
        };
        let choice = ReceiverSelection { receivers, sorted: self.is_sorted.then_some(self.all) };
        let outcome = socket.choose_receivers(choice);
        if let Err(error) = &outcome {
            let address = socket.local_addr();
            tracing::debug!(%address, %error, "the kernel spreads datagrams over all sockets");
        }
        outcome.is_ok()
    }
}

/// Keeps what says that the peer itself cannot be reached: not what concerns one message or passes.
//= rfc3261#18.4
fn note(lost: &mut Vec<DeliveryFailure>, error: PeerError) {
    if matches!(error.cause, Cause::Refused | Cause::Unreachable | Cause::Forbidden) {
        push(lost, DeliveryFailure::Unreachable(error.peer));
    }
}

/// The same of a datagram that the kernel did not take. Without a route it may be the peer's or ours: calls go elsewhere, and
/// a probe says nothing. Nor does it where our own device had no room.
fn note_unsent(lost: &mut Vec<DeliveryFailure>, error: PeerError) {
    note(lost, error);
    if matches!(error.cause, Cause::Unreachable | Cause::Congested) || error.cause.is_of_source() {
        // The last is the first that is told.
        push(lost, DeliveryFailure::Unsent(error.peer));
    }
}

fn push(lost: &mut Vec<DeliveryFailure>, one: DeliveryFailure) {
    // A burst to a dead peer brings one error a datagram.
    if lost.len() < MAX_DELIVERY_FAILURES && !lost.contains(&one) {
        lost.push(one);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use mio::Poll;
    use strowger_net::{BufferSizes, SEND_QUEUE};

    use super::*;

    const TARGET: u16 = 5060;

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    fn outlet() -> (Poll, DatagramSocket) {
        let poll = Poll::new().expect("epoll");
        let socket = UdpSocket::bind(peer(0), BufferSizes::DEFAULT).expect("a free port");
        let registry = Arc::new(poll.registry().try_clone().expect("a file descriptor"));
        let outlet = DatagramSocket::new(socket, &registry, Token(1)).expect("a socket that is new");
        (poll, outlet)
    }

    /// What mio says of the outlet now.
    fn told(poll: &mut Poll) -> Option<mio::event::Event> {
        let mut events = mio::Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::ZERO)).expect("epoll");
        events.iter().next().cloned()
    }

    #[test]
    fn who_is_not_told_of_a_socket_asks_it_and_misses_nothing_when_told_again() {
        let (mut poll, mut outlet) = outlet();
        let phone = std::net::UdpSocket::bind(peer(0)).expect("a free port");
        let mut inbox = RecvBatch::new();
        let address = outlet.socket().local_addr();
        let call = || phone.send_to(b"x", address).expect("loopback takes it");
        outlet.recv(&mut inbox).expect("a sound socket");
        outlet.deregister();
        call();
        assert!(told(&mut poll).is_none() && !outlet.is_readable);
        outlet.poll_readiness();
        assert!(outlet.is_readable);
        outlet.recv(&mut inbox).expect("a sound socket");
        assert_eq!(inbox.len(), 1);
        call();
        assert!(outlet.reregister());
        let event = told(&mut poll).expect("what came before is told of");
        outlet.on_event(&event);
        assert!(outlet.is_readable);
    }

    #[test]
    fn a_socket_that_cannot_be_told_of_is_still_asked() {
        let (_poll, mut outlet) = outlet();
        // It is in the set all the same, so it cannot be put there.
        outlet.is_registered = false;
        assert!(!outlet.reregister());
        outlet.is_readable = false;
        outlet.poll_readiness();
        assert!(outlet.is_readable);
    }

    #[test]
    fn a_full_socket_is_waited_for_whoever_asked_it_before() {
        let (mut poll, mut outlet) = outlet();
        outlet.deregister();
        outlet.is_blocked = true;
        outlet.wait_for(Interest::READABLE | Interest::WRITABLE);
        outlet.deregister();
        let event = told(&mut poll).expect("there is room");
        outlet.on_event(&event);
        assert!(!outlet.is_blocked && outlet.is_registered);
    }

    #[test]
    fn a_full_queue_of_the_device_says_nothing_of_the_peer() {
        let mut lost = Vec::new();
        note_unsent(&mut lost, PeerError { peer: peer(TARGET), cause: Cause::Congested });
        assert_eq!(lost, [DeliveryFailure::Unsent(peer(TARGET))]);
        // As it came back from the network it is another's queue.
        note(&mut lost, PeerError { peer: peer(TARGET), cause: Cause::Congested });
        assert_eq!(lost.len(), 1);
    }

    #[test]
    fn what_finds_no_room_behind_a_full_socket_is_told_of_whoever_was_first() {
        let (_poll, mut outlet) = outlet();
        outlet.is_blocked = true;
        for _ in 0..SEND_QUEUE {
            outlet.send(peer(TARGET), &mut vec![b'x'], OrderingKey::ALL);
        }
        assert!(!outlet.has_failures(), "these wait");
        for _ in 0..3 {
            outlet.send(peer(TARGET), &mut vec![b'x'], OrderingKey::ALL);
        }
        for port in 1..=1_000 {
            outlet.send(peer(port), &mut vec![b'x'], OrderingKey::ALL);
        }
        let lost: Vec<DeliveryFailure> = std::iter::from_fn(|| outlet.poll_failure()).collect();
        assert_eq!(lost.len(), MAX_DELIVERY_FAILURES);
        assert!(
            lost.contains(&DeliveryFailure::Unsent(peer(TARGET))) && lost.contains(&DeliveryFailure::Unsent(peer(255)))
        );
        assert_eq!(outlet.unsent(), SEND_QUEUE);
    }
}
