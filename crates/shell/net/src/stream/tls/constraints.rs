//! Name constraints of authorities on the domains of `sip` URIs (RFC 5280 §4.2.1.10).
//!
//! The TLS library applies constraints on DNS names to DNS names only. A `sip` URI in a certificate names a SIP domain
//! with the same effect, so an authority that is limited to some domains must not be able to name others in this way.

use super::der::{SEQUENCE, element};

/// Returns whether an authority with these constraints, the contents of a NameConstraints, may issue a certificate
/// for the domain. Constraints that cannot be read allow nothing.
pub(super) fn permits(constraints: &[u8], domain: &str) -> bool {
    const PERMITTED: u8 = 0xA0;
    const EXCLUDED: u8 = 0xA1;
    let mut rest = constraints;
    while !rest.is_empty() {
        let Some((tag, subtrees, after)) = element(rest) else { return false };
        let Some(bases) = dns_bases(subtrees) else { return false };
        let is_within = bases.iter().any(|base| is_below(domain, base));
        match tag {
            PERMITTED if !bases.is_empty() && !is_within => return false,
            EXCLUDED if is_within => return false,
            _ => {}
        }
        rest = after;
    }
    true
}

/// Returns the DNS names of a list of subtrees; `None` if it cannot be read.
fn dns_bases(subtrees: &[u8]) -> Option<Vec<&str>> {
    const DNS_NAME: u8 = 0x82;
    let (mut rest, mut bases) = (subtrees, Vec::new());
    while !rest.is_empty() {
        let (tag, subtree, after) = element(rest)?;
        let (kind, base, _) = element(subtree).filter(|_| tag == SEQUENCE)?;
        if kind == DNS_NAME {
            bases.push(str::from_utf8(base).ok()?);
        }
        rest = after;
    }
    Some(bases)
}

/// Returns whether a domain is `base` or below it. The empty base is above all.
fn is_below(domain: &str, base: &str) -> bool {
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let base = base.strip_suffix('.').unwrap_or(base);
    let Some(at) = domain.len().checked_sub(base.len()) else { return false };
    let ends_so = domain.as_bytes().get(at..).is_some_and(|end| end.eq_ignore_ascii_case(base.as_bytes()));
    let is_at_dot = || base.starts_with('.') || domain.as_bytes().get(at.wrapping_sub(1)) == Some(&b'.');
    ends_so && (base.is_empty() || at == 0 || is_at_dot())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a list of subtrees of one kind: permitted (0xA0) or excluded (0xA1).
    fn subtrees(tag: u8, bases: &[(u8, &str)]) -> Vec<u8> {
        let wrap = |tag: u8, contents: &[u8]| [&[tag, u8::try_from(contents.len()).expect("short")], contents].concat();
        let all: Vec<u8> =
            bases.iter().flat_map(|(kind, base)| wrap(SEQUENCE, &wrap(*kind, base.as_bytes()))).collect();
        wrap(tag, &all)
    }

    #[test]
    fn an_authority_names_only_domains_that_it_may() {
        let permitted = subtrees(0xA0, &[(0x82, "example.com"), (0x82, "example.net")]);
        for good in ["example.com", "sip.EXAMPLE.com", "example.net."] {
            assert!(permits(&permitted, good), "{good}");
        }
        for bad in ["example.org", "badexample.com", "com", "", "192.0.2.1"] {
            assert!(!permits(&permitted, bad), "{bad}");
        }
        let excluded = subtrees(0xA1, &[(0x82, "secret.example.com")]);
        let both = [permitted, excluded].concat();
        assert!(permits(&both, "example.com") && !permits(&both, "a.secret.example.com"));
        assert!(!permits(&subtrees(0xA1, &[(0x82, "")]), "example.com"), "all are excluded");
        let below = subtrees(0xA0, &[(0x82, ".example.com")]);
        assert!(permits(&below, "a.example.com") && !permits(&below, "example.com"));
    }

    #[test]
    fn other_constraints_do_not_matter_and_damaged_ones_allow_nothing() {
        assert!(permits(b"", "example.com"));
        assert!(permits(&subtrees(0xA0, &[(0x81, "example.org")]), "example.com"), "this one is about mail");
        for bad in [&b"\xA0"[..], b"\xA0\x02\x30\x05", b"\xA0\x04\x30\x02\x82\x7F", b"\xA0\x02\x82\x00"] {
            assert!(!permits(bad, "example.com"), "{bad:?}");
        }
    }
}
