//! Headers of Ethernet, IP, UDP and TCP for a payload that the server has seen without them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of connections whose sequence numbers are known. Beyond it all of them start anew, at numbers that
/// were not used before.
const MAX_CONNECTIONS: usize = 4096;
/// Distance of the first sequence numbers of a connection before and after it was forgotten.
const NEXT_ISN: u32 = 0x1000_0000;
/// Addresses of the server and of every peer, administered locally.
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const UDP: u8 = 17;
const TCP: u8 = 6;
const HOP_LIMIT: u8 = 64;
const PSH_ACK: u16 = 0x5018;
const WINDOW: u16 = u16::MAX;

/// Ends of a connection: the server's and the peer's.
type Ends = (SocketAddr, SocketAddr);

/// Writes headers. Knows the sequence numbers of TCP connections.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// Number of the next IPv4 packet.
    identification: u16,
    /// First sequence number of the next connection.
    initial: u32,
    /// Next sequence numbers of the server and of the peer.
    connections: HashMap<Ends, (u32, u32)>,
}

/// Direction and ends of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) is_sent: bool,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
}

impl Headers {
    /// Returns the frame of a datagram. `cut` is the number of bytes missing at the end of `payload`.
    pub(crate) fn udp(&mut self, path: Path, payload: &[u8], cut: usize) -> Vec<u8> {
        let mut segment = Vec::with_capacity(8 + payload.len());
        segment.extend(path.source.port().to_be_bytes());
        segment.extend(path.destination.port().to_be_bytes());
        segment.extend(length(8 + payload.len() + cut).to_be_bytes());
        segment.extend([0, 0]);
        segment.extend(payload);
        // 0 stands for no checksum (RFC 768).
        let sum = match checksum_of(path, UDP, &segment) {
            0 => u16::MAX,
            sum => sum,
        };
        put(&mut segment, 6, sum);
        self.frame(path, UDP, &segment, cut)
    }

    /// Returns the frame of a segment that continues its connection.
    pub(crate) fn tcp(&mut self, path: Path, payload: &[u8], cut: usize) -> Vec<u8> {
        let (sequence, acknowledged) = self.advance(path, payload.len() + cut);
        let mut segment = Vec::with_capacity(20 + payload.len());
        segment.extend(path.source.port().to_be_bytes());
        segment.extend(path.destination.port().to_be_bytes());
        segment.extend(sequence.to_be_bytes());
        segment.extend(acknowledged.to_be_bytes());
        segment.extend(PSH_ACK.to_be_bytes());
        segment.extend(WINDOW.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend(payload);
        let sum = checksum_of(path, TCP, &segment);
        put(&mut segment, 16, sum);
        self.frame(path, TCP, &segment, cut)
    }

    /// Returns the sequence and acknowledgement numbers of a segment with `count` bytes.
    fn advance(&mut self, path: Path, count: usize) -> (u32, u32) {
        let Path { is_sent, source, destination } = path;
        let ends = if is_sent { (source, destination) } else { (destination, source) };
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&ends) {
            self.connections.clear();
            self.initial = self.initial.wrapping_add(NEXT_ISN);
        }
        let first = self.initial.wrapping_add(1);
        let (server, peer) = self.connections.entry(ends).or_insert((first, first));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let (own, other) = if is_sent { (server, peer) } else { (peer, server) };
        let sequence = std::mem::replace(own, own.wrapping_add(count));
        (sequence, *other)
    }

    fn frame(&mut self, path: Path, protocol: u8, segment: &[u8], cut: usize) -> Vec<u8> {
        let mut frame = Vec::with_capacity(14 + 40 + segment.len());
        let (to, from) = if path.is_sent { (PEER_MAC, SERVER_MAC) } else { (SERVER_MAC, PEER_MAC) };
        frame.extend(to);
        frame.extend(from);
        match (path.source.ip(), path.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00]);
                let mut header = Vec::with_capacity(20);
                header.extend([0x45, 0]);
                header.extend(length(20 + segment.len() + cut).to_be_bytes());
                self.identification = self.identification.wrapping_add(1);
                header.extend(self.identification.to_be_bytes());
                header.extend([0, 0, HOP_LIMIT, protocol, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                let sum = checksum(&[&header]);
                put(&mut header, 10, sum);
                frame.extend(header);
            }
            (source, destination) => {
                frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
                frame.extend(length(segment.len() + cut).to_be_bytes());
                frame.extend([protocol, HOP_LIMIT]);
                frame.extend(strowger_foundation::octets(source));
                frame.extend(strowger_foundation::octets(destination));
            }
        }
        frame.extend(segment);
        frame
    }
}

/// Returns a length field. No packet is longer, but a message over TCP may be.
fn length(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Writes a big-endian number at a place that exists.
fn put(bytes: &mut [u8], at: usize, number: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

/// Returns the checksum of a UDP or TCP segment with its pseudo-header (RFC 768, RFC 8200 §8.1). Of a packet that is
/// cut it is wrong; readers do not check it then.
fn checksum_of(path: Path, protocol: u8, segment: &[u8]) -> u16 {
    let count = u32::try_from(segment.len()).unwrap_or(u32::MAX).to_be_bytes();
    let pseudo = [0, 0, 0, protocol];
    match (path.source.ip(), path.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            checksum(&[&source.octets(), &destination.octets(), &count, &pseudo, segment])
        }
        (source, destination) => {
            let (source, destination) = (strowger_foundation::octets(source), strowger_foundation::octets(destination));
            checksum(&[&source, &destination, &count, &pseudo, segment])
        }
    }
}

/// Returns the Internet checksum (RFC 1071). All parts but the last have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        let (pairs, last) = part.as_chunks::<2>();
        sum += pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>();
        sum += last.iter().map(|byte| u64::from(*byte) << 8).sum::<u64>();
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(is_sent: bool) -> Path {
        let (server, peer) = ("192.0.2.1:5060", "192.0.2.2:40000");
        let (source, destination) = if is_sent { (server, peer) } else { (peer, server) };
        Path {
            is_sent,
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
        }
    }

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        // RFC 1071 §3: the sum of these bytes is ddf2.
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(checksum(&[&[0x00, 0x01], &[0xf2]]), !0xf201);
    }

    #[test]
    fn a_header_with_its_checksum_sums_to_zero() {
        let mut headers = Headers::default();
        let frame = headers.udp(path(true), b"odd", 0);
        assert_eq!(checksum(&[&frame[14..34]]), 0);
        assert_eq!(checksum_of(path(true), UDP, &frame[34..]), 0);
        let frame = headers.tcp(path(false), b"even", 0);
        assert_eq!(checksum_of(path(false), TCP, &frame[34..]), 0);
    }

    #[test]
    fn segments_follow_each_other_in_both_directions() {
        let mut headers = Headers::default();
        assert_eq!(headers.advance(path(false), 100), (1, 1));
        assert_eq!(headers.advance(path(true), 10), (1, 101));
        assert_eq!(headers.advance(path(false), 5), (101, 11));
    }

    #[test]
    fn the_number_of_connections_is_bounded_and_no_sequence_number_returns() {
        let mut headers = Headers::default();
        let peer = |number: usize| Path {
            source: SocketAddr::new([192, 0, 2, 9].into(), u16::try_from(number).expect("a port")),
            ..path(false)
        };
        for number in 0..=MAX_CONNECTIONS {
            headers.advance(peer(number), 1000);
        }
        assert!(headers.connections.len() <= MAX_CONNECTIONS);
        assert!(headers.advance(peer(0), 1000).0 > 1001);
    }
}
