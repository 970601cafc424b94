//! A worker's datagram socket for one listener, with its send queue.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::{Interest, Registry, Token};
use strowger_foundation::Timestamp;
use strowger_net::{
    Cause, Flush, OrderingKey, PeerError, RealNanos, ReceiverSelection, Receivers, RecvBatch, SEND_BATCH, SendBatch,
    SendStamp, UdpSocket,
};

use crate::options::PacketSteering;

/// Maximum number of delivery failures not yet reported to the shards. Further ones are discarded, and the
/// transactions end by their timers.
pub(crate) const MAX_DELIVERY_FAILURES: usize = 256;

/// A socket and its readiness, tracked from mio's edges.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    registry: Arc<Registry>,
    token: Token,
    batch: SendBatch,
    /// Whether input may be waiting.
    pub(crate) is_readable: bool,
    /// Whether the send buffer was full and mio has not reported it writable since. The socket is registered for
    /// writing while this is set.
    is_blocked: bool,
    /// Whether it is registered with mio; if not, the worker [polls](Self::poll_readiness) it.
    pub(crate) is_registered: bool,
    /// Whether the last registration failed.
    is_refused: bool,
    /// When to retry receiving after an error.
    pub(crate) retry: Option<Timestamp>,
    failures: Vec<DeliveryFailure>,
}

/// A datagram that was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryFailure {
    /// The peer is unreachable.
    Unreachable(SocketAddr),
    /// The datagram did not leave this machine, for example because the socket's address has moved to another machine
    /// or the queue is full. Says nothing about the peer.
    Unsent(SocketAddr),
}

impl DatagramSocket {
    /// Registers `socket` under `token`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new(mut socket: UdpSocket, registry: &Arc<Registry>, token: Token) -> io::Result<Self> {
        // Not for writing: every sent datagram frees buffer space, and the kernel would report each time.
        registry.register(&mut socket, token, Interest::READABLE)?;
        // Datagrams that arrived before registration triggered no edge.
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

    /// Deregisters this socket from mio; it must then be [polled](Self::poll_readiness).
    ///
    /// While a socket is registered, each received and each sent datagram looks for waiters under a lock, which a
    /// worker that never sleeps does not need. A blocked socket stays registered: mio has to report when there is
    /// room.
    pub(crate) fn deregister(&mut self) {
        if self.is_registered && !self.is_blocked {
            // If the kernel refuses, the socket stays registered.
            self.is_registered = self.registry.deregister(&mut self.socket).is_err();
        }
    }

    /// Registers this socket with mio again; an event follows at once if it is ready. Returns whether it is
    /// registered.
    pub(crate) fn reregister(&mut self) -> bool {
        if !self.is_registered {
            self.wait_for(Interest::READABLE);
        }
        self.is_registered
    }

    /// Polls the readiness of a deregistered socket.
    pub(crate) fn poll_readiness(&mut self) {
        if !self.is_registered {
            self.is_readable |= self.retry.is_none();
            self.take_errors();
        }
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Returns the number of messages waiting to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.batch.len()
    }

    /// Receives a batch; see [`UdpSocket::recv`].
    ///
    /// # Errors
    /// When the socket cannot be read.
    pub(crate) fn recv(&mut self, inbox: &mut RecvBatch) -> io::Result<()> {
        let result = self.socket.recv(inbox);
        self.is_readable = result.is_ok() && inbox.is_full();
        result
    }

    /// Handles a mio event.
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

    /// Takes ICMP errors and send stamps from the socket.
    pub(crate) fn take_errors(&mut self) {
        while let Some(error) = self.socket.poll_error() {
            note(&mut self.failures, error);
        }
    }

    /// Queues `message` for `peer` with the next batch, in order within its ordering key, and leaves an empty buffer
    /// in its place.
    pub(crate) fn send(&mut self, peer: SocketAddr, message: &mut Vec<u8>, ordering_key: OrderingKey) {
        std::mem::swap(self.batch.next_slot(), message);
        if !self.batch.commit(peer, ordering_key) {
            push(&mut self.failures, DeliveryFailure::Unsent(peer));
        }
        if self.batch.is_full() {
            self.flush();
        }
    }

    /// Returns whether queueing another datagram sends all of them.
    pub(crate) fn flushes_with_next(&self) -> bool {
        !self.is_blocked && self.batch.len() + 1 >= SEND_BATCH
    }

    /// Requests a stamp of the first datagram of the next flush; see [`UdpSocket::stamp_next`].
    pub(crate) fn stamp_next(&mut self, begun: RealNanos, tag: u32) {
        self.socket.stamp_next(begun, tag);
    }

    /// Requests stamps anew, because another process may have changed the socket.
    pub(crate) fn restart_send_stamps(&mut self) {
        if self.socket.has_send_stamps() && self.socket.enable_send_stamps().is_err() {
            self.socket.abandon_send_stamps();
        }
    }

    /// Requests no stamps any more, because another process does.
    pub(crate) fn abandon_send_stamps(&mut self) {
        self.socket.abandon_send_stamps();
    }

    /// Returns the next stamp.
    pub(crate) fn poll_send_stamp(&mut self) -> Option<SendStamp> {
        self.socket.poll_send_stamp()
    }

    /// Sends waiting datagrams unless the socket is known to be blocked.
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

    /// Sets the interests. mio reports conditions that hold already at once.
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
                    "a socket cannot be registered with epoll; raise fs.epoll.max_user_watches, or free memory; until then \
                     the worker polls the socket continuously, which costs CPU time"
                );
            }
            // Retrying in every round is expensive, but better than never sending.
            self.is_blocked = false;
        }
    }

    /// Returns whether there are [delivery failures](Self::poll_failure).
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Returns the next delivery failure.
    pub(crate) fn poll_failure(&mut self) -> Option<DeliveryFailure> {
        self.failures.pop()
    }
}

/// Which sockets of an address receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    /// Number of workers that receive, the first ones.
    pub(crate) active: usize,
    /// Total number of workers.
    pub(crate) all: usize,
    pub(crate) steering: PacketSteering,
    /// Whether each has a second socket for new work.
    pub(crate) is_sorted: bool,
}

impl Receiving {
    /// Applies the selection through any socket of the address; returns whether the kernel accepted it.
    pub(crate) fn apply(self, socket: &UdpSocket) -> bool {
        let receivers = match (self.steering, self.active) {
            // This is the kernel's default.
            (PacketSteering::Peers, active) if active >= self.all => Receivers::Any,
            (PacketSteering::Peers, active) => Receivers::ByPeer(active),
            (PacketSteering::Packets, active) => Receivers::ByPacket(active),
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

/// Records an error if it says that the peer is unreachable; ignores errors that concern a single message or are
/// transient.
//= rfc3261#18.4:unreachable
fn note(lost: &mut Vec<DeliveryFailure>, error: PeerError) {
    if matches!(error.cause, Cause::Refused | Cause::Unreachable | Cause::Forbidden) {
        push(lost, DeliveryFailure::Unreachable(error.peer));
    }
}

/// Records an error of a datagram that the kernel refused. Without a route, the cause may be the peer's network or
/// ours: calls go elsewhere, and a probe is inconclusive. It is inconclusive too if our own device had no room.
fn note_unsent(lost: &mut Vec<DeliveryFailure>, error: PeerError) {
    note(lost, error);
    if matches!(error.cause, Cause::Unreachable | Cause::Congested) || error.cause.is_of_source() {
        // The list is reported from its end.
        push(lost, DeliveryFailure::Unsent(error.peer));
    }
}

fn push(lost: &mut Vec<DeliveryFailure>, one: DeliveryFailure) {
    // A burst to an unreachable peer causes one error per datagram.
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

    /// Returns the socket's pending mio event.
    fn told(poll: &mut Poll) -> Option<mio::event::Event> {
        let mut events = mio::Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::ZERO)).expect("epoll");
        events.iter().next().cloned()
    }

    #[test]
    fn a_deregistered_socket_is_polled_and_misses_nothing_afterwards() {
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
    fn a_socket_that_cannot_register_is_still_polled() {
        let (_poll, mut outlet) = outlet();
        // It is still registered, so registering it fails.
        outlet.is_registered = false;
        assert!(!outlet.reregister());
        outlet.is_readable = false;
        outlet.poll_readiness();
        assert!(outlet.is_readable);
    }

    #[test]
    fn a_full_socket_is_waited_for_even_when_deregistered() {
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
    fn a_full_device_queue_is_not_a_peer_failure() {
        let mut lost = Vec::new();
        note_unsent(&mut lost, PeerError { peer: peer(TARGET), cause: Cause::Congested });
        assert_eq!(lost, [DeliveryFailure::Unsent(peer(TARGET))]);
        // As reported by the network, the full queue is on another machine.
        note(&mut lost, PeerError { peer: peer(TARGET), cause: Cause::Congested });
        assert_eq!(lost.len(), 1);
    }

    #[test]
    fn drops_behind_a_full_socket_are_reported_for_the_first_peers() {
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
