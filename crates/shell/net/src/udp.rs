//! The UDP socket.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};
use strowger_foundation::Transport;

use crate::batch::RecvBatch;
use crate::clock::RealNanos;
use crate::control_message::Queued;
use crate::counters::Counters;
use crate::error::{BindError, Cause, PeerError, may_be_pending};
use crate::filter::{self, PacketFilter};
use crate::memory_filter::{self, FilterMemory};
use crate::reuseport::{self, ReceiverSelection};
use crate::send::{Flush, SendBatch, Window};
use crate::send_stamps::{self, SendStamp, SendStamps};
use crate::sys::{self, SendResult};

/// Default size for [`UdpSocket::bind`]: a few thousand messages in each direction.
pub const DEFAULT_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Number of times a receive is retried when the kernel returns an error about a datagram sent earlier. Each one
/// consumes such an error. The next one triggers mio again, or is met by a worker that polls without it, so giving up
/// loses nothing.
const RECV_ATTEMPTS: u32 = 8;

/// Number of sends without segmentation after the kernel refused segmented datagrams but accepted them one by one.
/// The device or path does not support it, and retrying each time would cost what segmentation saves.
const SEGMENTATION_BACKOFF: u32 = 1024;

/// Kernel buffer sizes of one socket in bytes, as requested (the kernel books twice as much for its own use).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// For received datagrams that have not been read.
    pub receive: usize,
    /// For sent datagrams that have not left.
    pub send: usize,
}

impl BufferSizes {
    /// [`DEFAULT_BUFFER_BYTES`] in both directions.
    pub const DEFAULT: Self = Self { receive: DEFAULT_BUFFER_BYTES, send: DEFAULT_BUFFER_BYTES };
}

/// A bound, non-blocking UDP socket with its counters.
///
/// It is a mio [`Source`]: register it for reading and writing, or poll it directly. mio is edge-triggered, so after
/// an event call [`recv`](Self::recv) until the batch [is not full](RecvBatch::is_full), and if the event [is an
/// error](mio::event::Event::is_error), [`poll_error`](Self::poll_error) until it returns `None`: errors left in the
/// queue fill the receive buffer.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
    requested: BufferSizes,
    granted: BufferSizes,
    /// The kernel's drop count as last reported, modulo 2^32.
    last_drops: u32,
    /// State of segmented sending; `None` if unsupported.
    segmentation: Option<SegmentationState>,
    /// Timestamps of sent datagrams; `None` if not enabled.
    stamps: Option<Box<SendStamps>>,
    counters: Counters,
}

impl UdpSocket {
    /// Opens `address` exclusively; port 0 selects a free one.
    ///
    /// # Errors
    /// When the address is in use, does not belong to this machine, or may not be opened by this user. Buffers
    /// smaller than requested are not an error: see [`buffers`](Self::buffers).
    pub fn bind(address: SocketAddr, buffers: BufferSizes) -> Result<Self, BindError> {
        let wrap = |cause| BindError { transport: Transport::Udp, address, cause };
        let socket = Self::open(address, buffers, false).map_err(wrap)?;
        // Set after binding. A socket with the option set before binding shares the address with any program of the
        // same user that also sets it, so a second server would silently receive half of the first one's packets.
        socket.socket.set_reuse_port(true).map_err(wrap)?;
        Ok(socket)
    }

    /// Opens another socket on the same address, for another worker. The kernel distributes peers over the sockets of
    /// an address by a hash of both endpoints, so a peer always reaches the same socket while the number of sockets
    /// is constant.
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
            stamps: None,
            counters: Counters::default(),
        })
    }

    /// Returns another descriptor of this socket, for the process that takes it over, and the kernel's drop count as last
    /// reported.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn to_handover(&self) -> io::Result<(OwnedFd, u32)> {
        Ok((self.socket.as_fd().try_clone_to_owned()?, self.last_drops))
    }

    /// Takes over a socket that another process has bound, with the datagrams that wait in it. Detaches filters and
    /// restores the sizes of its buffers; [`choose_receivers`](Self::choose_receivers) stays in force.
    ///
    /// # Errors
    /// When the descriptor is no bound UDP socket.
    pub fn take_over(socket: OwnedFd, last_drops: u32, buffers: BufferSizes) -> io::Result<Self> {
        let socket = Socket::from(socket);
        if socket.r#type()? != Type::DGRAM {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        let granted = set_buffers(&socket, buffers)?;
        detach_filter(&socket)?;
        // The next one to enable stamps counts them from the beginning.
        let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0);
        Ok(Self {
            socket,
            local,
            requested: buffers,
            granted,
            last_drops,
            segmentation: None,
            stamps: None,
            counters: Counters::default(),
        })
    }

    /// Enables segmented sending while `is_allowed` is set: datagrams of one length to one peer leave as one message,
    /// which the kernel or the device splits (`UDP_SEGMENT`).
    ///
    /// This is far cheaper if a few peers receive most of the traffic. Packet captures on this machine see one large
    /// datagram; [`count_captures`](crate::count_captures) tells whether any are running.
    ///
    /// # Errors
    /// When the kernel does not support it.
    pub fn enable_segmentation(&mut self, is_allowed: Arc<AtomicBool>) -> io::Result<()> {
        // No segment size for the whole socket: each segmented message carries its own. Only a kernel with support
        // accepts the option.
        sys::set_option(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0)?;
        self.segmentation = Some(SegmentationState { is_allowed, apart: 0 });
        Ok(())
    }

    /// Enables [`stamp_next`](Self::stamp_next).
    ///
    /// # Errors
    /// When the kernel is older than 6.12: it would also add a second timestamp to each received datagram.
    pub fn enable_send_stamps(&mut self) -> io::Result<()> {
        // Without this the kernel would go on counting, if they were enabled before.
        let _ = sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0);
        sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, send_stamps::OPTIONS)?;
        self.stamps = Some(Box::new(SendStamps::new()));
        Ok(())
    }

    /// Requests no more stamps, because another process has the socket and requests its own.
    pub fn abandon_send_stamps(&mut self) {
        self.stamps = None;
    }

    /// Requests that the kernel reports when the first datagram of the next [`send`](Self::send), which begins at
    /// `begun`, is passed to the device. If that datagram is sent in segments, the stamp is of all of them.
    /// [`poll_send_stamp`](Self::poll_send_stamp) returns the time with `tag`.
    ///
    /// Does nothing unless [enabled](Self::enable_send_stamps).
    pub fn stamp_next(&mut self, begun: RealNanos, tag: u32) {
        if let Some(stamps) = &mut self.stamps {
            stamps.request(begun, tag);
        }
    }

    /// Returns the next time that has been reported. [`poll_error`](Self::poll_error) collects them.
    pub fn poll_send_stamp(&mut self) -> Option<SendStamp> {
        self.stamps.as_mut()?.poll()
    }

    /// Returns whether stamps of sent datagrams are [enabled](Self::enable_send_stamps).
    #[must_use]
    pub const fn has_send_stamps(&self) -> bool {
        self.stamps.is_some()
    }

    /// Returns the number of requested stamps that were not reported.
    #[must_use]
    pub fn lost_send_stamps(&self) -> u64 {
        self.stamps.as_ref().map_or(0, |stamps| stamps.lost())
    }

    /// Selects which sockets of this address receive, effective at once and for all of them. Sockets are numbered in
    /// the order in which they were bound.
    ///
    /// # Errors
    /// When the kernel does not support it, or the address has only one socket.
    pub fn choose_receivers(&self, choice: ReceiverSelection) -> io::Result<()> {
        let program = reuseport::program(choice, self.local);
        sys::attach_program(self.socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }

    /// Makes the kernel drop datagrams to this socket that the filter does not pass, effective at once. They are
    /// counted together with datagrams that found the receive buffer full.
    ///
    /// # Errors
    /// When the kernel has no room for the program (`net.core.optmem_max`); then nothing is dropped.
    pub fn filter(&self, rules: &PacketFilter) -> io::Result<()> {
        // Detach first: there may be no room for two programs.
        detach_filter(&self.socket)?;
        if rules.filter.is_open() {
            return Ok(());
        }
        let program = filter::program(rules, self.local);
        sys::attach_program(self.socket.as_fd(), libc::SO_ATTACH_FILTER, &program)
    }

    /// Makes the kernel drop datagrams that the memory does not pass to a worker, and messages it has dropped before.
    /// Later changes to the memory take effect at once. Of the rules, only the salt and the trusted sources are used.
    ///
    /// # Errors
    /// When this process may not load such a program (`CAP_BPF` and `CAP_PERFMON`), or the kernel is too old.
    pub fn filter_by_memory(&self, rules: &PacketFilter, memory: FilterMemory<'_>, worker: usize) -> io::Result<()> {
        let code = memory_filter::program(rules, self.local, memory, worker).ok_or(io::ErrorKind::InvalidInput)?;
        let program = sys::map::load_socket_filter(&code)?;
        sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())
    }

    /// Sets the size of the receive queue, in bytes as the kernel books them, up to the size the socket was opened
    /// with.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bound_queue(&self, bytes: usize) -> io::Result<()> {
        // The kernel doubles the requested size.
        set_buffer(&self.socket, (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (bytes / 2).min(self.granted.receive))
    }

    /// Returns the address and port that the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the buffer sizes that the kernel granted; smaller than requested if `net.core.rmem_max` and
    /// `net.core.wmem_max` limit this process.
    #[must_use]
    pub fn buffers(&self) -> BufferSizes {
        self.granted
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Receives up to [`RECV_BATCH`](crate::RECV_BATCH) waiting datagrams into `batch`, replacing its contents. The
    /// batch is empty if nothing was waiting. Never blocks.
    ///
    /// # Errors
    /// Only when the socket is unusable or the kernel is out of memory. ICMP errors about datagrams sent earlier are
    /// not errors here.
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

    /// Sends the waiting datagrams of `batch`. Each datagram that the kernel refuses is reported to `on_error` and
    /// does not hold up the others. Never blocks.
    pub fn send(&mut self, batch: &mut SendBatch, on_error: impl FnMut(PeerError)) -> Flush {
        let Self { socket, segmentation: joining, stamps, counters, .. } = self;
        let mut joining = joining.as_mut().and_then(SegmentationState::now);
        if joining.is_some() && batch.len() > 1 {
            batch.group_segments();
        }
        let mut joined = 0;
        let transmit = |window: Window<'_>| {
            let mut rest = window.clone();
            let request = stamps.as_mut().and_then(|stamps| stamps.take_request());
            let sent = match (rest.next(), rest.next()) {
                // For a single datagram the plain call is cheaper.
                (Some(only), None) if request.is_none() => {
                    sys::send_one(socket.as_fd(), &only.bytes, only.peer).map(|()| 1)
                }
                _ => send_window(socket.as_fd(), &window, joining.as_deref_mut(), request.is_some()).map(|taken| {
                    joined += taken.joined as u64;
                    taken.datagrams
                }),
            };
            if let (Some(stamps), Some(request)) = (stamps.as_mut(), request) {
                stamps.on_sent(request, sent.as_ref().is_ok_and(|count| *count > 0));
            }
            sent
        };
        let flush = batch.flush(counters, transmit, on_error);
        counters.segmented += joined;
        // What was not sent at once would be sent at a time that nobody knows.
        if let Some(stamps) = stamps {
            stamps.take_request();
        }
        flush
    }

    /// Takes one ICMP error about datagrams sent earlier, and all [send stamps](Self::poll_send_stamp) before it. Never
    /// blocks.
    pub fn poll_error(&mut self) -> Option<PeerError> {
        loop {
            match sys::take_queued(self.socket.as_fd()) {
                Ok((_, Queued::Sent { key, at })) => {
                    if let Some(stamps) = &mut self.stamps {
                        stamps.on_stamp(key, at);
                    }
                }
                Ok((peer, Queued::Error(errno))) => {
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

/// Detaches the filter of a socket, if it has one.
fn detach_filter(socket: &Socket) -> io::Result<()> {
    match sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// State of segmented sending.
#[derive(Clone, Debug)]
struct SegmentationState {
    is_allowed: Arc<AtomicBool>,
    /// Remaining sends without segmentation after a refusal.
    apart: u32,
}

impl SegmentationState {
    /// Returns itself if the next send may be segmented.
    fn now(&mut self) -> Option<&mut Self> {
        if self.apart > 0 {
            self.apart -= 1;
            return None;
        }
        self.is_allowed.load(Ordering::Relaxed).then_some(self)
    }
}

/// Sends a window, segmented if possible.
fn send_window(
    socket: BorrowedFd<'_>,
    window: &Window<'_>,
    joining: Option<&mut SegmentationState>,
    stamps_first: bool,
) -> io::Result<SendResult> {
    let messages = || window.clone().map(|slot| (slot.bytes.as_slice(), slot.peer));
    let Some(joining) = joining.filter(|joining| joining.apart == 0) else {
        return sys::send(socket, messages(), false, stamps_first);
    };
    let mut sent = sys::send(socket, messages(), true, stamps_first);
    // A pending error of an earlier datagram says nothing about these, and is returned only once.
    if sent.as_ref().is_err_and(|error| error.raw_os_error().is_some_and(may_be_pending)) {
        sent = sys::send(socket, messages(), true, stamps_first);
    }
    match sent {
        // The segmentation itself may be refused: the device does not compute checksums, the path MTU is too small,
        // or memory for a large buffer is lacking. Sending one by one shows which peer an error is about.
        Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            let sent = sys::send(socket, messages(), false, stamps_first);
            let is_about_joining = matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE));
            if is_about_joining && sent.is_ok() {
                joining.apart = SEGMENTATION_BACKOFF;
            }
            sent
        }
        sent => sent,
    }
}

/// Sets the buffer sizes, beyond the system's limits if the process may (`CAP_NET_ADMIN`), and returns what the
/// kernel granted.
fn set_buffers(socket: &Socket, asked: BufferSizes) -> io::Result<BufferSizes> {
    set_buffer(socket, (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), asked.receive)?;
    set_buffer(socket, (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), asked.send)?;
    Ok(BufferSizes { receive: socket.recv_buffer_size()? / 2, send: socket.send_buffer_size()? / 2 })
}

/// Sets the buffer of one direction by the unlimited, privileged option, or else by the limited one.
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
    fn an_ipv6_socket_is_ipv6_only() {
        // The wildcard: with any other IPv6 address a socket is IPv6-only anyway.
        match UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), BufferSizes::DEFAULT) {
            Ok(socket) => assert!(socket.socket.only_v6().expect("an IPv6 socket")),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    /// Opens a socket with segmentation on a loopback address; `None` if the machine lacks it.
    fn joining(ip: &str) -> Option<UdpSocket> {
        let address = SocketAddr::new(ip.parse().expect("an address"), 0);
        let socket = UdpSocket::bind(address, BufferSizes::DEFAULT).map_err(|error| error.to_string());
        let joined = socket.and_then(|mut socket| {
            socket.enable_segmentation(Arc::new(AtomicBool::new(true))).map(|()| socket).map_err(|e| e.to_string())
        });
        joined.inspect_err(|error| eprintln!("skipped: {error}")).ok()
    }

    /// Opens a receiving socket on a loopback address, with the list of datagrams it expects.
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

    /// Checks that each phone has received exactly what it expects, in order.
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
    fn segmented_sends_arrive_separately() {
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

    /// The kernel accepts the datagrams before a refused one, which may be anywhere in a segmented message.
    #[test]
    fn segmented_sends_continue_after_a_refused_datagram() {
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
    fn sockets_are_nonblocking_and_close_on_exec() {
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
