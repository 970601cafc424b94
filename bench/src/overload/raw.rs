//! Datagrams with arbitrary source addresses through a raw socket, that is, spoofed packets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Lengths of the IPv4 header (without options) and the UDP header.
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// Protocol number of UDP.
const UDP: u8 = 17;
/// `IPPROTO_RAW`: the sender writes the IPv4 header.
const RAW: i32 = 255;

/// A socket that sends UDP datagrams with a given source. Requires root.
#[derive(Debug)]
pub struct RawSocket {
    socket: Socket,
    to: SocketAddrV4,
    address: SockAddr,
    packet: Vec<u8>,
}

impl RawSocket {
    /// Opens a socket that sends to `to`.
    ///
    /// # Errors
    /// If this user may not open a raw socket.
    pub fn new(to: SocketAddrV4) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))?;
        Ok(Self { socket, to, address: to.into(), packet: Vec::new() })
    }

    /// Sends `payload` with the source address `from`.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn send(&mut self, from: SocketAddrV4, payload: &[u8]) -> io::Result<()> {
        write_packet(&mut self.packet, from, self.to, payload);
        self.socket.send_to(&self.packet, &self.address).map(drop)
    }
}

/// Writes the packet. The kernel fills in the length, the identification and the header checksum. The UDP checksum is
/// optional over IPv4 (RFC 768).
fn write_packet(packet: &mut Vec<u8>, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    packet.clear();
    packet.extend([0x45, 0]);
    packet.extend(length(IP_HEADER + UDP_HEADER + payload.len()));
    packet.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(length(UDP_HEADER + payload.len()));
    packet.extend([0, 0]);
    packet.extend(payload);
}

/// Returns a spoofed source: one of eight million loopback addresses that no other sender uses.
#[must_use]
pub const fn spoofed(random: u64, port: u16) -> SocketAddrV4 {
    let [_, .., a, b, c] = random.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, 128 | a, b, c), port)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_spoofed_datagram_has_its_spoofed_source() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
        let std::net::SocketAddr::V4(to) = receiver.local_addr().expect("bound") else { panic!("IPv4 was asked for") };
        let mut raw = match RawSocket::new(to) {
            Ok(raw) => raw,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("SKIPPED: raw sockets need root");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let from = spoofed(0x00aa_bbcc, 16_999);
        assert_eq!(from.to_string(), "127.170.187.204:16999");
        raw.send(from, b"odd").expect("sent");
        let mut bytes = [0; 16];
        let (length, source) = receiver.recv_from(&mut bytes).expect("it arrives");
        assert_eq!((&bytes[..length], source), (&b"odd"[..], from.into()));
    }
}
