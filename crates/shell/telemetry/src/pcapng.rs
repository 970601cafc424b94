//! Packet captures in the format pcapng (draft-ietf-opsawg-pcapng).
//!
//! Messages over UDP and TCP get the headers of an Ethernet frame, so that every tool reads them. A message over TLS
//! or a WebSocket would not be recognized behind such headers, because the file has what was inside; it is written as
//! an "exported PDU", which names its protocol. Wireshark reads both in one file. Tools built on libpcap accept only
//! one kind of packet in a file, so the second kind is declared when it is first needed.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use strowger_foundation::Transport;

use crate::headers::{Headers, Path};
use crate::message::CapturedMessage;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const ETHERNET: u16 = 1;
const EXPORTED_PDU: u16 = 252;
/// The unit of times: 10 to the power of minus nine seconds.
const NANOSECONDS: u8 = 9;

/// Writes a capture, one packet for each message.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    headers: Headers,
    /// Number of the interface for exported PDUs, once declared.
    exported: Option<u32>,
    /// Number of messages missing before the next one.
    lost: u64,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a capture by the program `application`.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut out: W, application: &str) -> io::Result<Self> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        body.extend([1_u16.to_le_bytes(), 0_u16.to_le_bytes()].concat());
        // The length of the section is unknown.
        body.extend((-1_i64).to_le_bytes());
        option(&mut body, 4, application.as_bytes());
        end_options(&mut body);
        let mut start = block(SECTION_HEADER, &body);
        start.extend(interface(ETHERNET, "strowger"));
        out.write_all(&start)?;
        out.flush()?;
        Ok(Self { out, headers: Headers::default(), exported: None, lost: 0 })
    }

    /// Notes that `count` messages are missing before the next one.
    pub fn lost(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    /// Writes a message and flushes, so that a reader sees it at once.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&mut self, message: &CapturedMessage<'_>) -> io::Result<()> {
        let (source, destination) = message.endpoints();
        let path = Path { is_sent: message.is_sent, source, destination };
        let mut blocks = Vec::new();
        let (interface, packet) = match message.transport {
            Transport::Udp => (0, self.headers.udp(path, message.bytes, message.cut)),
            Transport::Tcp => (0, self.headers.tcp(path, message.bytes, message.cut)),
            Transport::Tls | Transport::Ws | Transport::Wss => {
                let declared = self.exported.unwrap_or_else(|| {
                    blocks.extend(interface(EXPORTED_PDU, "strowger-inside"));
                    1
                });
                self.exported = Some(declared);
                (declared, exported_pdu(path, message))
            }
        };
        let mut body = Vec::with_capacity(packet.len() + 64);
        body.extend(interface.to_le_bytes());
        let [high, low] = [message.unix_ns >> 32, message.unix_ns & u64::from(u32::MAX)];
        body.extend(number(high).to_le_bytes());
        body.extend(number(low).to_le_bytes());
        body.extend(number(packet.len()).to_le_bytes());
        body.extend(number(packet.len() + message.cut).to_le_bytes());
        body.extend(&packet);
        pad(&mut body);
        let direction: u32 = if message.is_sent { 2 } else { 1 };
        option(&mut body, 2, &direction.to_le_bytes());
        match std::mem::take(&mut self.lost) {
            0 => {}
            lost => option(&mut body, 4, &lost.to_le_bytes()),
        }
        end_options(&mut body);
        blocks.extend(block(ENHANCED_PACKET, &body));
        self.out.write_all(&blocks)?;
        self.out.flush()
    }
}

fn interface(link: u16, name: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(link.to_le_bytes());
    body.extend([0; 2]);
    // No limit of a packet's length.
    body.extend([0; 4]);
    option(&mut body, 2, name.as_bytes());
    option(&mut body, 9, &[NANOSECONDS]);
    end_options(&mut body);
    block(INTERFACE_DESCRIPTION, &body)
}

/// Returns the message behind tags that name its protocol and its ends.
fn exported_pdu(path: Path, message: &CapturedMessage<'_>) -> Vec<u8> {
    /// Tags of Wireshark.
    const DISSECTOR: u16 = 12;
    const PORT_TYPE: u16 = 24;
    const SOURCE_PORT: u16 = 25;
    const DESTINATION_PORT: u16 = 26;
    const PROTOCOL_COLUMN: u16 = 33;
    const OVER_TCP: u32 = 2;
    let mut packet = Vec::with_capacity(message.bytes.len() + 128);
    let mut tag = |kind: u16, value: &[u8]| {
        packet.extend(kind.to_be_bytes());
        packet.extend(u16::try_from(value.len().next_multiple_of(4)).unwrap_or(u16::MAX).to_be_bytes());
        packet.extend(value);
        pad(&mut packet);
    };
    tag(DISSECTOR, b"sip");
    let shown = match message.transport {
        Transport::Ws => "SIP/WS",
        Transport::Wss => "SIP/WSS",
        _ => "SIP/TLS",
    };
    tag(PROTOCOL_COLUMN, shown.as_bytes());
    for (address, v4, v6) in [(path.source, 20, 22), (path.destination, 21, 23)] {
        match address.ip() {
            IpAddr::V4(ip) => tag(v4, &ip.octets()),
            IpAddr::V6(ip) => tag(v6, &ip.octets()),
        }
    }
    tag(PORT_TYPE, &OVER_TCP.to_be_bytes());
    let port = |address: SocketAddr| u32::from(address.port()).to_be_bytes();
    tag(SOURCE_PORT, &port(path.source));
    tag(DESTINATION_PORT, &port(path.destination));
    tag(0, &[]);
    packet.extend(message.bytes);
    packet
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = number(body.len() + 12).to_le_bytes();
    [&kind.to_le_bytes(), &length, body, &length].concat()
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn end_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

/// Fills up to a multiple of four bytes.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Converts a number that a file's field can hold.
fn number<T: TryInto<u32>>(count: T) -> u32 {
    count.try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYE: &[u8] = b"BYE sip:a SIP/2.0\r\n\r\n";

    fn message(transport: Transport) -> CapturedMessage<'static> {
        CapturedMessage {
            unix_ns: 1_767_323_045_678_901_234,
            is_sent: true,
            transport,
            local: "192.0.2.1:5060".parse().expect("an address"),
            peer: "[::ffff:192.0.2.2]:40000".parse().expect("an address"),
            bytes: BYE,
            cut: 0,
        }
    }

    /// Returns type and body of each block.
    fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let mut found = Vec::new();
        while !file.is_empty() {
            let length = word(&file[4..8]) as usize;
            assert_eq!(word(&file[length - 4..length]) as usize, length, "both lengths are the same");
            assert_eq!(length % 4, 0);
            found.push((word(&file[..4]), &file[8..length - 4]));
            file = &file[length..];
        }
        found
    }

    fn written(messages: &[CapturedMessage<'_>]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::new(&mut file, "test").expect("memory");
        messages.iter().for_each(|message| writer.write(message).expect("memory"));
        file
    }

    #[test]
    fn the_second_kind_of_packet_is_declared_once_and_only_if_needed() {
        let kinds = |transports: &[Transport]| {
            let messages: Vec<_> = transports.iter().map(|transport| message(*transport)).collect();
            blocks(&written(&messages)).iter().map(|(kind, _)| *kind).collect::<Vec<_>>()
        };
        let (section, interface, packet) = (SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET);
        assert_eq!(kinds(&[Transport::Udp, Transport::Tcp]), [section, interface, packet, packet]);
        assert_eq!(
            kinds(&[Transport::Tls, Transport::Udp, Transport::Wss]),
            [section, interface, interface, packet, packet, packet]
        );
    }

    #[test]
    fn a_packet_has_its_time_and_both_lengths() {
        let cut = CapturedMessage { cut: 500, ..message(Transport::Udp) };
        let file = written(&[cut]);
        let (_, packet) = blocks(&file)[2];
        let word = |at: usize| u32::from_le_bytes(packet[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((u64::from(word(4)) << 32) | u64::from(word(8)), cut.unix_ns);
        let whole = 14 + 20 + 8 + BYE.len();
        assert_eq!((word(12) as usize, word(16) as usize), (whole, whole + 500));
        // The lengths in the headers are those on the wire.
        assert_eq!(&packet[20 + 16..20 + 18], u16::try_from(20 + 8 + BYE.len() + 500).expect("fits").to_be_bytes());
    }

    #[test]
    fn mapped_addresses_are_shown_as_ipv4_unless_the_other_end_has_ipv6() {
        let (source, destination) = message(Transport::Udp).endpoints();
        assert_eq!((source.to_string(), destination.to_string()), ("192.0.2.1:5060".into(), "192.0.2.2:40000".into()));
        let mixed = CapturedMessage {
            peer: "[2001:db8::1]:5060".parse().expect("an address"),
            is_sent: false,
            ..message(Transport::Udp)
        };
        let (source, destination) = mixed.endpoints();
        assert_eq!(
            (source.to_string(), destination.to_string()),
            ("[2001:db8::1]:5060".into(), "[::ffff:192.0.2.1]:5060".into())
        );
    }
}
