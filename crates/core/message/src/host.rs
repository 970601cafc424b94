//! Hosts and ports (RFC 3261 §25.1, IPv6 as RFC 5954 amends it).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::text::{self, NAME};

/// A domain name or an IP address literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host<'a> {
    /// A domain name as written; names compare without case.
    Name(&'a [u8]),
    /// An IP address literal.
    Ip(IpAddr),
}

impl<'a> Host<'a> {
    /// Parses a name, an IPv4 address, or an IPv6 address in brackets.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        parse_ip(text).map(Self::Ip).or_else(|| is_name(text).then_some(Self::Name(text)))
    }

    /// Returns the address if this is one.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }

    /// Compares as URIs do: names without case and without a final dot, addresses by value.
    #[must_use]
    pub fn same(&self, other: &Host<'_>) -> bool {
        match (self, other) {
            (Self::Ip(a), Host::Ip(b)) => a == b,
            (Self::Name(a), Host::Name(b)) => a == b || undotted(a).eq_ignore_ascii_case(undotted(b)),
            _ => false,
        }
    }
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&text::lossy(name)),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

/// Parses an IPv4 address, or an IPv6 address in brackets.
fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    match text {
        [b'[', inner @ .., b']'] => parse_v6(inner).map(IpAddr::V6),
        [.., b'0'..=b'9'] => parse_v4(text).map(IpAddr::V4),
        _ => None,
    }
}

fn is_name(text: &[u8]) -> bool {
    let begins = text.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    begins && text::all(text, NAME)
}

fn undotted(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

/// Parses four decimal numbers below 256 without leading zeros, like the standard library.
fn parse_v4(text: &[u8]) -> Option<Ipv4Addr> {
    split_v4(text).filter(|(_, rest)| rest.is_empty()).map(|(ip, _)| ip)
}

/// Returns the address at the start of `text` and what follows it.
#[inline(always)]
fn split_v4(text: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let (a, [b'.', rest @ ..]) = split_octet(text)? else { return None };
    let (b, [b'.', rest @ ..]) = split_octet(rest)? else { return None };
    let (c, [b'.', rest @ ..]) = split_octet(rest)? else { return None };
    let (d, rest) = split_octet(rest)?;
    (!matches!(rest, [b'0'..=b'9', ..])).then(|| (Ipv4Addr::new(a, b, c, d), rest))
}

/// Parses a number below 256 of up to three digits. Another digit may follow, which the caller must reject.
#[inline(always)]
fn split_octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let [first @ b'0'..=b'9', rest @ ..] = text else { return None };
    let (mut octet, mut rest) = (u32::from(first & 15), rest);
    if let [digit @ b'0'..=b'9', tail @ ..] = rest {
        // No leading zeros.
        if octet == 0 {
            return None;
        }
        (octet, rest) = (octet.wrapping_mul(10).wrapping_add(u32::from(digit & 15)), tail);
        if let [digit @ b'0'..=b'9', tail @ ..] = rest {
            (octet, rest) = (octet.wrapping_mul(10).wrapping_add(u32::from(digit & 15)), tail);
        }
    }
    u8::try_from(octet).ok().map(|octet| (octet, rest))
}

fn parse_v6(text: &[u8]) -> Option<Ipv6Addr> {
    let text = core::str::from_utf8(text).ok()?;
    text.parse().ok().or_else(|| {
        //= rfc5118#4.10
        // The grammar of RFC 3261 allowed a third colon before an embedded IPv4 address; both forms must be accepted.
        let (left, right) = text.split_once(":::")?;
        right.parse::<Ipv4Addr>().ok()?;
        format!("{left}::{right}").parse().ok()
    })
}

/// A host and an optional port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort<'a> {
    /// The host as written, brackets included.
    pub host: &'a [u8],
    /// The port, if given.
    pub port: Option<u16>,
    /// The address, if the host is an address literal.
    pub ip: Option<IpAddr>,
}

impl<'a> HostPort<'a> {
    /// Parses `host [ ":" port ]`; it must be all of `text`.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let host_end = match text {
            [b'[', ..] => text.iter().position(|byte| *byte == b']')?.checked_add(1)?,
            _ => memchr::memchr(b':', text).unwrap_or(text.len()),
        };
        let (host, rest) = text.split_at_checked(host_end)?;
        let host = text::trim(host);
        let ip = Host::parse(host)?.ip();
        let port = match text::trim(rest) {
            [] => None,
            [b':', digits @ ..] => Some(parse_port(text::trim(digits))?),
            _ => return None,
        };
        Some(Self { host, port, ip })
    }

    /// Fast path of [`parse`](Self::parse) for a name or an IPv4 address, an optional port and no whitespace. Also
    /// returns what follows. `None` means only that the full parser must read the text.
    #[inline(always)]
    pub(crate) fn read_fast(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let v4 = match text {
            [b'0'..=b'9', ..] => {
                split_v4(text).filter(|(_, rest)| !rest.first().is_some_and(|byte| text::is(*byte, NAME)))
            }
            [b'A'..=b'Z' | b'a'..=b'z' | b'_', ..] => None,
            _ => return None,
        };
        let (ip, rest) = match v4 {
            Some((ip, rest)) => (Some(IpAddr::V4(ip)), rest),
            None => (None, text::split_while(text, NAME).1),
        };
        let host = text.get(..text.len().wrapping_sub(rest.len()))?;
        let [b':', rest @ ..] = rest else { return Some((Self { host, port: None, ip }, rest)) };
        let (port, behind) = text::split_number(rest)?;
        let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
        Some((Self { host, port: Some(port), ip }, behind))
    }

    /// Returns the host as a value.
    #[must_use]
    pub fn host(&self) -> Host<'a> {
        // A valid host that is no address is a name.
        self.ip.map_or(Host::Name(self.host), Host::Ip)
    }
}

/// Parses a port from 1 to 65535.
pub(crate) fn parse_port(text: &[u8]) -> Option<u16> {
    let port = text::parse_decimal(text).and_then(|port| u16::try_from(port).ok())?;
    (port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_names_and_ports() {
        let parsed = HostPort::parse(b"[2001:db8::10]:5070").expect("valid");
        assert_eq!((parsed.host, parsed.port), (&b"[2001:db8::10]"[..], Some(5070)));
        assert_eq!(parsed.host().ip(), "2001:db8::10".parse().ok());
        // RFC 5118 §4.5: a port inside the brackets makes a different address, not an error.
        assert_eq!(HostPort::parse(b"[2001:db8::10:5070]").expect("valid").port, None);
        let bug = HostPort::parse(b"[2001:db8:::192.0.2.1]").expect("tolerated (RFC 5118 \u{a7}4.10)");
        assert_eq!(bug.host().ip(), "2001:db8::192.0.2.1".parse().ok());
        assert_eq!(HostPort::parse(b"example.com").expect("valid").host(), Host::Name(b"example.com"));
        for bad in [
            &b""[..],
            b"2001:db8::10",
            b"[2001:db8::10",
            b"[]",
            b".",
            b"-a",
            b"a:0",
            b"a:65536",
            b"a:",
            b"a b",
            b"a:1:2",
        ] {
            assert!(HostPort::parse(bad).is_none(), "{}", text::lossy(bad));
        }
    }

    #[test]
    fn names_compare_in_any_case_and_addresses_by_value() {
        assert!(Host::Name(b"Example.COM.").same(&Host::Name(b"example.com")));
        let (a, b) = (Host::parse(b"[2001:db8:0::1]"), Host::parse(b"[2001:DB8::1]"));
        assert!(a.zip(b).is_some_and(|(a, b)| a.same(&b)));
    }

    proptest! {
        #[test]
        fn the_fast_path_agrees_with_the_parser(text in "[a-z0-9._-]{0,8}(:[0-9]{0,7})?[ ;,:a-z]{0,2}") {
            if let Some((short, rest)) = HostPort::read_fast(text.as_bytes()) {
                prop_assert_eq!(HostPort::parse(&text.as_bytes()[..text.len() - rest.len()]), Some(short));
            }
        }

        #[test]
        fn ipv4_parses_like_the_standard_library(text in "[0-9]{0,4}(\\.{0,2}[0-9]{0,4}){0,5}|([012]?[0-9]{1,2}\\.){3}[0-9]{1,3}[a ]?") {
            prop_assert_eq!(parse_v4(text.as_bytes()), text.parse().ok());
        }
    }
}
