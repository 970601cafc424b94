//! The domains that a certificate speaks for (RFC 5922 §7.1, §7.2).

use std::net::IpAddr;

/// Names in the subjectAltName of a certificate.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubjectNames<'a> {
    /// Values of type URI.
    pub uris: &'a [&'a str],
    /// Values of type DNS.
    pub dns: &'a [&'a str],
}

/// Returns the SIP domain identities of a certificate: the hosts of its `sip` URIs without a user, or if there are
/// none, its DNS names. The common name is never one.
//= rfc5922#7.1
pub fn identities<'a>(names: &SubjectNames<'a>) -> Vec<&'a str> {
    let of_uris: Vec<&str> = names.uris.iter().filter_map(|uri| domain_of(uri)).collect();
    if of_uris.is_empty() { names.dns.to_vec() } else { of_uris }
}

/// Returns the domain that a `sip` URI without a user names; no other URI names one.
pub(super) fn domain_of(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("sip") || rest.contains('@') {
        return None;
    }
    let host = rest.split([';', '?', ':']).next()?;
    (!host.is_empty()).then_some(host)
}

/// Returns whether two identities are equal: as a whole, in any case, without wildcards.
//= rfc5922#7.2
#[must_use]
pub fn is_same_domain(one: &str, other: &str) -> bool {
    let trim = |name: &'_ str| name.strip_suffix('.').map_or(name.len(), str::len);
    let (one, other) = (one.get(..trim(one)), other.get(..trim(other)));
    one.zip(other).is_some_and(|(one, other)| {
        !one.is_empty() && !one.contains('*') && !one.starts_with('.') && one.eq_ignore_ascii_case(other)
    })
}

/// Returns whether a certificate speaks for `host`.
#[must_use]
pub fn speaks_for(names: &SubjectNames<'_>, host: &str) -> bool {
    identities(names).into_iter().any(|identity| is_same_domain(identity, host))
}

/// Returns the literal address that `host` is, with or without the brackets of IPv6.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'a>(uris: &'a [&'a str], dns: &'a [&'a str]) -> SubjectNames<'a> {
        SubjectNames { uris, dns }
    }

    //= rfc5922#7.1
    #[test]
    fn sip_uris_without_a_user_come_before_dns_names() {
        let dns = ["host.example.com", "example.net"];
        assert_eq!(identities(&names(&[], &dns)), dns);
        assert_eq!(identities(&names(&["sip:example.com"], &dns)), ["example.com"], "a DNS name counts no more");
        assert_eq!(identities(&names(&["SIP:example.com:5061;transport=tls"], &dns)), ["example.com"]);
        for other in ["sips:example.com", "https://example.com", "sip:alice@example.com", "sip:", "example.com"] {
            assert_eq!(identities(&names(&[other], &dns)), dns, "{other}");
        }
        assert!(identities(&names(&["sips:example.com"], &[])).is_empty());
    }

    //= rfc5922#7.2
    #[test]
    fn identities_match_as_a_whole_and_without_wildcards() {
        let all = names(&[], &["Example.COM", "*.example.org", ".example.net"]);
        assert!(speaks_for(&all, "example.com") && speaks_for(&all, "EXAMPLE.com."));
        for other in
            ["sip.example.com", "ample.com", "sip.example.org", "*.example.org", "a.example.net", ".example.net", ""]
        {
            assert!(!speaks_for(&all, other), "{other}");
        }
    }
}
