//! HEP version 3, the format in which Homer collects messages.
//!
//! A packet is "HEP3", its length, and chunks: vendor, type, length and value, each number big-endian.

use std::fmt;
use std::net::IpAddr;

use strowger_foundation::Transport;

use crate::message::CapturedMessage;

const GENERIC_VENDOR: u16 = 0;
const CHUNK_HEADER: usize = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IP_UDP: u8 = 17;
const IP_TCP: u8 = 6;
const PROTOCOL_SIP: u8 = 1;

/// How this server is known to the collector.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HepSource {
    /// Number of the server.
    pub capture_id: u32,
    /// Name of the server.
    pub node: String,
    /// Key that the collector requires.
    pub auth_key: Option<String>,
}

/// The key is secret.
impl fmt::Debug for HepSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HepSource").field("node", &self.node).finish_non_exhaustive()
    }
}

impl HepSource {
    /// Appends the packet for a message. `call_id` connects the messages of a call.
    pub fn encode(&self, message: &CapturedMessage<'_>, call_id: &[u8], packet: &mut Vec<u8>) {
        let start = packet.len();
        packet.extend(b"HEP3\0\0");
        let (source, destination) = message.endpoints();
        let family = if source.is_ipv4() { AF_INET } else { AF_INET6 };
        // TLS and WebSockets are not told apart from TCP by the format.
        let protocol = if message.transport == Transport::Udp { IP_UDP } else { IP_TCP };
        chunk(packet, 1, &[family]);
        chunk(packet, 2, &[protocol]);
        for (address, v4, v6) in [(source, 3, 5), (destination, 4, 6)] {
            match address.ip() {
                IpAddr::V4(ip) => chunk(packet, v4, &ip.octets()),
                IpAddr::V6(ip) => chunk(packet, v6, &ip.octets()),
            }
        }
        chunk(packet, 7, &source.port().to_be_bytes());
        chunk(packet, 8, &destination.port().to_be_bytes());
        let (seconds, rest) = (message.unix_ns / 1_000_000_000, message.unix_ns % 1_000_000_000);
        chunk(packet, 9, &u32::try_from(seconds).unwrap_or(u32::MAX).to_be_bytes());
        chunk(packet, 10, &u32::try_from(rest / 1000).unwrap_or(u32::MAX).to_be_bytes());
        chunk(packet, 11, &[PROTOCOL_SIP]);
        chunk(packet, 12, &self.capture_id.to_be_bytes());
        if let Some(key) = &self.auth_key {
            chunk(packet, 14, key.as_bytes());
        }
        chunk(packet, 17, call_id);
        chunk(packet, 19, self.node.as_bytes());
        chunk(packet, 15, message.bytes);
        let length = u16::try_from(packet.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = packet.get_mut(start + 4..start + 6) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }
}

/// Appends a chunk. No value is longer than a traced message.
fn chunk(packet: &mut Vec<u8>, kind: u16, value: &[u8]) {
    packet.extend(GENERIC_VENDOR.to_be_bytes());
    packet.extend(kind.to_be_bytes());
    packet.extend(u16::try_from(value.len() + CHUNK_HEADER).unwrap_or(u16::MAX).to_be_bytes());
    packet.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_bytes_of_the_specification() {
        let source = HepSource { capture_id: 2001, node: "edge".to_owned(), auth_key: Some("key".to_owned()) };
        let message = CapturedMessage {
            unix_ns: 1_700_000_000_123_456_789,
            is_sent: false,
            transport: Transport::Tls,
            local: "192.0.2.1:5061".parse().expect("an address"),
            peer: "192.0.2.2:40000".parse().expect("an address"),
            bytes: b"SIP",
            cut: 0,
        };
        let mut packet = b"before".to_vec();
        source.encode(&message, b"c@d", &mut packet);
        let expected: &[&[u8]] = &[
            b"before",
            b"HEP3\x00\x82",
            &[0, 0, 0, 1, 0, 7, 2],
            &[0, 0, 0, 2, 0, 7, 6],
            &[0, 0, 0, 3, 0, 10, 192, 0, 2, 2],
            &[0, 0, 0, 4, 0, 10, 192, 0, 2, 1],
            &[0, 0, 0, 7, 0, 8, 0x9c, 0x40],
            &[0, 0, 0, 8, 0, 8, 0x13, 0xc5],
            &[0, 0, 0, 9, 0, 10, 0x65, 0x53, 0xf1, 0x00],
            &[0, 0, 0, 10, 0, 10, 0x00, 0x01, 0xe2, 0x40],
            &[0, 0, 0, 11, 0, 7, 1],
            &[0, 0, 0, 12, 0, 10, 0, 0, 0x07, 0xd1],
            b"\0\0\0\x0e\0\x09key",
            b"\0\0\0\x11\0\x09c@d",
            b"\0\0\0\x13\0\x0aedge",
            b"\0\0\0\x0f\0\x09SIP",
        ];
        assert_eq!(packet, expected.concat());
        assert_eq!(packet.len() - 6, 0x82);
    }
}
