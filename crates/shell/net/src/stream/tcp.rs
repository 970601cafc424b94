//! Stream sockets: listeners shared by workers, and non-blocking connections.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use mio::net;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use strowger_foundation::Transport;

use super::source::delegate_source;
use crate::error::BindError;
use crate::sys;

/// Accept backlog of each socket of an address; the kernel may cap it (`net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;

/// Number of connections of a socket that may bring data before their handshake is confirmed (RFC 7413). Only clients
/// that have connected before can open them, and only if `net.ipv4.tcp_fastopen` allows it.
const FAST_OPEN_QUEUE: i32 = 256;

/// Idle time before the kernel sends the first keep-alive probe.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(120);
/// Interval between keep-alive probes.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// A listening socket: one per worker and listen address, sharing the address with `SO_REUSEPORT`.
#[derive(Debug)]
pub struct TcpListener {
    listener: net::TcpListener,
    local: SocketAddr,
}

impl TcpListener {
    /// Listens on `address`; port 0 selects a free one. An IPv6 socket accepts IPv6 only.
    ///
    /// # Errors
    /// When the address is in use, does not belong to this machine, or may not be opened by this user.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Self::open(address, false).map_err(|cause| BindError { transport: Transport::Tcp, address, cause })
    }

    /// Opens another socket on the same address, for another worker. The kernel distributes connections among them.
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
        // Allows a restart while the kernel still remembers connections of the previous process.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(is_shared)?;
        socket.bind(&address.into())?;
        // The first socket enables sharing only once it has the address: see `UdpSocket::bind`.
        socket.set_reuse_port(true)?;
        // A request may be delivered twice, as over UDP. Where the kernel does not support it, connections take one
        // round trip more.
        let _ = sys::set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, FAST_OPEN_QUEUE);
        socket.listen(BACKLOG)?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { listener: net::TcpListener::from_std(socket.into()), local })
    }

    /// Returns another descriptor of this socket, for the process that takes it over.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn to_handover(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Takes over a listening socket of another process, with the connections that wait in it.
    ///
    /// # Errors
    /// When the descriptor is no bound stream socket.
    pub fn take_over(socket: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(socket);
        if socket.r#type()? != Type::STREAM {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { listener: net::TcpListener::from_std(socket.into()), local })
    }

    /// Returns the address and port that the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts the next connection and returns it with its peer address; `None` if none is waiting. Never blocks.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory. The connection stays in the kernel's queue, and no further
    /// edge reports it.
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

delegate_source!(TcpListener => listener);

/// Returns whether an accept error is about a connection that is gone, not about this process (accept(2), "Error
/// handling").
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

/// Outcome of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOutcome {
    /// Number of bytes transferred, at least one.
    Bytes(usize),
    /// Would block; mio reports when to retry.
    Blocked,
    /// End of stream: the peer has closed its side.
    Eof,
}

/// A non-blocking connection without Nagle's algorithm.
#[derive(Debug)]
pub struct TcpStream {
    stream: net::TcpStream,
}

impl TcpStream {
    /// Starts a connection from any port of `local` to `peer`. It is open once mio reports it writable and
    /// [`is_connected`](Self::is_connected) returns true.
    ///
    /// # Errors
    /// When it cannot be started: there is no route to the peer, or no descriptor is left.
    pub fn connect(local: IpAddr, peer: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if !local.is_unspecified() {
            // If the kernel supports it, one port serves connections to several peers.
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

    /// Returns whether a connection being opened is open; `false` while it is in progress.
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

    /// Disables Nagle's algorithm and makes the kernel abort the connection if sent bytes stay unacknowledged, or
    /// keep-alive probes unanswered, for `user_timeout`.
    ///
    /// # Errors
    /// When the connection is already gone.
    pub fn tune(&self, user_timeout: Duration) -> io::Result<()> {
        let socket = SockRef::from(&self.stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(user_timeout))?;
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER).with_interval(KEEP_ALIVE_EVERY);
        socket.set_tcp_keepalive(&keep_alive)
    }

    /// Reads received bytes. Never blocks.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<IoOutcome> {
        debug_assert!(!buffer.is_empty());
        io_outcome(|| (&self.stream).read(buffer))
    }

    /// Reads received bytes, which stay to be read. Never blocks.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<IoOutcome> {
        debug_assert!(!buffer.is_empty());
        io_outcome(|| self.stream.peek(buffer))
    }

    /// Writes as much of `bytes`, which is not empty, as the kernel accepts. Never blocks.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn write(&self, bytes: &[u8]) -> io::Result<IoOutcome> {
        debug_assert!(!bytes.is_empty());
        io_outcome(|| (&self.stream).write(bytes))
    }

    /// Closes the sending side; bytes already written are still sent.
    pub fn end(&self) {
        // Fails only if the connection is already gone.
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

delegate_source!(TcpStream => stream);
