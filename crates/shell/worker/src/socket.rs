//! The sockets a fleet starts with, of any transport.

use std::net::SocketAddr;

use strowger_foundation::Transport;
use strowger_net::{BindError, StreamSocket, TcpListener, UdpSocket};

/// One worker's socket on one listen address.
#[derive(Debug)]
pub enum Socket {
    /// For datagrams.
    Udp(UdpSocket),
    /// For connections.
    Stream(StreamSocket),
    /// None: the listener was removed while an earlier process had it. Its number stays, with its transport and address.
    Closed(Transport, SocketAddr),
}

impl Socket {
    /// Returns the bound address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Stream(socket) => socket.local_addr(),
            Self::Closed(_, address) => *address,
        }
    }

    /// Returns the transport.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Udp(_) => Transport::Udp,
            Self::Stream(socket) => socket.transport(),
            Self::Closed(transport, _) => *transport,
        }
    }

    /// Opens another socket on the same address, for another worker.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sibling(&self) -> Result<Self, BindError> {
        match self {
            Self::Udp(socket) => socket.sibling().map(Self::Udp),
            Self::Stream(socket) => socket.sibling().map(Self::Stream),
            Self::Closed(transport, address) => Ok(Self::Closed(*transport, *address)),
        }
    }
}

impl From<UdpSocket> for Socket {
    fn from(socket: UdpSocket) -> Self {
        Self::Udp(socket)
    }
}

impl From<StreamSocket> for Socket {
    fn from(socket: StreamSocket) -> Self {
        Self::Stream(socket)
    }
}

impl From<TcpListener> for Socket {
    fn from(listener: TcpListener) -> Self {
        Self::Stream(listener.into())
    }
}
