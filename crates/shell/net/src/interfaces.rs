//! Addresses of the local machine.

use std::io;
use std::net::IpAddr;

use crate::{address, sys};

/// Returns the addresses of all interfaces that are up, including loopback, each once and in the system's order.
///
/// IPv6 link-local addresses are omitted, since they are meaningless without a scope. A wildcard listen address is
/// expanded with this list into one listener per address, so that every response leaves from the address the request
/// was sent to.
///
/// # Errors
/// When the system cannot list them (out of memory or file descriptors).
pub fn local_addresses() -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    sys::for_each_interface_address(|flags, bytes| {
        let Some(ip) = address::decode(bytes).map(|address| address.ip()) else { return };
        if is_listenable(flags, ip) && !found.contains(&ip) {
            found.push(ip);
        }
    })?;
    Ok(found)
}

fn is_listenable(flags: u32, ip: IpAddr) -> bool {
    let is_up = flags & libc::IFF_UP.cast_unsigned() != 0;
    let is_link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    is_up && !is_link_local
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_is_found_once_and_link_local_never() {
        let found = local_addresses().expect("the system lists its interfaces");
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(found.iter().filter(|ip| **ip == loopback).count(), 1);
        assert!(found.iter().all(|ip| is_listenable(libc::IFF_UP.cast_unsigned(), *ip)));
    }

    #[test]
    fn down_and_link_local_are_skipped() {
        let up = libc::IFF_UP.cast_unsigned();
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(is_listenable(up, ip("192.0.2.1")));
        assert!(is_listenable(up, ip("2001:db8::1")));
        assert!(!is_listenable(0, ip("192.0.2.1")));
        assert!(!is_listenable(up, ip("fe80::1")));
    }
}
