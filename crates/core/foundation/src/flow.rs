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
    pub const fn from_token(token: &[u8]) -> Option<Self> {
        /// Turns letters into lower case, and nothing else into a letter.
        const LOWER: u8 = b'a' - b'A';
        match *token {
            [a, b, c] => match [a | LOWER, b | LOWER, c | LOWER] {
                [b'u', b'd', b'p'] => Some(Self::Udp),
                [b't', b'c', b'p'] => Some(Self::Tcp),
                [b't', b'l', b's'] => Some(Self::Tls),
                [b'w', b's', b's'] => Some(Self::Wss),
                _ => None,
            },
            [a, b] if matches!([a | LOWER, b | LOWER], [b'w', b's']) => Some(Self::Ws),
            _ => None,
        }
    }

    /// Whether it is encrypted (RFC 5630 §3.1).
    #[must_use]
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Whether its messages are in WebSockets. Only clients open these, so a peer is reachable only while its
    /// connection lasts (RFC 7118 §5).
    #[must_use]
    pub const fn is_web_socket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    //= rfc7118#5:reliable
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

/// A host name, as numbered by the process. What only secure flows have: the name that the peer's certificate must
/// speak for, or has proven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    /// No name: a peer known by its address only, which its certificate must have.
    pub const NONE: Self = Self(0);
    /// The peer that has connected from the address, whoever it is. Only for responses, which go to where the request
    /// came from; if that connection is gone, and without TLS, as [`NONE`](Self::NONE).
    pub const SOURCE: Self = Self(u32::MAX);
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
    /// On a secure transport, the name of the peer; elsewhere without meaning. Of a received message, only the domain
    /// of a trunk that its certificate has proven.
    pub host: HostId,
    /// The remote address; with `reopen`, the address to connect to.
    pub peer: SocketAddr,
    /// The connection, for streams.
    pub connection: Option<ConnId>,
}

impl Flow {
    /// Creates the flow to `peer` over any connection.
    #[must_use]
    pub const fn new(listener: ListenerId, transport: Transport, peer: SocketAddr) -> Self {
        Self { listener, transport, reopen: false, host: HostId::NONE, peer, connection: None }
    }

    /// Creates the flow over one specific connection.
    #[must_use]
    pub const fn on_connection(
        listener: ListenerId,
        transport: Transport,
        peer: SocketAddr,
        connection: ConnId,
    ) -> Self {
        Self { listener, transport, reopen: false, host: HostId::NONE, peer, connection: Some(connection) }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.as_str(), self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_named_by_their_token_in_any_case_and_by_nothing_else() {
        let all = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];
        for transport in all {
            let token = transport.as_str();
            for spelling in [token.to_owned(), token.to_lowercase(), token[..1].to_owned() + &token[1..].to_lowercase()]
            {
                assert_eq!(Transport::from_token(spelling.as_bytes()), Some(transport), "{spelling}");
            }
        }
        // All tokens that differ in one byte from one of the names.
        for name in all.map(Transport::as_str) {
            for (place, byte) in (0..name.len()).flat_map(|place| (0..=u8::MAX).map(move |byte| (place, byte))) {
                let token: Vec<u8> =
                    name.bytes().enumerate().map(|(at, old)| if at == place { byte } else { old }).collect();
                let expected = all.into_iter().find(|known| known.as_str().as_bytes().eq_ignore_ascii_case(&token));
                assert_eq!(Transport::from_token(&token), expected, "{token:?}");
            }
        }
        assert!([&b""[..], b"W", b"UDPS", b"SCTP"].into_iter().all(|token| Transport::from_token(token).is_none()));
    }
}
