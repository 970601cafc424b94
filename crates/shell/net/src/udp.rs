//! The UDP socket.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};
use strowger_foundation::Transport;

use crate::batch::RecvBatch;
use crate::counters::Counters;
use crate::error::{BindError, Cause, PeerError, may_be_pending};
use crate::filter::{self, PacketFilter};
use crate::memory_filter::{self, FilterMemory};
use crate::reuseport::{self, ReceiverSelection};
use crate::send::{Flush, SendBatch, Window};
use crate::sys::{self, SendResult};

/// What [`UdpSocket::bind`] should be asked for where the operator says nothing: a few thousand messages each way.
pub const DEFAULT_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// How often a receive is tried again when the kernel answers with an error about a datagram sent earlier. Each answer
/// uses up one such error, and the next one wakes mio anew, or is met by who asks without it, so giving up loses nothing.
const RECV_ATTEMPTS: u32 = 8;

/// After the kernel refused to send datagrams that were joined and took them one by one, so many times as this they are not joined:
/// the device or the path cannot, and to find that out each time would cost what joining saves.
const SEGMENTATION_BACKOFF: u32 = 1024;

/// The kernel's buffers of one socket in bytes, as one asks for them (it books twice as much for its own use).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// For what was received and not yet read.
    pub receive: usize,
    /// For what is sent and has not left.
    pub send: usize,
}

impl BufferSizes {
    /// Both directions [`DEFAULT_BUFFER_BYTES`].
    pub const DEFAULT: Self = Self { receive: DEFAULT_BUFFER_BYTES, send: DEFAULT_BUFFER_BYTES };
}

/// A bound, non-blocking UDP socket with its counters.
///
/// It is a mio [`Source`]: register it for reading and writing, or ask it without. mio tells of changes only, so after an event
/// [`recv`](Self::recv) until the batch [is not full](RecvBatch::is_full), and where the event
/// [is an error](mio::event::Event::is_error), [`poll_error`](Self::poll_error) until `None`: errors that are not taken
/// fill the receive buffer.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
    requested: BufferSizes,
    granted: BufferSizes,
    /// The kernel's drop count as it was last told, modulo 2^32.
    last_drops: u32,
    /// Where datagrams may leave joined, which the kernel cuts apart.
    segmentation: Option<SegmentationState>,
    counters: Counters,
}

impl UdpSocket {
    /// Opens `address`, which nobody else may have open; a port of 0 is replaced by a free one.
    ///
    /// # Errors
    /// When the address is in use, not this machine's, or not for this user to open. Buffers smaller than asked for are no
    /// error: see [`buffers`](Self::buffers).
    pub fn bind(address: SocketAddr, buffers: BufferSizes) -> Result<Self, BindError> {
        let wrap = |cause| BindError { transport: Transport::Udp, address, cause };
        let socket = Self::open(address, buffers, false).map_err(wrap)?;
        // Set after binding: a socket that bears it before shares the address with any other program of the same user
        // that bears it too, and a second server would take half of the first one's packets unnoticed.
        socket.socket.set_reuse_port(true).map_err(wrap)?;
        Ok(socket)
    }

    /// Another socket on the same address, for another worker. The kernel spreads peers over the sockets of an address by
    /// a hash of both ends, so a peer always meets the same socket while their number does not change.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn sibling(&self) -> Result<Self, BindError> {
        let socket = Self::open(self.local, self.requested, true);
        let socket = socket.map(|socket| Self { segmentation: self.segmentation.clone(), ..socket });
        socket.map_err(|cause| BindError { transport: Transport::Udp, address: self.local, cause })
    }

    fn open(address: SocketAddr, asked: BufferSizes, is_shared: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        let fd = socket.as_fd();
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
            sys::set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
        } else {
            sys::set_option(fd, libc::SOL_IP, libc::IP_RECVERR, 1)?;
        }
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        let got = set_buffers(&socket, asked)?;
        socket.set_reuse_port(is_shared)?;
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self {
            socket,
            local,
            requested: asked,
            granted: got,
            last_drops: 0,
            segmentation: None,
            counters: Counters::default(),
        })
    }

    /// Lets datagrams of one length to one peer leave as one, which the kernel or the device cuts apart (`UDP_SEGMENT`), as long as
    /// `is_allowed`: cheaper by far where a few peers get most of what is sent. What looks at packets on this machine sees them as one;
    /// [`captures`](crate::captures) tells whether anything does.
    ///
    /// # Errors
    /// When this kernel cannot.
    pub fn enable_segmentation(&mut self, is_allowed: Arc<AtomicBool>) -> io::Result<()> {
        // No length for all datagrams: each message that is several says its own. A kernel that knows it takes this.
        sys::set_option(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0)?;
        self.segmentation = Some(SegmentationState { is_allowed, apart: 0 });
        Ok(())
    }

    /// Chooses which of the sockets of this address receive, from now on and for all of them. They are numbered in the order
    /// in which they were bound.
    ///
    /// # Errors
    /// When the kernel has no such thing, or the address has one socket only.
    pub fn choose_receivers(&self, choice: ReceiverSelection) -> io::Result<()> {
        let program = reuseport::program(choice, self.local);
        sys::attach_program(self.socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    /// Has the kernel drop what the filter does not let pass, from now on and for this socket. What it drops is counted with what
    /// found no room.
    ///
    /// # Errors
    /// When the kernel has no room for the program (`net.core.optmem_max`); then nothing is dropped.
    pub fn filter(&self, rules: &PacketFilter) -> io::Result<()> {
        // First, for there may be no room for two.
        match sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            _ => {}
        }
        if rules.filter.is_open() {
            return Ok(());
        }
        let program = filter::program(rules, self.local);
        sys::attach_program(self.socket.as_fd(), libc::SO_ATTACH_FILTER, &program)
    }

    /// Has the kernel drop what the memory does not let pass to a worker, and what it has dropped before. What the memory is told
    /// from now on, the kernel follows at once; of the rules only salt and trusted sources count.
    ///
    /// # Errors
    /// When this process may not give the kernel such a program (`CAP_BPF` and `CAP_PERFMON`), or the kernel is too old.
    pub fn filter_by_memory(&self, rules: &PacketFilter, memory: FilterMemory<'_>, worker: usize) -> io::Result<()> {
        let code = memory_filter::program(rules, self.local, memory, worker).ok_or(io::ErrorKind::InvalidInput)?;
        let program = sys::map::load_socket_filter(&code)?;
        sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())
    }

    /// Gives the receive queue other room, in bytes as the kernel books them; not more than the socket was opened with.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bound_queue(&self, bytes: usize) -> io::Result<()> {
        // The kernel doubles what it is asked for.
        set_buffer(&self.socket, (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (bytes / 2).min(self.granted.receive))
    }

    /// The address that the socket is bound to, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The buffers that the kernel gave; smaller than what was asked for where the limits `net.core.rmem_max` and
    /// `net.core.wmem_max` hold for this process.
    #[must_use]
    pub fn buffers(&self) -> BufferSizes {
        self.granted
    }

    /// What the socket has seen so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Receives what waits, up to [`RECV_BATCH`](crate::RECV_BATCH) datagrams, into `batch`, whose former contents are
    /// forgotten. The batch is empty where nothing waited. Never waits.
    ///
    /// # Errors
    /// Only when the socket is unusable or the kernel out of memory. What ICMP says about datagrams sent earlier is no
    /// error here.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<()> {
        for _ in 0..RECV_ATTEMPTS {
            let Err(error) = batch.receive(self.socket.as_fd(), &mut self.last_drops, &mut self.counters) else {
                return Ok(());
            };
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(()),
                io::ErrorKind::Interrupted => {}
                _ if error.raw_os_error().is_some_and(may_be_pending) => {}
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends what waits in `batch`. Each datagram that the kernel refuses is given to `on_error` and keeps none of the
    /// others from leaving. Never waits.
    pub fn send(&mut self, batch: &mut SendBatch, on_error: impl FnMut(PeerError)) -> Flush {
        let Self { socket, segmentation: joining, counters, .. } = self;
        let mut joining = joining.as_mut().and_then(SegmentationState::now);
        if joining.is_some() && batch.len() > 1 {
            batch.group_segments();
        }
        let mut joined = 0;
        let transmit = |window: Window<'_>| {
            let mut rest = window.clone();
            match (rest.next(), rest.next()) {
                // The plain call is the cheaper one for a single datagram.
                (Some(only), None) => sys::send_one(socket.as_fd(), &only.bytes, only.peer).map(|()| 1),
                _ => send_window(socket.as_fd(), &window, joining.as_deref_mut()).map(|taken| {
                    joined += taken.joined as u64;
                    taken.datagrams
                }),
            }
        };
        let flush = batch.flush(counters, transmit, on_error);
        counters.segmented += joined;
        flush
    }

    /// Takes one message of what ICMP said about datagrams sent earlier. Never waits.
    pub fn poll_error(&mut self) -> Option<PeerError> {
        loop {
            match sys::take_error(self.socket.as_fd()) {
                Ok((peer, errno)) => {
                    self.counters.icmp_errors += 1;
                    if let (Some(peer), Some(errno)) = (peer, errno) {
                        return Some(PeerError { peer, cause: Cause::of_icmp(errno) });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Source for UdpSocket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).deregister(registry)
    }
}

/// Whether datagrams leave joined.
#[derive(Clone, Debug)]
struct SegmentationState {
    is_allowed: Arc<AtomicBool>,
    /// So many times more they leave one by one, because it was refused.
    apart: u32,
}

impl SegmentationState {
    /// Itself, where what is sent now may be joined.
    fn now(&mut self) -> Option<&mut Self> {
        if self.apart > 0 {
            self.apart -= 1;
            return None;
        }
        self.is_allowed.load(Ordering::Relaxed).then_some(self)
    }
}

/// Sends what waits, joined where that can be done.
fn send_window(
    socket: BorrowedFd<'_>,
    window: &Window<'_>,
    joining: Option<&mut SegmentationState>,
) -> io::Result<SendResult> {
    let messages = || window.clone().map(|slot| (slot.bytes.as_slice(), slot.peer));
    let Some(joining) = joining.filter(|joining| joining.apart == 0) else {
        return sys::send(socket, messages(), false);
    };
    let mut sent = sys::send(socket, messages(), true);
    // What was pending of an earlier datagram says nothing of these, and is told once.
    if sent.as_ref().is_err_and(|error| error.raw_os_error().is_some_and(may_be_pending)) {
        sent = sys::send(socket, messages(), true);
    }
    match sent {
        // Joining may be what is refused: by a device that reckons no checksums, a narrow path, or for want of a large buffer. Each by
        // itself tells whom an error is about.
        Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            let sent = sys::send(socket, messages(), false);
            let is_about_joining = matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE));
            if is_about_joining && sent.is_ok() {
                joining.apart = SEGMENTATION_BACKOFF;
            }
            sent
        }
        sent => sent,
    }
}

/// Asks for buffers, past the system's limits where the process may (`CAP_NET_ADMIN`), and tells what the kernel gave.
fn set_buffers(socket: &Socket, asked: BufferSizes) -> io::Result<BufferSizes> {
    set_buffer(socket, (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), asked.receive)?;
    set_buffer(socket, (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), asked.send)?;
    Ok(BufferSizes { receive: socket.recv_buffer_size()? / 2, send: socket.send_buffer_size()? / 2 })
}

/// Sets the room of one direction by the option that knows no limit and needs a privilege, or else by the other.
fn set_buffer(socket: &Socket, (unlimited, limited): (c_int, c_int), bytes: usize) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    let set = |name| sys::set_option(socket.as_fd(), libc::SOL_SOCKET, name, bytes);
    set(unlimited).or_else(|_| set(limited))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::send::OrderingKey;

    #[test]
    fn an_ipv6_socket_leaves_ipv4_to_others() {
        // The wildcard: any other IPv6 address makes a socket IPv6-only by itself.
        match UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), BufferSizes::DEFAULT) {
            Ok(socket) => assert!(socket.socket.only_v6().expect("an IPv6 socket")),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    /// A socket on that loopback that joins; none where the machine has not that.
    fn joining(ip: &str) -> Option<UdpSocket> {
        let address = SocketAddr::new(ip.parse().expect("an address"), 0);
        let socket = UdpSocket::bind(address, BufferSizes::DEFAULT).map_err(|error| error.to_string());
        let joined = socket.and_then(|mut socket| {
            socket.enable_segmentation(Arc::new(AtomicBool::new(true))).map(|()| socket).map_err(|e| e.to_string())
        });
        joined.inspect_err(|error| eprintln!("skipped: {error}")).ok()
    }

    /// A phone on that loopback, and what it is to receive.
    fn phone(ip: &str) -> (std::net::UdpSocket, Vec<Vec<u8>>) {
        let phone = std::net::UdpSocket::bind((ip, 0)).expect("a port");
        phone.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a socket");
        (phone, Vec::new())
    }

    fn commit(batch: &mut SendBatch, (phone, expected): &mut (std::net::UdpSocket, Vec<Vec<u8>>), datagram: Vec<u8>) {
        batch.next_slot().extend_from_slice(&datagram);
        batch.commit(phone.local_addr().expect("bound"), OrderingKey::ALL);
        expected.push(datagram);
    }

    /// Each phone has received what it should in this order, and no more.
    fn check(phones: impl IntoIterator<Item = (std::net::UdpSocket, Vec<Vec<u8>>)>) {
        for (phone, expected) in phones {
            for datagram in expected {
                let mut bytes = [0; 400];
                let length = phone.recv(&mut bytes).expect("a datagram");
                assert_eq!(bytes.get(..length), Some(datagram.as_slice()));
            }
            phone.set_nonblocking(true).expect("a socket");
            let more = phone.recv(&mut [0; 400]).map_err(|error| error.kind());
            assert_eq!(more, Err(io::ErrorKind::WouldBlock));
        }
    }

    #[test]
    fn what_leaves_as_one_arrives_as_many() {
        for ip in ["127.0.0.1", "::1"] {
            let Some(mut socket) = joining(ip) else { continue };
            let (mut one, mut other) = (phone(ip), phone(ip));
            let mut batch = SendBatch::new();
            for number in 0..60_u8 {
                let phone = if number % 3 == 0 { &mut one } else { &mut other };
                commit(&mut batch, phone, vec![number; if number % 7 == 0 { 300 } else { 200 }]);
            }
            let mut errors = Vec::new();
            assert_eq!(socket.send(&mut batch, |error| errors.push(error)), Flush::Done);
            assert_eq!((socket.counters().sent, errors.len()), (60, 0));
            check([one, other]);
        }
    }

    /// The kernel takes those in front of one that it refuses, whose place is anywhere among those that leave as one.
    #[test]
    fn what_leaves_as_one_goes_on_behind_one_that_is_refused() {
        for (ip, place) in ["127.0.0.1", "::1"].into_iter().flat_map(|ip| (0..60).step_by(7).map(move |at| (ip, at))) {
            let Some(mut socket) = joining(ip) else { continue };
            let (mut one, mut other) = (phone(ip), phone(ip));
            let nowhere = SocketAddr::new(ip.parse().expect("an address"), 0);
            let mut batch = SendBatch::new();
            for number in 0..60_u8 {
                if number == place {
                    batch.next_slot().extend_from_slice(b"to port 0");
                    batch.commit(nowhere, OrderingKey::ALL);
                }
                commit(&mut batch, if number / 10 % 2 == 0 { &mut one } else { &mut other }, vec![number; 200]);
            }
            let mut errors = Vec::new();
            assert_eq!(socket.send(&mut batch, |error| errors.push(error.peer)), Flush::Done);
            assert_eq!((socket.counters().sent, socket.counters().send_errors), (60, 1));
            assert_eq!(errors, [nowhere]);
            check([one, other]);
        }
    }

    #[test]
    fn sockets_do_not_block_and_do_not_outlive_exec() {
        let first = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), BufferSizes::DEFAULT).expect("a port");
        let second = first.sibling().expect("the address is ours");
        for socket in [first, second] {
            assert!(socket.socket.nonblocking().expect("a socket"));
            assert!(socket.socket.reuse_port().expect("a socket"));
            // SAFETY: the call reads a flag of an open descriptor.
            let flags = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        }
    }
}
