//! Captures built from bytes.

use std::net::{IpAddr, SocketAddr};

/// A capture under construction.
pub(crate) struct Packets {
    bytes: Vec<u8>,
    link: u32,
    number: u16,
}

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

impl Packets {
    /// Starts a pcap file with times in µs.
    pub(crate) fn pcap(link: u32) -> Self {
        let mut bytes = Vec::new();
        for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 262_144, link] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        Self { bytes, link, number: 0 }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds a datagram, `ms` after the beginning.
    pub(crate) fn udp(&mut self, ms: u64, source: &str, destination: &str, text: &str) -> &mut Self {
        let packet =
            ip(17, at(source), at(destination), &udp(at(source), at(destination), text.as_bytes()), self.number, 0);
        self.number += 1;
        self.frame(ms, &packet)
    }

    /// Adds the same in fragments of `size` bytes, the last one first.
    pub(crate) fn fragments(&mut self, ms: u64, source: &str, destination: &str, text: &str, size: usize) -> &mut Self {
        let payload = udp(at(source), at(destination), text.as_bytes());
        let number = self.number;
        self.number += 1;
        let parts: Vec<_> = payload.chunks(size).enumerate().collect();
        for (index, part) in parts.iter().rev() {
            let more = if index + 1 < parts.len() { 0x2000 } else { 0 };
            let place = u16::try_from(index * size / 8).expect("small") | more;
            self.frame(ms, &ip(17, at(source), at(destination), part, number, place));
        }
        self
    }

    /// Adds a TCP segment.
    pub(crate) fn tcp(
        &mut self,
        ms: u64,
        source: &str,
        destination: &str,
        sequence: u32,
        flags: u8,
        bytes: &[u8],
    ) -> &mut Self {
        let mut segment = Vec::new();
        segment.extend_from_slice(&at(source).port().to_be_bytes());
        segment.extend_from_slice(&at(destination).port().to_be_bytes());
        segment.extend_from_slice(&sequence.to_be_bytes());
        segment.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        segment.extend_from_slice(bytes);
        let packet = ip(6, at(source), at(destination), &segment, self.number, 0);
        self.number += 1;
        self.frame(ms, &packet)
    }

    /// Adds an IP packet in a frame of the capture's link type.
    pub(crate) fn frame(&mut self, ms: u64, packet: &[u8]) -> &mut Self {
        let frame = framed(self.link, packet);
        self.raw(ms, &frame)
    }

    /// Adds a frame unchanged.
    pub(crate) fn raw(&mut self, ms: u64, frame: &[u8]) -> &mut Self {
        let length = u32::try_from(frame.len()).expect("small");
        let seconds = u32::try_from(1_700_000_000 + ms / 1_000).expect("in this century");
        let micros = u32::try_from(ms % 1_000 * 1_000).expect("below a million");
        for word in [seconds, micros, length, length] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(frame);
        self
    }
}

/// Returns a packet in a frame, by link type.
pub(crate) fn framed(link: u32, packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xDD] };
    let head: Vec<u8> = match link {
        0 => vec![2, 0, 0, 0],
        1 => [&[0; 12][..], &kind].concat(),
        // Ethernet with a VLAN tag; the number is specific to these tests.
        2 => [&[0; 12][..], &[0x81, 0x00, 0x00, 0x05], &kind].concat(),
        113 => [&[0; 14][..], &kind].concat(),
        276 => [&kind, &[0; 18][..]].concat(),
        _ => Vec::new(),
    };
    [head, packet.to_vec()].concat()
}

fn udp(source: SocketAddr, destination: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len() + 8).expect("a datagram");
    let mut payload = Vec::new();
    for word in [source.port(), destination.port(), length, 0] {
        payload.extend_from_slice(&word.to_be_bytes());
    }
    payload.extend_from_slice(bytes);
    payload
}

/// Returns an IP packet; `fragment` is the field with flags and offset.
pub(crate) fn ip(
    protocol: u8,
    source: SocketAddr,
    destination: SocketAddr,
    payload: &[u8],
    number: u16,
    fragment: u16,
) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a packet");
    let mut packet = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut packet = vec![0x45, 0];
            packet.extend_from_slice(&(length + 20).to_be_bytes());
            packet.extend_from_slice(&number.to_be_bytes());
            packet.extend_from_slice(&fragment.to_be_bytes());
            packet.extend_from_slice(&[64, protocol, 0, 0]);
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
            packet
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend_from_slice(&length.to_be_bytes());
            packet.extend_from_slice(&[protocol, 64]);
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
            packet
        }
        _ => panic!("addresses of one family"),
    };
    packet.extend_from_slice(payload);
    packet
}

/// Returns a pcapng file with times in ns, from frames with their times in ms.
pub(crate) fn pcapng(link: u16, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).expect("small");
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(body);
        file.extend_from_slice(&length.to_le_bytes());
    };
    let mut head = Vec::new();
    head.extend_from_slice(&0x1A2B_3C4D_u32.to_le_bytes());
    head.extend_from_slice(&[1, 0, 0, 0]);
    head.extend_from_slice(&u64::MAX.to_le_bytes());
    block(0x0A0D_0D0A, &head);
    let mut interface = Vec::new();
    interface.extend_from_slice(&link.to_le_bytes());
    interface.extend_from_slice(&[0, 0, 0, 0, 4, 0]);
    // if_tsresol: 10^-9.
    interface.extend_from_slice(&[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    block(1, &interface);
    for (ms, frame) in frames {
        let time = 1_700_000_000_000_000_000 + ms * 1_000_000;
        let length = u32::try_from(frame.len()).expect("small");
        let mut packet = Vec::new();
        for word in [0, u32::try_from(time >> 32).expect("32 bits"), (time & 0xFFFF_FFFF) as u32, length, length] {
            packet.extend_from_slice(&word.to_le_bytes());
        }
        packet.extend_from_slice(frame);
        packet.resize(packet.len().next_multiple_of(4), 0);
        block(6, &packet);
    }
    file
}
