//! Flow tokens: text in Path and Record-Route that leads a request to the exact connection, or the external address
//! of a NAT, of its peer (RFC 5626 §5.2).
//!
//! Base64url of listener (2 bytes), kind (1), address (4 or 16), port (2) and, for a stream, the connection (8). A
//! standalone token also has a tag (12).

use core::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;
use strowger_foundation::{ConnId, Flow, HostId, KeyRing, ListenerId, Tag, Transport, base64url};

/// The text of a flow.
pub type FlowText = SmallVec<[u8; 64]>;

const V6: u8 = 0x10;
const CONNECTED: u8 = 0x20;
const REOPEN: u8 = 0x40;

/// Encodes a flow without a tag, for use in text that is signed as a whole.
#[must_use]
pub fn encode(flow: &Flow) -> FlowText {
    to_text(&to_bytes(flow))
}

/// Decodes the output of [`encode`].
#[must_use]
pub fn decode(text: &[u8]) -> Option<Flow> {
    from_bytes(&to_raw(text)?)
}

//= rfc5626#5.1:token-unique
/// Returns the flow as an authenticated token.
#[must_use]
pub fn sign(ring: &KeyRing, flow: &Flow) -> FlowText {
    let mut bytes = to_bytes(flow);
    let tag = ring.current().sign(&[b"flow", &bytes]);
    bytes.extend_from_slice(&tag.0);
    to_text(&bytes)
}

/// Returns the flow of a token of ours; `None` for any other text.
#[must_use]
pub fn verify(ring: &KeyRing, text: &[u8]) -> Option<Flow> {
    let bytes = to_raw(text)?;
    let (flow, tag) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
    let tag = Tag(tag.try_into().ok()?);
    ring.verify(&[b"flow", flow], &tag).then(|| from_bytes(flow)).flatten()
}

type Bytes = SmallVec<[u8; 48]>;

fn to_bytes(flow: &Flow) -> Bytes {
    let mut bytes = Bytes::new();
    bytes.extend_from_slice(&flow.listener.0.to_be_bytes());
    let transport = match flow.transport {
        Transport::Udp => 0,
        Transport::Tcp => 1,
        Transport::Tls => 2,
        Transport::Ws => 3,
        Transport::Wss => 4,
    };
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    bytes.push(
        transport
            | flag(flow.peer.is_ipv6(), V6)
            | flag(flow.connection.is_some(), CONNECTED)
            | flag(flow.reopen, REOPEN),
    );
    match flow.peer.ip() {
        IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
    }
    bytes.extend_from_slice(&flow.peer.port().to_be_bytes());
    if let Some(connection) = flow.connection {
        bytes.extend_from_slice(&connection.to_bits().to_be_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8]) -> Option<Flow> {
    let (listener, rest) = bytes.split_first_chunk::<2>()?;
    let (kind, rest) = rest.split_first()?;
    let transport = match kind & 0x0f {
        0 => Transport::Udp,
        1 => Transport::Tcp,
        2 => Transport::Tls,
        3 => Transport::Ws,
        4 => Transport::Wss,
        _ => return None,
    };
    let (ip, rest) = if kind & V6 == 0 {
        let (ip, rest) = rest.split_first_chunk::<4>()?;
        (IpAddr::from(*ip), rest)
    } else {
        let (ip, rest) = rest.split_first_chunk::<16>()?;
        (IpAddr::from(*ip), rest)
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let connection = match (kind & CONNECTED, rest) {
        (0, []) => None,
        (CONNECTED, rest) => Some(ConnId::from_bits(u64::from_be_bytes(rest.try_into().ok()?))?),
        _ => return None,
    };
    Some(Flow {
        listener: ListenerId(u16::from_be_bytes(*listener)),
        transport,
        reopen: kind & REOPEN != 0,
        host: HostId::NONE,
        peer: SocketAddr::new(ip, u16::from_be_bytes(*port)),
        connection,
    })
}

fn to_text(bytes: &[u8]) -> FlowText {
    let mut text = FlowText::new();
    text.resize(base64url::encoded_len(bytes.len()), 0);
    base64url::encode(bytes, &mut text);
    text
}

fn to_raw(text: &[u8]) -> Option<Bytes> {
    let length = Some(base64url::decoded_len(text.len())).filter(|length| *length <= 48)?;
    let mut bytes = Bytes::new();
    bytes.resize(length, 0);
    base64url::decode(text, &mut bytes)?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_foundation::TagKey;

    fn flows() -> Vec<Flow> {
        let udp = Flow::new(ListenerId(3), Transport::Udp, "192.0.2.9:40000".parse().expect("valid"));
        let tcp = Flow::on_connection(
            ListenerId(700),
            Transport::Tcp,
            "[2001:db8::9]:5060".parse().expect("valid"),
            ConnId::new(3, 70_000, 9),
        );
        vec![udp, tcp, Flow { reopen: true, ..tcp }, Flow { connection: None, ..tcp }]
    }

    //= rfc5626#5.1:token-unique
    #[test]
    fn flow_tokens_round_trip_and_forged_ones_fail() {
        let ring = KeyRing::new(TagKey::new([5; 16]));
        for flow in flows() {
            assert_eq!(decode(&encode(&flow)), Some(flow));
            let token = sign(&ring, &flow);
            assert_eq!(verify(&ring, &token), Some(flow));
            assert_eq!(verify(&KeyRing::new(TagKey::new([6; 16])), &token), None);
            for at in 0..token.len() {
                let mut forged = token.clone();
                forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
                assert_eq!(verify(&ring, &forged), None, "byte {at}");
            }
        }
        for text in [&b""[..], b"A", b"bob", b"=====", &[b'A'; 400]] {
            assert_eq!(verify(&ring, text), None);
        }
    }
}
