//! The server's single UDP socket, as every shell uses it: one system call per message in each direction.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    socket_recv_buffer_size,
};
use strowger_foundation::Timestamp;

/// Default socket buffer size: room for a few thousand packets.
const USUAL_BYTES: usize = 4 << 20;
/// Packet size in which receive buffer capacity is counted.
const PACKET_BYTES: usize = 600;
/// Maximum time that a thread waits for a message before it checks for other work.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);
/// Maximum datagram size.
pub(crate) const MAX_DATAGRAM: usize = 65_535;

/// The monotonic clock of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts a clock.
    #[must_use]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the current time.
    #[must_use]
    pub(crate) fn now(self) -> Timestamp {
        // Starts above zero so that a caller can subtract a little.
        Timestamp::from_millis(1_000) + self.0.elapsed()
    }
}

/// The socket and its counters in this process.
#[derive(Debug)]
pub(crate) struct Socket {
    udp: UdpSocket,
    counts: Arc<Counts>,
}

/// Message counters.
#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    sent: AtomicU64,
}

/// Reports the counters of a socket.
#[derive(Debug)]
pub(crate) struct Reporter {
    counts: Arc<Counts>,
    port: u16,
}

impl Socket {
    /// Opens the socket with a receive buffer of `room` packets of 600 bytes.
    ///
    /// # Errors
    /// If the address is not available.
    pub(crate) fn bind(address: SocketAddr, room: Option<usize>) -> io::Result<Self> {
        let udp = UdpSocket::bind(address)?;
        let bytes = match room {
            Some(packets) => packets * booked_bytes()? / 2,
            None => USUAL_BYTES,
        };
        set_room(&udp, bytes)?;
        // Exceeding the system's limit takes privileges; the default size is sufficient.
        let _ = set_socket_send_buffer_size(&udp, USUAL_BYTES);
        Ok(Self::new(udp))
    }

    /// Wraps a socket that another process opened.
    #[must_use]
    pub(crate) fn inherited(descriptor: OwnedFd) -> Self {
        Self::new(descriptor.into())
    }

    fn new(udp: UdpSocket) -> Self {
        Self { udp, counts: Arc::default() }
    }

    /// Duplicates the descriptor for another process.
    ///
    /// # Errors
    /// If no descriptor is available.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.udp.try_clone()?.into())
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// Any error of the system.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Makes [`receive`](Self::receive) block for at most [`PATIENCE`].
    ///
    /// # Errors
    /// Any error of the system.
    pub(crate) fn wait_in_receive(&self) -> io::Result<()> {
        self.udp.set_nonblocking(false)?;
        self.udp.set_read_timeout(Some(PATIENCE))
    }

    /// Makes [`receive`](Self::receive) non-blocking.
    ///
    /// # Errors
    /// Any error of the system.
    pub(crate) fn wait_in_poll(&self) -> io::Result<()> {
        self.udp.set_nonblocking(true)
    }

    /// Receives one message and returns its length and its sender, or `None` if there is none.
    ///
    /// # Errors
    /// If the socket cannot be read.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match self.udp.recv_from(buffer) {
            Ok(received) => {
                self.counts.received.fetch_add(1, Ordering::Relaxed);
                Ok(Some(received))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Sends a message. If the kernel rejects it, the message is lost, as it could be in the network.
    pub(crate) fn send(&self, peer: SocketAddr, bytes: &[u8]) {
        if self.udp.send_to(bytes, peer).is_ok() {
            self.counts.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a reporter for use in another thread.
    ///
    /// # Errors
    /// Any error of the system.
    pub(crate) fn reporter(&self) -> io::Result<Reporter> {
        Ok(Reporter { counts: Arc::clone(&self.counts), port: self.address()?.port() })
    }
}

impl Reporter {
    /// Returns the counters as a line of JSON. Drops are the whole socket's, whichever process reads it.
    #[must_use]
    pub(crate) fn line(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (received, sent) = (count(&self.counts.received), count(&self.counts.sent));
        format!("{{\"received\":{received},\"sent\":{sent},\"drops\":{}}}", drops(self.port).unwrap_or(0))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Waits until the descriptor is readable or `until` is reached.
///
/// # Errors
/// If the poll fails.
pub(crate) fn wait(readable: BorrowedFd<'_>, now: Timestamp, until: Timestamp) -> io::Result<()> {
    let mut wanted = [PollFd::from_borrowed_fd(readable, PollFlags::IN)];
    match poll(&mut wanted, timespec(now, until).as_ref()) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns the time from `now` to `until`; `None` means forever.
#[must_use]
pub(crate) fn timespec(now: Timestamp, until: Timestamp) -> Option<Timespec> {
    let time = until.saturating_since(now);
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    (until != Timestamp::MAX).then(|| Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() })
}

/// Sets the receive buffer size. The kernel accounts twice the requested size.
fn set_room(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    // Exceeds the system's limit if this process has the privilege.
    if set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        set_socket_recv_buffer_size(socket, bytes)?;
    }
    Ok(())
}

/// Returns the bytes that the kernel accounts for one queued packet, measured by filling a socket.
fn booked_bytes() -> io::Result<usize> {
    let full = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    set_room(&full, 256 << 10)?;
    full.set_nonblocking(true)?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    for _ in 0..2_000 {
        sender.send_to(&[b'x'; PACKET_BYTES], full.local_addr()?)?;
    }
    let mut buffer = [0; PACKET_BYTES];
    let count = std::iter::from_fn(|| full.recv(&mut buffer).ok()).count();
    Ok(socket_recv_buffer_size(&full)? / count.max(1))
}

/// Returns the number of datagrams dropped by the socket on this port because its buffer was full.
fn drops(port: u16) -> Option<u64> {
    let table = fs::read_to_string("/proc/self/net/udp").ok()?;
    let is_ours = |line: &&str| {
        let local = line.split_whitespace().nth(1).and_then(|local| local.split_once(':'));
        local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port))
    };
    table.lines().find(is_ours)?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_room_is_as_configured_and_drops_are_reported() {
        let socket = Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Some(50)).expect("a free port");
        socket.wait_in_poll().expect("a socket");
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        for _ in 0..80 {
            sender.send_to(&[b'x'; PACKET_BYTES], socket.address().expect("bound")).expect("loopback takes it");
        }
        let mut buffer = [0; 2_048];
        let mut received = 0;
        while socket.receive(&mut buffer).expect("a socket").is_some() {
            received += 1;
        }
        // The kernel may accept one packet more or less.
        assert!((48..=52).contains(&received), "{received} packets found room");
        let said = socket.reporter().expect("bound").line();
        assert_eq!(said, format!("{{\"received\":{received},\"sent\":0,\"drops\":{}}}", 80 - received));
    }
}
