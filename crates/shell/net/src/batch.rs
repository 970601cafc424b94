//! Receives up to [`RECV_BATCH`] datagrams per `recvmmsg` into memory that is allocated once.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::address;
use crate::clock::RealNanos;
use crate::control_message::{self, ControlData};
use crate::counters::Counters;
use crate::recv_arena::{RECV_BATCH, RecvArena, SLOT_BYTES};

/// One received datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The whole payload.
    pub bytes: &'a [u8],
    /// Source address; never an IPv4-mapped IPv6 address.
    pub peer: SocketAddr,
    /// Real time at which the kernel received the datagram. [`ClockPair::arrival`](crate::ClockPair::arrival)
    /// converts it to monotonic time.
    pub arrival: Option<RealNanos>,
}

impl fmt::Debug for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, peer, arrival } = self;
        f.debug_struct("Datagram").field("len", &bytes.len()).field("peer", peer).field("arrival", arrival).finish()
    }
}

/// Buffers that hold received datagrams until the next call to [`UdpSocket::recv`](crate::UdpSocket::recv). One batch
/// can serve several sockets in turn.
///
/// It reserves 4 MiB of address space and uses about 256 KiB while datagrams are small. A batch of 64 datagrams of 64
/// KiB each commits all of it permanently.
pub struct RecvBatch {
    arena: RecvArena,
    ready: Vec<ReceivedDatagram>,
    is_full: bool,
}

/// Metadata of a received datagram.
struct ReceivedDatagram {
    slot: usize,
    length: usize,
    peer: SocketAddr,
    arrival: Option<RealNanos>,
}

impl RecvBatch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::with_slots(SLOT_BYTES)
    }

    fn with_slots(slot_bytes: usize) -> Self {
        Self { arena: RecvArena::new(slot_bytes), ready: Vec::with_capacity(RECV_BATCH), is_full: false }
    }

    /// Returns the datagrams of the last receive in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        self.ready.iter().map(|received| Datagram {
            bytes: self.arena.bytes(received.slot, received.length),
            peer: received.peer,
            arrival: received.arrival,
        })
    }

    /// Returns the number of datagrams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns whether there are no datagrams.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns whether every slot was used, in which case the socket may hold more datagrams. If false, the socket
    /// has been drained and mio reports the next datagram.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Replaces the contents with newly received datagrams, without blocking. Returns the number of datagrams the
    /// kernel delivered, including those dropped and counted here.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        last_drops: &mut u32,
        counters: &mut Counters,
    ) -> io::Result<usize> {
        let Self { arena: inbox, ready, is_full } = self;
        ready.clear();
        *is_full = false;
        let received = inbox.receive(socket, |arrived| {
            let ControlData { stamp, drops } = control_message::read_control(arrived.control);
            if let Some(drops) = drops {
                counters.kernel_drops += u64::from(drops.wrapping_sub(*last_drops));
                *last_drops = drops;
            }
            match address::decode(arrived.name) {
                _ if arrived.is_truncated => counters.truncated += 1,
                None => counters.unaddressed += 1,
                Some(peer) => {
                    counters.received += 1;
                    ready.push(ReceivedDatagram { slot: arrived.slot, length: arrived.length, peer, arrival: stamp });
                }
            }
        })?;
        *is_full = received == RECV_BATCH;
        debug_assert!(ready.len() <= received);
        Ok(received)
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch").field("len", &self.len()).field("is_full", &self.is_full).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_oversized_datagram_is_counted_and_others_still_arrive() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let to = receiver.local_addr().expect("bound");
        for length in [100, 101, 0, 3_000, 7] {
            sender.send_to(&vec![b'x'; length], to).expect("loopback takes it");
        }
        let mut batch = RecvBatch::with_slots(100);
        let (mut counters, mut drops) = (Counters::default(), 0);
        let received = batch.receive(receiver.as_fd(), &mut drops, &mut counters).expect("datagrams are waiting");
        assert_eq!(received, 5);
        assert_eq!(batch.iter().map(|datagram| datagram.bytes.len()).collect::<Vec<_>>(), [100, 0, 7]);
        assert_eq!((counters.received, counters.truncated), (3, 2));
    }
}
