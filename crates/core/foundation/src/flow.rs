//! Where a message came from or goes to.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::id::{ConnId, ListenerId};

/// An address in 16 bytes, the same everywhere: IPv4 as it is mapped into IPv6 (RFC 4291 §2.5.5.2).
#[must_use]
pub const fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// A transport protocol as it is written in Via (RFC 3261 §20.42, RFC 7118).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Datagrams; the only transport on which transactions retransmit.
    #[default]
    Udp,
    /// A plain stream.
    Tcp,
    /// A stream under TLS.
    Tls,
    /// A WebSocket.
    Ws,
    /// A WebSocket under TLS.
    Wss,
}

impl Transport {
    /// The name as Via spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Ws => "WS",
            Self::Wss => "WSS",
        }
    }

    /// Reads a Via or URI transport token, in any case.
    #[must_use]
    pub fn from_token(token: &[u8]) -> Option<Self> {
        const ALL: [Transport; 5] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];
        ALL.into_iter().find(|t| t.as_str().as_bytes().eq_ignore_ascii_case(token))
    }

    /// Whether the transport delivers, so that requests and responses are not retransmitted (RFC 3261 §17).
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// The port that is meant where none is written (RFC 3261 §18.1.1, RFC 7118 §5).
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Udp | Self::Tcp => 5060,
            Self::Tls => 5061,
            Self::Ws => 80,
            Self::Wss => 443,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One way to reach a peer: the local listener and the peer's address; for a stream also the connection, where one is meant.
///
/// | `connection` | `reopen` | a message goes |
/// |---|---|---|
/// | none | | as a datagram, or on any connection to `peer`, opened where there is none |
/// | some | no | on this connection only: when it is closed the peer is out of reach (RFC 5626) |
/// | some | yes | on this connection, or once it is closed, as without one (RFC 3261 §18.2.2) |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The local socket, or the listener on whose behalf connections are opened.
    pub listener: ListenerId,
    /// The transport of that socket.
    pub transport: Transport,
    /// Another connection may take the place of `connection` once that is closed.
    pub reopen: bool,
    /// The far end; with `reopen`, where another connection is opened to.
    pub peer: SocketAddr,
    /// The connection, on streams.
    pub connection: Option<ConnId>,
}

impl Flow {
    /// The flow to `peer` by no connection in particular.
    #[must_use]
    pub const fn new(listener: ListenerId, transport: Transport, peer: SocketAddr) -> Self {
        Self { listener, transport, reopen: false, peer, connection: None }
    }

    /// The flow of one connection, and of no other.
    #[must_use]
    pub const fn on_connection(
        listener: ListenerId,
        transport: Transport,
        peer: SocketAddr,
        connection: ConnId,
    ) -> Self {
        Self { listener, transport, reopen: false, peer, connection: Some(connection) }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.as_str(), self.peer)
    }
}
