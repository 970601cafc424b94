//! Properties of all connections, tested on generated ones.

#[path = "../../../../fuzz/src/wire_bodies.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the fuzz targets, where it is a library's module")]
mod wire_bodies;

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use proptest::collection::vec;
use proptest::prelude::*;
use strowger_wire::proxy_header::{ProxyAddresses, ProxyHeader, read_proxy_header};
use strowger_wire::websocket::{MessageKind, write_message};
use wire_bodies::{REQUEST, RESPONSE, Receiver, Seen};

/// A message.
#[derive(Clone, Debug)]
struct Sent {
    kind: MessageKind,
    fragments: Vec<Fragment>,
}

/// A part of a message, and the control frame before it.
#[derive(Clone, Debug)]
struct Fragment {
    payload: Vec<u8>,
    control: Option<Control>,
}

/// A ping or pong.
#[derive(Clone, Debug)]
struct Control {
    is_ping: bool,
    payload: Vec<u8>,
}

impl Sent {
    /// Appends the frames; they are masked if a client sends.
    fn write(&self, mask: Option<[u8; 4]>, bytes: &mut Vec<u8>) {
        let last = self.fragments.len() - 1;
        for (number, Fragment { payload, control }) in self.fragments.iter().enumerate() {
            if let Some(Control { is_ping, payload }) = control {
                write_frame(if *is_ping { 0x89 } else { 0x8A }, payload, mask, bytes);
            }
            let opcode = match (number, self.kind) {
                (0, MessageKind::Text) => 1,
                (0, MessageKind::Binary) => 2,
                _ => 0,
            };
            write_frame(opcode | if number == last { 0x80 } else { 0 }, payload, mask, bytes);
        }
    }

    /// Returns what the receiver sees, and appends the pongs that it sends.
    fn expected(&self, pongs: &mut Vec<u8>, mask: Option<[u8; 4]>) -> Vec<Seen> {
        let controls = self.fragments.iter().filter_map(|fragment| fragment.control.as_ref());
        let mut seen: Vec<_> = controls
            .map(|Control { is_ping, payload }| {
                if *is_ping {
                    write_frame(0x8A, payload, mask, pongs);
                    Seen::Ping
                } else {
                    Seen::Pong
                }
            })
            .collect();
        let payload = self.fragments.iter().flat_map(|fragment| fragment.payload.iter().copied()).collect();
        seen.push(Seen::Message(self.kind, payload));
        seen
    }
}

/// A second, plain implementation of the encoder.
fn write_frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>, bytes: &mut Vec<u8>) {
    bytes.push(first);
    let bit = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..126 => bytes.push(bit | length as u8),
        length @ 126..65_536 => {
            bytes.push(bit | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(bit | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(mask.into_iter().flatten());
    let key = mask.unwrap_or_default();
    bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
}

fn fragment(payload: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Fragment> {
    let control =
        (any::<bool>(), vec(any::<u8>(), 0..=125)).prop_map(|(is_ping, payload)| Control { is_ping, payload });
    (payload, proptest::option::weighted(0.2, control)).prop_map(|(payload, control)| Fragment { payload, control })
}

fn sent() -> impl Strategy<Value = Sent> {
    let text = fragment("[a-z: \r\né€]{0,200}".prop_map(String::into_bytes));
    let binary = fragment(prop_oneof![8 => vec(any::<u8>(), 0..300), 1 => vec(any::<u8>(), 60_000..66_000)]);
    prop_oneof![
        vec(text, 1..6).prop_map(|fragments| Sent { kind: MessageKind::Text, fragments }),
        vec(binary, 1..3)
            .prop_filter("within the limit", |parts| parts.iter().map(|part| part.payload.len()).sum::<usize>()
                <= 70_000)
            .prop_map(|fragments| Sent { kind: MessageKind::Binary, fragments }),
    ]
}

/// Two addresses of one family.
fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<(SocketAddrV4, SocketAddrV4)>().prop_map(|(a, b)| (SocketAddr::V4(a), SocketAddr::V4(b)));
    let v6 = any::<(SocketAddrV6, SocketAddrV6)>().prop_map(|(a, b)| (SocketAddr::V6(a), SocketAddr::V6(b)));
    prop_oneof![v4, v6]
}

/// Passes `bytes` in pieces of the given lengths, over and over.
fn receive<E: wire_bodies::End>(receiver: &mut Receiver<E>, mut bytes: &[u8], pieces: &[usize]) {
    for length in pieces.iter().cycle() {
        let (piece, rest) = bytes.split_at(bytes.len().min(*length));
        receiver.receive(piece);
        bytes = rest;
        if bytes.is_empty() {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_arrive_as_sent_however_they_are_cut(messages in vec(sent(), 1..5), mask in any::<[u8; 4]>(), pieces in vec(1usize..3000, 1..8)) {
        let (mut from_client, mut from_server) = (REQUEST.to_vec(), RESPONSE.to_vec());
        let (mut seen, mut of_server, mut of_client) = (vec![Seen::Opened], RESPONSE.to_vec(), Vec::new());
        for message in &messages {
            message.write(Some(mask), &mut from_client);
            message.write(None, &mut from_server);
            seen.extend(message.expected(&mut of_server, None));
            message.expected(&mut of_client, Some(*b"mask"));
        }
        let mut server = Receiver::server();
        receive(&mut server, &from_client, &pieces);
        prop_assert_eq!(&server.seen, &seen);
        prop_assert_eq!(server.out, of_server);
        let mut client = Receiver::client();
        receive(&mut client, &from_server, &pieces);
        prop_assert_eq!(&client.seen, &seen);
        prop_assert_eq!(client.out, of_client);
    }

    #[test]
    fn the_encoder_is_decoded(message in prop_oneof![vec(any::<u8>(), 0..600), "\\PC{0,300}".prop_map(String::into_bytes)], mask in any::<[u8; 4]>()) {
        let kind = if std::str::from_utf8(&message).is_ok() { MessageKind::Text } else { MessageKind::Binary };
        let mut bytes = REQUEST.to_vec();
        write_message(&mut bytes, &message, Some(mask));
        let mut server = Receiver::server();
        server.receive(&bytes);
        prop_assert_eq!(server.seen, [Seen::Opened, Seen::Message(kind, message)]);
    }

    #[test]
    fn any_bytes_never_panic(data in vec(any::<u8>(), 0..300)) {
        wire_bodies::ALL.iter().for_each(|(_, body)| body(&data));
    }

    /// Frames that are almost valid reach deeper than random bytes.
    #[test]
    fn damaged_frames_never_panic(messages in vec(sent(), 1..4), choice in any::<u8>(), hits in vec((any::<u16>(), any::<u8>()), 0..5)) {
        let mut data = vec![choice];
        let mask = (choice & 1 == 0).then_some([1, 2, 3, 4]);
        messages.iter().for_each(|message| message.write(mask, &mut data));
        for (at, byte) in hits {
            let at = usize::from(at) % data.len();
            data[at] = byte;
        }
        wire_bodies::websocket(&data);
    }

    #[test]
    fn damaged_upgrades_never_panic(is_client in any::<bool>(), cut in 0u8..64, hits in vec((any::<u16>(), any::<u8>()), 1..4)) {
        let mut data = vec![cut << 2 | u8::from(is_client)];
        data.extend_from_slice(if is_client { RESPONSE } else { REQUEST });
        for (at, byte) in hits {
            let at = 1 + usize::from(at) % (data.len() - 1);
            data[at] = byte;
        }
        wire_bodies::websocket(&data);
    }

    #[test]
    fn damaged_stun_never_panics(kind in prop_oneof![Just(1u16), any::<u16>()], attributes in vec((any::<u16>(), vec(any::<u8>(), 0..24)), 0..20), hit in proptest::option::of((any::<u16>(), any::<u8>()))) {
        let mut data = vec![0; 20];
        for (kind, value) in attributes {
            data.extend(kind.to_be_bytes());
            data.extend((value.len() as u16).to_be_bytes());
            data.extend(&value);
            data.resize(data.len().next_multiple_of(4), 0);
        }
        data[..2].copy_from_slice(&kind.to_be_bytes());
        let length = (data.len() - 20) as u16;
        data[2..4].copy_from_slice(&length.to_be_bytes());
        data[4..8].copy_from_slice(&[0x21, 0x12, 0xA4, 0x42]);
        if let Some((at, byte)) = hit {
            let at = usize::from(at) % data.len();
            data[at] = byte;
        }
        wire_bodies::stun(&data);
    }

    #[test]
    fn addresses_of_balancers_are_read_as_written((source, destination) in addresses(), fields in vec(any::<u8>(), 0..100)) {
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let line = format!("PROXY {family} {} {} {} {}\r\n", source.ip(), destination.ip(), source.port(), destination.port());
        let mut variable = Vec::new();
        for address in [source, destination] {
            match address.ip() {
                std::net::IpAddr::V4(ip) => variable.extend(ip.octets()),
                std::net::IpAddr::V6(ip) => variable.extend(ip.octets()),
            }
        }
        variable.extend(source.port().to_be_bytes());
        variable.extend(destination.port().to_be_bytes());
        variable.extend(fields);
        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
        binary.push(if source.is_ipv4() { 0x11 } else { 0x21 });
        binary.extend((variable.len() as u16).to_be_bytes());
        binary.extend(variable);
        let address = |of: SocketAddr| SocketAddr::new(of.ip().to_canonical(), of.port());
        let addresses = Some(ProxyAddresses { source: address(source), destination: address(destination) });
        for bytes in [line.as_bytes(), &binary] {
            prop_assert_eq!(read_proxy_header(bytes), Ok(ProxyHeader::Complete { length: bytes.len(), addresses }));
            wire_bodies::proxy_header(bytes);
        }
    }

    #[test]
    fn damaged_headers_of_balancers_never_panic(hits in vec((0usize..28, any::<u8>()), 1..3), line in "PROXY [A-Z0-9.: ]{0,40}\r\n") {
        let mut data = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xac\x13\x00\x01\xac\x13\x00\x03\xa6\x52\x00\x50".to_vec();
        hits.iter().for_each(|(at, byte)| data[*at] = *byte);
        wire_bodies::proxy_header(&data);
        wire_bodies::proxy_header(line.as_bytes());
    }
}
