//! Conversion of socket addresses to and from the kernel's byte layout.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Size that fits either address family.
pub(crate) const RAW_BYTES: usize = V6_BYTES;

const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();
#[expect(clippy::cast_possible_truncation, reason = "address families are small numbers")]
const FAMILY_V4: [u8; 2] = (libc::AF_INET as u16).to_ne_bytes();
#[expect(clippy::cast_possible_truncation, reason = "address families are small numbers")]
const FAMILY_V6: [u8; 2] = (libc::AF_INET6 as u16).to_ne_bytes();

// The codec below assumes these offsets.
const _: () = {
    assert!(offset_of!(libc::sockaddr_in, sin_port) == 2 && offset_of!(libc::sockaddr_in, sin_addr) == 4);
    assert!(offset_of!(libc::sockaddr_in6, sin6_port) == 2 && offset_of!(libc::sockaddr_in6, sin6_flowinfo) == 4);
    assert!(offset_of!(libc::sockaddr_in6, sin6_addr) == 8 && offset_of!(libc::sockaddr_in6, sin6_scope_id) == 24);
    assert!(V4_BYTES == 16 && V6_BYTES == 28);
};

/// An address in the form of `msg_name`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
pub(crate) struct RawAddress {
    /// The `sockaddr_in` or `sockaddr_in6`; bytes past `length` are zero.
    pub(crate) bytes: [u8; RAW_BYTES],
    /// Number of valid bytes.
    pub(crate) length: u32,
}

/// Encodes an address. An IPv4-mapped IPv6 address is encoded as IPv4.
pub(crate) fn encode(address: SocketAddr) -> RawAddress {
    let mut bytes = [0; RAW_BYTES];
    let (family, flow, length) = match address.ip().to_canonical() {
        IpAddr::V4(ip) => (FAMILY_V4, ip.octets(), V4_BYTES),
        IpAddr::V6(_) => (FAMILY_V6, [0; 4], V6_BYTES),
    };
    let [f0, f1] = family;
    let [p0, p1] = address.port().to_be_bytes();
    let [x0, x1, x2, x3] = flow;
    let head = [f0, f1, p0, p1, x0, x1, x2, x3];
    if let Some(space) = bytes.first_chunk_mut() {
        *space = head;
    }
    if let SocketAddr::V6(v6) = address
        && length == V6_BYTES
        && let Some((_, rest)) = bytes.split_first_chunk_mut::<8>()
        && let Some((ip, scope)) = rest.split_first_chunk_mut::<16>()
    {
        *ip = v6.ip().octets();
        scope.copy_from_slice(&v6.scope_id().to_ne_bytes());
    }
    RawAddress { bytes, length: length as u32 }
}

/// Decodes an address written by the kernel. Returns `None` for another family or too few bytes.
///
/// An IPv4-mapped IPv6 address is returned as IPv4, so that each peer has a single address.
pub(crate) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    let (first_four, rest) = rest.split_first_chunk::<4>()?;
    if *family == FAMILY_V4 {
        return Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from_octets(*first_four), port)));
    }
    if *family != FAMILY_V6 {
        return None;
    }
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let scope = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
    let ip = Ipv6Addr::from_octets(*ip);
    Some(match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
        None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        let raw = encode(text.parse().expect("an address"));
        let written = raw.bytes.get(..raw.length as usize).expect("a length within the bytes");
        decode(written).expect("our own writing").to_string()
    }

    #[test]
    fn families_round_trip() {
        for text in ["127.0.0.1:5060", "255.255.255.255:65535", "[::1]:5060", "[2001:db8::17]:1", "[fe80::1%3]:5060"] {
            assert_eq!(round_trip(text), text);
        }
    }

    #[test]
    fn a_mapped_address_becomes_ipv4() {
        assert_eq!(round_trip("[::ffff:192.0.2.7]:5060"), "192.0.2.7:5060");
        let mut bytes = encode("[2001:db8::1]:7".parse().expect("an address")).bytes;
        bytes
            .get_mut(8..24)
            .expect("28 bytes")
            .copy_from_slice(&"::ffff:192.0.2.7".parse::<Ipv6Addr>().expect("an address").octets());
        assert_eq!(decode(&bytes).expect("an address").to_string(), "192.0.2.7:7");
    }

    #[test]
    fn short_input_or_another_family_is_rejected() {
        let raw = encode("[2001:db8::1]:7".parse().expect("an address"));
        for length in 0..RAW_BYTES {
            assert_eq!(decode(raw.bytes.get(..length).expect("within")), None);
        }
        assert_eq!(decode(&[1; RAW_BYTES]), None);
    }
}
