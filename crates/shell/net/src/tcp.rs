//! Stream sockets: listeners that workers share, and connections that never block.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token, net};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use strowger_foundation::Transport;

use crate::error::BindError;
use crate::sys;

/// Connections that wait to be accepted, on each socket of an address; the kernel may allow fewer (`net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;

/// How long a connection is silent before the kernel asks whether the peer is still there.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(120);
/// How often it asks again.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// A socket that connections arrive at: one a worker for each listen address, sharing it by `SO_REUSEPORT`.
#[derive(Debug)]
pub struct TcpListener {
    listener: net::TcpListener,
    local: SocketAddr,
}

impl TcpListener {
    /// Listens on `address`; port 0 takes a free one. An IPv6 socket takes IPv6 only.
    ///
    /// # Errors
    /// When the address is in use, not this machine's, or not for this user to open.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Self::open(address, false).map_err(|cause| BindError { transport: Transport::Tcp, address, cause })
    }

    /// Another socket on the same address, for another worker. The kernel spreads connections over them.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn sibling(&self) -> Result<Self, BindError> {
        let address = self.local;
        Self::open(address, true).map_err(|cause| BindError { transport: Transport::Tcp, address, cause })
    }

    fn open(address: SocketAddr, is_shared: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Connections of the process before, which the kernel still remembers, do not keep the address from its successor.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(is_shared)?;
        socket.bind(&address.into())?;
        // The first one shares only once it has the address: see `UdpSocket::bind`.
        socket.set_reuse_port(true)?;
        socket.listen(BACKLOG)?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { listener: net::TcpListener::from_std(socket.into()), local })
    }

    /// The address that the socket is bound to, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The next connection that has arrived and who opened it; `None` where none waits. Never waits.
    ///
    /// # Errors
    /// When the system has no descriptor or memory left: the connection stays in the kernel's queue, and no edge will tell
    /// of it again.
    pub fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => return Ok(Some((TcpStream { stream }, peer))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Source for TcpListener {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.listener.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.listener.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.listener.deregister(registry)
    }
}

/// Whether an error of accept is about the connection, which is gone, and not about us (accept(2), "Error handling").
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNABORTED
                | libc::EPROTO
                | libc::EPERM
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
        )
    )
}

/// What came of a try to read or to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOutcome {
    /// So many bytes, at least one.
    Bytes(usize),
    /// None now; mio will tell when it is worth another try.
    Blocked,
    /// None any more: the peer has ended its side.
    Eof,
}

/// A connection. It never blocks and does not collect small segments.
#[derive(Debug)]
pub struct TcpStream {
    stream: net::TcpStream,
}

impl TcpStream {
    /// Begins to open a connection from the address `local`, any port of it, to `peer`. It is open when mio says that it is
    /// writable and [`is_connected`](Self::is_connected) agrees.
    ///
    /// # Errors
    /// When it cannot even be tried: no way leads to the peer, or no descriptor is left.
    pub fn connect(local: IpAddr, peer: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if !local.is_unspecified() {
            // Where the kernel knows it, one port serves connections to several peers.
            let _ = sys::set_option(socket.as_fd(), libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
            socket.bind(&SocketAddr::new(local, 0).into())?;
        }
        match socket.connect(&peer.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Ok(Self { stream: net::TcpStream::from_std(socket.into()) })
    }

    /// Whether a connection that was being opened is open; `false` while that goes on.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends small segments at once, and lets the kernel give the connection up when sent bytes stay unacknowledged, or
    /// its own questions unanswered, for `user_timeout`.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn tune(&self, user_timeout: Duration) -> io::Result<()> {
        let socket = SockRef::from(&self.stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(user_timeout))?;
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER).with_interval(KEEP_ALIVE_EVERY);
        socket.set_tcp_keepalive(&keep_alive)
    }

    /// Reads what has arrived. Never waits.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<IoOutcome> {
        debug_assert!(!buffer.is_empty());
        io_outcome(|| (&self.stream).read(buffer))
    }

    /// Writes as much of `bytes`, which is not empty, as the kernel takes. Never waits.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn write(&self, bytes: &[u8]) -> io::Result<IoOutcome> {
        debug_assert!(!bytes.is_empty());
        io_outcome(|| (&self.stream).write(bytes))
    }

    /// Ends our side; what was written still leaves.
    pub fn end(&self) {
        // It fails only where the connection is gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

fn io_outcome(mut act: impl FnMut() -> io::Result<usize>) -> io::Result<IoOutcome> {
    loop {
        match act() {
            Ok(0) => return Ok(IoOutcome::Eof),
            Ok(count) => return Ok(IoOutcome::Bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(IoOutcome::Blocked),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Source for TcpStream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.stream.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.stream.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.deregister(registry)
    }
}
