//! A connection to a collector of HEP that may be away, slow or wrong.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

/// Time limit of a connection attempt and of a write. A collector that takes longer is given up until a later attempt.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses before attempts after failures: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Bytes collected for one write to a stream.
const BATCH: usize = 64 * 1024;
/// Time without failures after which the collector counts as well again.
const IS_WELL_AFTER: Duration = Duration::from_secs(10);

/// How a collector is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorTransport {
    /// A datagram for each packet.
    Udp,
    /// One connection.
    Tcp,
}

/// Outcome of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Packets accepted by the system.
    pub(crate) sent: u64,
    /// Packets given up.
    pub(crate) failed: u64,
}

/// A collector. Its methods wait at most [`TIMEOUT`], and for the resolver of the system.
#[derive(Debug)]
pub(crate) struct Collector {
    transport: CollectorTransport,
    /// Host and port.
    place: String,
    link: Link,
    /// Packets that wait to be written to a stream.
    buffer: Vec<u8>,
    buffered: u64,
    pause: Duration,
    /// Time of the last failure, until the collector is well again.
    failed_at: Option<Instant>,
}

#[derive(Debug)]
enum Link {
    Udp(UdpSocket),
    Tcp(TcpStream),
    /// None until this time.
    Down(Instant),
}

impl Collector {
    pub(crate) fn new(transport: CollectorTransport, place: String) -> Self {
        Self {
            transport,
            place,
            link: Link::Down(Instant::now()),
            buffer: Vec::new(),
            buffered: 0,
            pause: FIRST_PAUSE,
            failed_at: None,
        }
    }

    /// Sends a packet, or keeps it for [`flush`](Self::flush).
    pub(crate) fn send(&mut self, packet: &[u8]) -> Delivery {
        self.connect();
        match &self.link {
            Link::Down(_) => Delivery { sent: 0, failed: 1 },
            Link::Udp(socket) => match socket.send(packet) {
                Ok(_) => {
                    self.on_success();
                    Delivery { sent: 1, failed: 0 }
                }
                Err(error) => {
                    // The error may be that of an earlier packet (ICMP), but one packet is lost for each.
                    self.on_failure(&error);
                    Delivery { sent: 0, failed: 1 }
                }
            },
            Link::Tcp(_) => {
                self.buffer.extend(packet);
                self.buffered += 1;
                if self.buffer.len() >= BATCH { self.flush() } else { Delivery::default() }
            }
        }
    }

    /// Writes the kept packets.
    pub(crate) fn flush(&mut self) -> Delivery {
        let count = std::mem::take(&mut self.buffered);
        let Link::Tcp(stream) = &mut self.link else { return Delivery { sent: 0, failed: count } };
        let written = stream.write_all(&self.buffer);
        self.buffer.clear();
        match written {
            Ok(()) => {
                if count > 0 {
                    self.on_success();
                }
                Delivery { sent: count, failed: 0 }
            }
            Err(error) => {
                // A part of a packet may have been written, so the connection is useless.
                self.on_failure(&error);
                Delivery { sent: 0, failed: count }
            }
        }
    }

    fn connect(&mut self) {
        if matches!(self.link, Link::Down(until) if Instant::now() >= until) {
            match self.open() {
                Ok(link) => self.link = link,
                Err(error) => self.on_failure(&error),
            }
        }
    }

    fn open(&self) -> io::Result<Link> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.place.to_socket_addrs()? {
            match self.open_at(address) {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn open_at(&self, address: SocketAddr) -> io::Result<Link> {
        match self.transport {
            CollectorTransport::Udp => {
                let any: SocketAddr = if address.is_ipv4() {
                    (Ipv4Addr::UNSPECIFIED, 0).into()
                } else {
                    (Ipv6Addr::UNSPECIFIED, 0).into()
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Ok(Link::Udp(socket))
            }
            CollectorTransport::Tcp => {
                let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                Ok(Link::Tcp(stream))
            }
        }
    }

    fn on_success(&mut self) {
        if self.failed_at.is_some_and(|at| at.elapsed() >= IS_WELL_AFTER) {
            self.failed_at = None;
            self.pause = FIRST_PAUSE;
            tracing::info!("messages are sent to the HEP collector {} again", self.place);
        }
    }

    fn on_failure(&mut self, error: &io::Error) {
        if self.failed_at.replace(Instant::now()).is_none() {
            tracing::error!(
                "messages cannot be sent to the HEP collector {}: {error}; they are counted in hep.failed until it answers (trace.hep.to)",
                self.place
            );
        }
        self.link = Link::Down(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}
