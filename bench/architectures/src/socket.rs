//! The one UDP socket of a server, as every shell uses it: one system call a message, in and out.

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

/// What is asked for where nobody says how many packets there is room for: a few thousand.
const USUAL_BYTES: usize = 4 << 20;
/// The packets by which room is counted.
const PACKET_BYTES: usize = 600;
/// How long who waits for a message alone waits at most, before it looks around.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);
/// The longest datagram.
pub(crate) const MAX_DATAGRAM: usize = 65_535;

/// The monotonic clock of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time.
    #[must_use]
    pub(crate) fn now(self) -> Timestamp {
        // Not from zero, for who looks back by a little.
        Timestamp::from_millis(1_000) + self.0.elapsed()
    }
}

/// The socket, and what has gone through it in this process.
#[derive(Debug)]
pub(crate) struct Socket {
    udp: UdpSocket,
    counts: Arc<Counts>,
}

/// How many messages.
#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    sent: AtomicU64,
}

/// Says what has gone through a socket.
#[derive(Debug)]
pub(crate) struct Reporter {
    counts: Arc<Counts>,
    port: u16,
}

impl Socket {
    /// Opens it, with room for so many packets of 600 bytes.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub(crate) fn bind(address: SocketAddr, room: Option<usize>) -> io::Result<Self> {
        let udp = UdpSocket::bind(address)?;
        let bytes = match room {
            Some(packets) => packets * booked_bytes()? / 2,
            None => USUAL_BYTES,
        };
        set_room(&udp, bytes)?;
        // Past the system's limit only with privilege; the usual one will do.
        let _ = set_socket_send_buffer_size(&udp, USUAL_BYTES);
        Ok(Self::new(udp))
    }

    /// The socket that another process has opened.
    #[must_use]
    pub(crate) fn inherited(descriptor: OwnedFd) -> Self {
        Self::new(descriptor.into())
    }

    fn new(udp: UdpSocket) -> Self {
        Self { udp, counts: Arc::default() }
    }

    /// Another descriptor of it, for another process.
    ///
    /// # Errors
    /// When there is none left.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.udp.try_clone()?.into())
    }

    /// Where it is bound.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// From here on [`receive`](Self::receive) waits for a message, [`PATIENCE`] at most.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait_in_receive(&self) -> io::Result<()> {
        self.udp.set_nonblocking(false)?;
        self.udp.set_read_timeout(Some(PATIENCE))
    }

    /// From here on [`receive`](Self::receive) waits for nothing.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait_in_poll(&self) -> io::Result<()> {
        self.udp.set_nonblocking(true)
    }

    /// One message, its length and its sender; `None` where there is none.
    ///
    /// # Errors
    /// When the socket cannot be read any more.
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

    /// Sends a message. One that the kernel does not take is lost, as on the way.
    pub(crate) fn send(&self, peer: SocketAddr, bytes: &[u8]) {
        if self.udp.send_to(bytes, peer).is_ok() {
            self.counts.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Who says what went through it, on another thread.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn reporter(&self) -> io::Result<Reporter> {
        Ok(Reporter { counts: Arc::clone(&self.counts), port: self.address()?.port() })
    }
}

impl Reporter {
    /// A line of JSON. Drops are those of the socket, whoever reads it.
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

/// Waits until there is something to read, or it is time.
///
/// # Errors
/// When the kernel does not take it.
pub(crate) fn wait(readable: BorrowedFd<'_>, now: Timestamp, until: Timestamp) -> io::Result<()> {
    let mut wanted = [PollFd::from_borrowed_fd(readable, PollFlags::IN)];
    match poll(&mut wanted, timespec(now, until).as_ref()) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// How long it is until then; `None` for ever.
#[must_use]
pub(crate) fn timespec(now: Timestamp, until: Timestamp) -> Option<Timespec> {
    let time = until.saturating_since(now);
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    (until != Timestamp::MAX).then(|| Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() })
}

/// The kernel books twice what it is asked for.
fn set_room(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    // Past the system's limit where this process may.
    if set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        set_socket_recv_buffer_size(socket, bytes)?;
    }
    Ok(())
}

/// What the kernel books for one packet that waits, found by filling a socket.
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

/// The datagrams for which the socket on this port had no room.
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
    fn there_is_room_for_so_many_packets_and_drops_are_told() {
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
        // The kernel may count one packet more or less as fitting.
        assert!((48..=52).contains(&received), "{received} packets found room");
        let said = socket.reporter().expect("bound").line();
        assert_eq!(said, format!("{{\"received\":{received},\"sent\":0,\"drops\":{}}}", 80 - received));
    }
}
