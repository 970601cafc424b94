//! Listening sockets of stream transports.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use strowger_foundation::{HostId, Transport};

use super::channel::{Channel, transport_of};
use super::source::delegate_source;
use super::tcp::{TcpListener, TcpStream};
use super::tls::TlsContext;
use super::web_socket::WebSocketContext;
use crate::error::BindError;

/// A listening socket and what its connections speak, also those that are opened from its address.
#[derive(Debug)]
pub struct StreamSocket {
    listener: TcpListener,
    /// For TLS.
    tls: Option<Arc<TlsContext>>,
    /// For WebSockets.
    web_socket: Option<Arc<WebSocketContext>>,
}

impl StreamSocket {
    /// Listens on `address` for connections over TLS; port 0 selects a free one.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_tls(address: SocketAddr, tls: Arc<TlsContext>) -> Result<Self, BindError> {
        let listener = TcpListener::bind(address).map_err(|error| BindError { transport: Transport::Tls, ..error })?;
        Ok(Self { listener, tls: Some(tls), web_socket: None })
    }

    /// Listens on `address` for WebSockets, over TLS if there is a context for it; port 0 selects a free one.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_web_socket(
        address: SocketAddr,
        tls: Option<Arc<TlsContext>>,
        web_socket: Arc<WebSocketContext>,
    ) -> Result<Self, BindError> {
        let transport = if tls.is_some() { Transport::Wss } else { Transport::Ws };
        let listener = TcpListener::bind(address).map_err(|error| BindError { transport, ..error })?;
        Ok(Self { listener, tls, web_socket: Some(web_socket) })
    }

    /// Creates the socket from a listener that was [taken over](TcpListener::take_over), with the contexts of its
    /// transport.
    #[must_use]
    pub const fn from_listener(
        listener: TcpListener,
        tls: Option<Arc<TlsContext>>,
        web_socket: Option<Arc<WebSocketContext>>,
    ) -> Self {
        Self { listener, tls, web_socket }
    }

    /// Returns another descriptor of this socket; see [`TcpListener::to_handover`].
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn to_handover(&self) -> io::Result<OwnedFd> {
        self.listener.to_handover()
    }

    /// Returns the address and port that the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Returns the transport.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        transport_of(self.tls.is_some(), self.web_socket.is_some())
    }

    /// Opens another socket on the same address, for another worker. The kernel distributes connections among them.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sibling(&self) -> Result<Self, BindError> {
        let listener = self.listener.sibling()?;
        Ok(Self { listener, tls: self.tls.clone(), web_socket: self.web_socket.clone() })
    }

    /// Accepts the next connection and returns it with its peer address; `None` if none is waiting. Never blocks.
    ///
    /// # Errors
    /// As [`TcpListener::accept`].
    pub fn accept(&self) -> io::Result<Option<(AcceptedStream, SocketAddr)>> {
        let Some((stream, peer)) = self.listener.accept()? else { return Ok(None) };
        Ok(Some((AcceptedStream { stream, tls: self.tls.clone(), web_socket: self.web_socket.clone() }, peer)))
    }

    /// Starts a connection to `peer` from any port of this socket's address. Over TLS, the certificate of the peer
    /// must speak for `host`; without a name, for its address.
    ///
    /// # Errors
    /// As [`TcpStream::connect`], and when no certificate can have that name. Only clients open WebSockets.
    pub fn connect(&self, peer: SocketAddr, host: Option<(HostId, &str)>) -> io::Result<Channel> {
        self.connect_from(self.local_addr().ip(), peer, host)
    }

    /// Does the same as [`connect`](Self::connect), from any port of the address `local`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_from(&self, local: IpAddr, peer: SocketAddr, host: Option<(HostId, &str)>) -> io::Result<Channel> {
        if self.web_socket.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let stream = TcpStream::connect(local, peer)?;
        let Some(tls) = &self.tls else { return Ok(Channel::plain(stream)) };
        let session = match host {
            Some((_, name)) => tls.connect(name),
            None => tls.connect(&peer.ip().to_canonical().to_string()),
        };
        let host = host.map_or(HostId::NONE, |(host, _)| host);
        Ok(Channel::secure(stream, session.map_err(io::Error::other)?, host))
    }
}

/// An accepted connection, so far without a session. It is closed when dropped.
#[derive(Debug)]
pub struct AcceptedStream {
    stream: TcpStream,
    tls: Option<Arc<TlsContext>>,
    web_socket: Option<Arc<WebSocketContext>>,
}

impl AcceptedStream {
    /// Returns the transport of its messages.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        transport_of(self.tls.is_some(), self.web_socket.is_some())
    }

    /// Prepares the session, if it has one. Costs memory, so limits are checked before. With `has_preface`, a PROXY
    /// header comes before everything else.
    ///
    /// # Errors
    /// When there is no certificate.
    pub fn into_channel(self, has_preface: bool) -> io::Result<Channel> {
        let channel = match self.tls {
            None => Channel::plain(self.stream),
            Some(tls) => Channel::secure(self.stream, tls.accept().map_err(io::Error::other)?, HostId::NONE),
        };
        let channel = match self.web_socket {
            None => channel,
            Some(context) => channel.with_web_socket(context.accept()),
        };
        Ok(if has_preface { channel.with_preface() } else { channel })
    }
}

impl From<TcpListener> for StreamSocket {
    fn from(listener: TcpListener) -> Self {
        Self { listener, tls: None, web_socket: None }
    }
}

delegate_source!(StreamSocket => listener);
