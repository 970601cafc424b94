//! A message as tools for packets see it.

use std::net::{IpAddr, SocketAddr};

use strowger_foundation::Transport;

/// A message that passed the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedMessage<'a> {
    /// When the server handled it, in nanoseconds since 1970-01-01 UTC.
    pub unix_ns: u64,
    /// Whether the server sent it; otherwise it was received.
    pub is_sent: bool,
    /// The transport.
    pub transport: Transport,
    /// Address of the listener.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// The message, without what is cut off.
    pub bytes: &'a [u8],
    /// Number of bytes cut off at the end.
    pub cut: usize,
}

impl CapturedMessage<'_> {
    /// Returns source and destination. Both are of one family: IPv4 addresses are mapped into IPv6 only beside an IPv6
    /// address.
    pub(crate) fn endpoints(&self) -> (SocketAddr, SocketAddr) {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (mut local, mut peer) = (plain(self.local), plain(self.peer));
        if local.is_ipv4() != peer.is_ipv4() {
            (local, peer) = (mapped(local), mapped(peer));
        }
        if self.is_sent { (local, peer) } else { (peer, local) }
    }
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}
