//! Source or destination of a message.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::id::{ConnId, ListenerId};

/// Returns an address as 16 bytes, the same on every platform: IPv4 is mapped into IPv6 (RFC 4291 §2.5.5.2).
#[must_use]
pub const fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// A transport protocol with its token in Via (RFC 3261 §20.42, RFC 7118).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Datagrams, the only transport on which transactions retransmit.
    #[default]
    Udp,
    /// A plain stream.
    Tcp,
    /// A stream over TLS.
    Tls,
    /// A WebSocket.
    Ws,
    /// A WebSocket over TLS.
    Wss,
}

impl Transport {
    /// Returns the token as spelled in Via.
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

    /// Parses a transport token of a Via or URI, in any case.
    #[must_use]
    pub fn from_token(token: &[u8]) -> Option<Self> {
        const ALL: [Transport; 5] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];
        ALL.into_iter().find(|t| t.as_str().as_bytes().eq_ignore_ascii_case(token))
    }

    /// Whether the transport is reliable, so that nothing is retransmitted (RFC 3261 §17).
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// The default port (RFC 3261 §18.1.1, RFC 7118 §5).
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

/// A way to reach a peer: the local listener and the peer's address; for a stream optionally the connection.
///
/// | `connection` | `reopen` | a message goes |
/// |---|---|---|
/// | none | | as a datagram, or on any connection to `peer`, opened if there is none |
/// | some | no | on this connection only: after it closes the peer is unreachable (RFC 5626) |
/// | some | yes | on this connection; after it closes, as without one (RFC 3261 §18.2.2) |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The local socket, or the listener for which connections are opened.
    pub listener: ListenerId,
    /// The transport of that socket.
    pub transport: Transport,
    /// Whether another connection may replace `connection` after it closes.
    pub reopen: bool,
    /// The remote address; with `reopen`, the address to connect to.
    pub peer: SocketAddr,
    /// The connection, for streams.
    pub connection: Option<ConnId>,
}

impl Flow {
    /// Creates the flow to `peer` over any connection.
    #[must_use]
    pub const fn new(listener: ListenerId, transport: Transport, peer: SocketAddr) -> Self {
        Self { listener, transport, reopen: false, peer, connection: None }
    }

    /// Creates the flow over one specific connection.
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
