//! A binding in compact form.

use core::cmp::Ordering;
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use strowger_foundation::wheel::TimerId;
use strowger_foundation::{ConnId, Flow, HostId, ListenerId, Timestamp, Transport};

use crate::gruu::{instance_hash, same_instance};
use crate::text::Text;
use crate::values::ContactTarget;
use crate::wheel::BindingKey;

/// One contact of one address of record: 112 bytes, and its text.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) text: Text,
    pub(crate) call_id: [u8; 16],
    pub(crate) expires: Timestamp,
    /// Its neighbours among bindings that expire at about the same time.
    pub(crate) links: Links,
    pub(crate) keep_alive: TimerId,
    /// Hash of the address of record.
    pub(crate) hash: u32,
    /// The serial at which it was created.
    pub(crate) first_serial: u32,
    pub(crate) cseq: u32,
    /// Serial of its last update in the stripe, which orders bindings by age; wraps.
    pub(crate) serial: u32,
    pub(crate) packed_flow: PackedFlow,
}

const _: () = assert!(size_of::<Binding>() <= 112, "the budget of a binding");

/// Neighbours in a ring: bindings or the ring's own link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Binding {
    /// Returns its key, which is unique during its lifetime.
    pub(crate) const fn key(&self) -> BindingKey {
        BindingKey { hash: self.hash, born: self.first_serial }
    }

    pub(crate) fn aor(&self) -> &[u8] {
        self.text.aor()
    }

    pub(crate) fn uri(&self) -> &[u8] {
        self.text.uri()
    }

    /// Returns the instance ID without brackets; empty if there is none.
    pub(crate) fn instance(&self) -> &[u8] {
        self.text.instance()
    }

    pub(crate) fn reg_id(&self) -> Option<u32> {
        self.text.reg_id()
    }

    pub(crate) fn has_instance(&self, instance: &[u8]) -> bool {
        !instance.is_empty() && same_instance(self.instance(), instance)
    }

    pub(crate) fn flow(&self) -> Flow {
        self.packed_flow.flow()
    }

    /// Returns the connection whose close removes the binding.
    pub(crate) fn bound_connection(&self) -> Option<ConnId> {
        self.packed_flow
            .connection
            .filter(|_| !self.packed_flow.has(PackedFlow::REOPEN) && !self.packed_flow.is_via_other_member())
    }

    /// Returns whether the server must send keep-alives: if the binding is behind NAT and the client does not keep
    /// the flow open itself (RFC 5626 §4.4.1).
    pub(crate) fn wants_keep_alive(&self) -> bool {
        let kept_open = self.reg_id().is_some() && self.packed_flow.connection.is_some();
        self.packed_flow.preference.is_translated() && !kept_open && !self.packed_flow.is_via_other_member()
    }

    pub(crate) fn target(&self) -> ContactTarget {
        ContactTarget {
            uri: self.uri().into(),
            q: self.packed_flow.preference.q().unwrap_or(1000),
            flow: self.flow(),
            is_translated: self.packed_flow.preference.is_translated(),
            instance: instance_hash(self.instance()),
            path: self.text.path().into(),
            holder: None,
        }
    }

    /// Returns the remaining seconds, rounded up, so that a current binding never shows 0.
    pub(crate) fn expires_in_s(&self, now: Timestamp) -> u64 {
        let left = self.expires.saturating_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }

    /// Orders by falling q, and at equal q the newest first.
    pub(crate) fn precedence(&self, other: &Self) -> Ordering {
        let q = |binding: &Self| binding.packed_flow.preference.q().unwrap_or(1000);
        q(other).cmp(&q(self)).then_with(|| other.age(self))
    }

    /// Orders by age; less is older.
    pub(crate) fn age(&self, other: &Self) -> Ordering {
        self.serial.wrapping_sub(other.serial).cast_signed().cmp(&0)
    }
}

/// A [`Flow`] and its preference in 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedFlow {
    connection: Option<ConnId>,
    ip: [u8; 16],
    port: u16,
    listener: ListenerId,
    pub(crate) preference: Preference,
    flags: u8,
    transport: Transport,
}

impl PackedFlow {
    const V4: u8 = 1;
    const SCOPED: u8 = 2;
    const REOPEN: u8 = 4;
    const AT_PEER: u8 = 8;
    const VIA_OTHER_MEMBER: u8 = 16;
    const NEEDS_TOMBSTONE: u8 = 32;

    pub(crate) fn new(flow: &Flow, preference: Preference) -> Self {
        // The name of a secure peer is proven anew for each connection.
        let Flow { listener, transport, reopen, peer, connection, .. } = *flow;
        let mut flags = if reopen { Self::REOPEN } else { 0 };
        let ip = match peer {
            SocketAddr::V4(v4) => {
                flags |= Self::V4;
                v4.ip().to_ipv6_mapped().octets()
            }
            SocketAddr::V6(v6) => {
                let mut ip = v6.ip().octets();
                // Bytes two to eight of a link-local address are zero (RFC 4291 §2.5.6), which leaves room for the
                // interface index.
                if let [0xfe, 0x80, 0, 0, a, b, c, d, ..] = &mut ip
                    && [*a, *b, *c, *d] == [0; 4]
                {
                    flags |= Self::SCOPED;
                    [*a, *b, *c, *d] = v6.scope_id().to_be_bytes();
                }
                ip
            }
        };
        Self { connection, ip, port: peer.port(), listener, preference, flags, transport }
    }

    /// Sets whether the contact's host is the peer's address.
    pub(crate) const fn with_at_peer(self, is_at_peer: bool) -> Self {
        Self { flags: if is_at_peer { self.flags | Self::AT_PEER } else { self.flags }, ..self }
    }

    /// Returns whether the contact's host is known to be the peer's address.
    pub(crate) fn is_at_peer(&self) -> bool {
        self.has(Self::AT_PEER)
    }

    /// Sets whether only another member reaches it.
    pub(crate) const fn with_via_other_member(self, is_elsewhere: bool) -> Self {
        Self { flags: if is_elsewhere { self.flags | Self::VIA_OTHER_MEMBER } else { self.flags }, ..self }
    }

    pub(crate) fn is_via_other_member(&self) -> bool {
        self.has(Self::VIA_OTHER_MEMBER)
    }

    /// Sets whether an older change of another member may expire after it.
    pub(crate) const fn with_needs_tombstone(self, is_outlasted: bool) -> Self {
        Self { flags: if is_outlasted { self.flags | Self::NEEDS_TOMBSTONE } else { self.flags }, ..self }
    }

    pub(crate) fn needs_tombstone(&self) -> bool {
        self.has(Self::NEEDS_TOMBSTONE)
    }

    /// Returns whether both are equal apart from cached flags.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let said = |place: &Self| (place.port, place.listener, place.preference, place.transport);
        said(self) == said(other)
            && (self.ip, self.connection) == (other.ip, other.connection)
            && (self.flags ^ other.flags) & !(Self::AT_PEER | Self::NEEDS_TOMBSTONE) == 0
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn flow(&self) -> Flow {
        let mut ip = self.ip;
        let mut scope = 0;
        if self.has(Self::SCOPED) {
            let [_, _, _, _, a, b, c, d, ..] = &mut ip;
            scope = u32::from_be_bytes([*a, *b, *c, *d]);
            [*a, *b, *c, *d] = [0; 4];
        }
        let ip = Ipv6Addr::from(ip);
        let peer = match ip.to_ipv4_mapped().filter(|_| self.has(Self::V4)) {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), self.port),
            None => SocketAddrV6::new(ip, self.port, 0, scope).into(),
        };
        let Self { connection, listener, transport, .. } = *self;
        Flow { listener, transport, reopen: self.has(Self::REOPEN), host: HostId::NONE, peer, connection }
    }
}

/// The q value and the NAT flag in two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preference(u16);

impl Preference {
    const TRANSLATED: u16 = 1 << 15;
    const HAS_Q: u16 = 1 << 14;

    pub(crate) const fn new(q: Option<u16>, translated: bool) -> Self {
        let translated = if translated { Self::TRANSLATED } else { 0 };
        match q {
            Some(q) => Self(translated | Self::HAS_Q | if q < 1000 { q } else { 1000 }),
            None => Self(translated),
        }
    }

    pub(crate) fn q(self) -> Option<u16> {
        (self.0 & Self::HAS_Q != 0).then_some(self.0 & (Self::HAS_Q - 1))
    }

    pub(crate) const fn is_translated(self) -> bool {
        self.0 & Self::TRANSLATED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_round_trip() {
        let scoped: SocketAddr = SocketAddrV6::new("fe80::1".parse().expect("valid"), 9, 0, 7).into();
        let peers = ["192.0.2.1:5060", "[2001:db8::1]:5061", "[::ffff:192.0.2.1]:5060", "[fe80:0:1::1]:1", "[::]:0"];
        let peers = peers.map(|peer| peer.parse().expect("an address"));
        for peer in peers.into_iter().chain([scoped]) {
            for connection in [None, Some(ConnId::new(1, 2, 3))] {
                for reopen in [false, true] {
                    let (listener, transport, host) = (ListenerId(700), Transport::Wss, HostId::NONE);
                    let flow = Flow { listener, transport, reopen, host, peer, connection };
                    assert_eq!(PackedFlow::new(&flow, Preference::new(None, false)).flow(), flow);
                }
            }
        }
    }
}
