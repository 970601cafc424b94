//! Messages between processes after the takeover.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use strowger_foundation::{ConnId, Flow, HostId, ListenerId, ShardId, Timestamp, Transport};
use strowger_worker::{RelayKind, RelayedMessage};

/// Maximum length of a relayed message: that of a datagram, and of a message on a connection.
pub const MAX_RELAYED_BYTES: usize = 128 * 1024;

/// Length of a frame without the message.
const FIXED: usize = 1 + 2 + 8 + 2 + 1 + 1 + 4 + 8 + 16 + 2 + 4;

/// The kinds of messages by their numbers, from 1. A number is never used again for another one.
const KINDS: [RelayKind; 5] =
    [RelayKind::Deliver, RelayKind::Send, RelayKind::Failed, RelayKind::Closed, RelayKind::WayClosed];

/// Number of a frame with what remains.
const REMAINING: u8 = 0;
/// Number of a frame with the process id of the one that serves.
const SERVES: u8 = u8::MAX - 3;
/// Number of a frame that says that the sender ends.
const ENDED: u8 = u8::MAX - 2;
/// Number of a frame with a call.
const CALL: u8 = u8::MAX - 1;
/// Number of a frame that asks for the end of all connections.
const CLOSE_CONNECTIONS: u8 = u8::MAX;

const REOPEN: u8 = 1;
const V4: u8 = 2;

const TRANSPORTS: [Transport; 5] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

/// A frame of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayFrame<'m> {
    /// A message, or what has become of one.
    Message(RelayKind, RelayedMessage<'m>),
    /// What the sender still has.
    Remaining {
        /// Number of its transactions.
        transactions: u64,
        /// Number of its connections.
        connections: u64,
    },
    /// Close all connections.
    CloseConnections,
    /// The state of a call that the sender has set up, for its shard.
    Call(&'m [u8]),
    /// The sender has the sockets.
    Serves {
        /// Its process id.
        pid: u32,
    },
    /// The sender ends in order, and this is its last frame. One that dies sends none.
    Ended,
}

impl<'m> RelayFrame<'m> {
    /// Appends the frame to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, message) = match self {
            Self::Message(kind, message) => (kind, message),
            Self::CloseConnections => return out.push(CLOSE_CONNECTIONS),
            Self::Ended => return out.push(ENDED),
            Self::Serves { pid } => {
                out.push(SERVES);
                return out.extend_from_slice(&pid.to_le_bytes());
            }
            Self::Call(state) => {
                out.push(CALL);
                return out.extend_from_slice(state);
            }
            Self::Remaining { transactions, connections } => {
                out.push(REMAINING);
                out.extend_from_slice(&transactions.to_le_bytes());
                return out.extend_from_slice(&connections.to_le_bytes());
            }
        };
        let RelayedMessage { shard, flow, arrival, bytes } = *message;
        let kind = KINDS.iter().position(|one| one == kind).and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0);
        let Flow { listener, transport, reopen, host, peer, connection } = flow;
        let transport = TRANSPORTS.iter().position(|one| *one == transport).unwrap_or(0);
        let (ip, scope, is_v4) = match peer {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0, true),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id(), false),
        };
        out.reserve(FIXED + bytes.len());
        out.push(kind);
        out.extend_from_slice(&shard.0.to_le_bytes());
        out.extend_from_slice(&arrival.as_nanos().to_le_bytes());
        out.extend_from_slice(&listener.0.to_le_bytes());
        out.push(u8::try_from(transport).unwrap_or(0));
        out.push(if reopen { REOPEN } else { 0 } | if is_v4 { V4 } else { 0 });
        out.extend_from_slice(&host.0.to_le_bytes());
        out.extend_from_slice(&connection.map_or(0, ConnId::to_bits).to_le_bytes());
        out.extend_from_slice(&ip.octets());
        out.extend_from_slice(&peer.port().to_le_bytes());
        out.extend_from_slice(&scope.to_le_bytes());
        out.extend_from_slice(bytes);
    }

    /// Reads a frame; `None` if it is none.
    #[must_use]
    pub fn read(mut frame: &'m [u8]) -> Option<Self> {
        let kind = u8::from_le_bytes(take(&mut frame)?);
        if kind == CLOSE_CONNECTIONS {
            return frame.is_empty().then_some(Self::CloseConnections);
        }
        if kind == ENDED {
            return frame.is_empty().then_some(Self::Ended);
        }
        if kind == SERVES {
            let pid = u32::from_le_bytes(take(&mut frame)?);
            return frame.is_empty().then_some(Self::Serves { pid });
        }
        if kind == CALL {
            return (frame.len() <= MAX_RELAYED_BYTES).then_some(Self::Call(frame));
        }
        if kind == REMAINING {
            let transactions = u64::from_le_bytes(take(&mut frame)?);
            let connections = u64::from_le_bytes(take(&mut frame)?);
            return frame.is_empty().then_some(Self::Remaining { transactions, connections });
        }
        let kind = *KINDS.get(usize::from(kind).checked_sub(1)?)?;
        let shard = ShardId(u16::from_le_bytes(take(&mut frame)?));
        let arrival = Timestamp::from_nanos(u64::from_le_bytes(take(&mut frame)?));
        let listener = ListenerId(u16::from_le_bytes(take(&mut frame)?));
        let transport = *TRANSPORTS.get(usize::from(u8::from_le_bytes(take(&mut frame)?)))?;
        let flags = u8::from_le_bytes(take(&mut frame)?);
        let host = HostId(u32::from_le_bytes(take(&mut frame)?));
        let connection = match u64::from_le_bytes(take(&mut frame)?) {
            0 => None,
            bits => Some(ConnId::from_bits(bits)?),
        };
        let ip = Ipv6Addr::from(take::<16>(&mut frame)?);
        let port = u16::from_le_bytes(take(&mut frame)?);
        let scope = u32::from_le_bytes(take(&mut frame)?);
        let peer = match ip.to_ipv4_mapped() {
            Some(v4) if flags & V4 != 0 && scope == 0 => SocketAddr::new(IpAddr::V4(v4), port),
            None if flags & V4 == 0 => SocketAddrV6::new(ip, port, 0, scope).into(),
            Some(_) if flags & V4 == 0 => SocketAddrV6::new(ip, port, 0, scope).into(),
            _ => return None,
        };
        if flags & !(REOPEN | V4) != 0 || frame.len() > MAX_RELAYED_BYTES {
            return None;
        }
        let flow = Flow { listener, transport, reopen: flags & REOPEN != 0, host, peer, connection };
        let message = RelayedMessage { shard, flow, arrival, bytes: frame };
        Some(Self::Message(kind, message))
    }
}

fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flows() -> impl Strategy<Value = Flow> {
        let peer = prop_oneof![
            any::<(std::net::Ipv4Addr, u16)>().prop_map(SocketAddr::from),
            any::<(Ipv6Addr, u16, u32)>().prop_map(|(ip, port, scope)| SocketAddrV6::new(ip, port, 0, scope).into()),
        ];
        let connection = prop_oneof![
            Just(None),
            (0..4_000_u16, 0..ConnId::MAX_SLOTS, 0..1_000_u32)
                .prop_map(|(worker, slot, generation)| Some(ConnId::new(worker, slot, generation))),
        ];
        (any::<u16>(), 0..TRANSPORTS.len(), any::<bool>(), any::<u32>(), peer, connection).prop_map(
            |(listener, transport, reopen, host, peer, connection)| Flow {
                listener: ListenerId(listener),
                transport: TRANSPORTS[transport],
                reopen,
                host: HostId(host),
                peer,
                connection,
            },
        )
    }

    proptest! {
        #[test]
        fn frames_round_trip(flow in flows(), shard: u16, arrival: u64, bytes: Vec<u8>, kind in 0..KINDS.len()) {
            let message =
                RelayedMessage { shard: ShardId(shard), flow, arrival: Timestamp::from_nanos(arrival), bytes: &bytes };
            let frame = RelayFrame::Message(KINDS[kind], message);
            let mut written = Vec::new();
            frame.write(&mut written);
            prop_assert_eq!(written.len(), FIXED + bytes.len());
            prop_assert_eq!(RelayFrame::read(&written), Some(frame));
            prop_assert_eq!(RelayFrame::read(&written[..FIXED - 1]), None);
        }

        #[test]
        fn what_is_read_is_written_again(bytes: Vec<u8>, kind in prop_oneof![0..8_u8, SERVES..=u8::MAX]) {
            let mut frame = vec![kind];
            frame.extend_from_slice(&bytes);
            if let Some(read) = RelayFrame::read(&frame) {
                let mut written = Vec::new();
                read.write(&mut written);
                prop_assert_eq!(written, frame);
            }
        }
    }
}
