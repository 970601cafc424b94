//! What counts as one source of messages.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Marker that distinguishes an IPv4 address from any IPv6 prefix in [`source_bits`].
pub const SOURCE_V4: u64 = 1 << 40;

/// Returns a number for a source: an IPv4 address, or the first 64 bits of an IPv6 address, which belong to one
/// subscriber. IPv4-mapped addresses are IPv4.
#[must_use]
pub fn source_bits(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(u32::from(ip)) | SOURCE_V4,
        IpAddr::V6(ip) => u64::try_from(u128::from(ip) >> 64).unwrap_or(0),
    }
}

/// Returns the address of a source with [these bits](source_bits), and its prefix length. The address of a prefix is
/// the first one in it.
#[must_use]
pub fn source_network(bits: u64) -> (IpAddr, u8) {
    match u32::try_from(bits ^ SOURCE_V4) {
        Ok(address) => (Ipv4Addr::from(address).into(), 32),
        Err(_) => (Ipv6Addr::from(u128::from(bits) << 64).into(), 64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_prefix_is_one_source() {
        let bits = |ip: &str| source_bits(ip.parse().expect("an address"));
        assert_eq!(bits("2001:db8:1:2::1"), bits("2001:db8:1:2:3:4:5:6"));
        assert_ne!(bits("2001:db8:1:2::1"), bits("2001:db8:1:3::1"));
        assert_eq!(bits("192.0.2.1"), bits("::ffff:192.0.2.1"));
        assert_ne!(bits("0.0.0.1"), bits("::1"));
    }

    #[test]
    fn the_network_of_a_source_is_its_address_or_prefix() {
        let network = |ip: &str| {
            let (address, prefix) = source_network(source_bits(ip.parse().expect("an address")));
            format!("{address}/{prefix}")
        };
        assert_eq!(network("192.0.2.1"), "192.0.2.1/32");
        assert_eq!(network("0.0.0.0"), "0.0.0.0/32");
        assert_eq!(network("255.255.255.255"), "255.255.255.255/32");
        assert_eq!(network("2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
        assert_eq!(network("::1"), "::/64");
    }
}
