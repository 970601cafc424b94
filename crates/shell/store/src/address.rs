//! Canonicalization of typed addresses of record.

use std::fmt;
use std::net::Ipv6Addr;

use crate::StoreError;
use crate::address_error::AddressError;
use crate::limits::MAX_ADDRESS_LEN;

/// A canonical address of record: `user@domain`, with the user part unescaped and the domain in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    text: String,
    at: usize,
}

impl Address {
    /// Parses `user@domain` literally, and `sip:user@domain` or `sips:user@domain` as a URI, whose escapes are
    /// decoded.
    ///
    /// The canonical form is itself a `user@domain` that parses to the same address.
    ///
    /// # Errors
    /// [`StoreError::BadAddress`] if `typed` is neither.
    pub fn parse(typed: &str) -> Result<Self, StoreError> {
        canonical(typed.trim()).map_err(|fault| StoreError::BadAddress { typed: typed.to_owned(), fault })
    }

    /// Returns the whole address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the part before the last `@`: the digest user name.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.text[..self.at]
    }

    /// Returns the part after the last `@`.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.text[self.at + 1..]
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn canonical(typed: &str) -> Result<Address, AddressError> {
    let (uri, rest) = without_scheme(typed);
    let (user, domain) = rest.rsplit_once('@').ok_or(AddressError::NoDomain)?;
    let user = if uri { unescape(user)? } else { user.to_owned() };
    if user.is_empty() {
        return Err(AddressError::NoUser);
    }
    if user.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, ':' | '<' | '>')) {
        return Err(AddressError::User);
    }
    let at = user.len();
    let text = format!("{user}@{}", canonical_domain(domain)?);
    if text.len() > MAX_ADDRESS_LEN {
        return Err(AddressError::Long);
    }
    Ok(Address { text, at })
}

/// Returns whether there was a scheme, and the rest.
fn without_scheme(typed: &str) -> (bool, &str) {
    match typed.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("sip") || scheme.eq_ignore_ascii_case("sips") => {
            (true, rest)
        }
        _ => (false, typed),
    }
}

fn unescape(user: &str) -> Result<String, AddressError> {
    if user.contains('@') {
        return Err(AddressError::At);
    }
    let mut pieces = user.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).ok_or(AddressError::Escape)?;
        let byte = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| AddressError::Escape)?;
        bytes.extend(byte);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Escape)
}

fn canonical_domain(domain: &str) -> Result<String, AddressError> {
    if let Some(address) = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = address.parse().map_err(|_| AddressError::Domain)?;
        return Ok(format!("[{address}]"));
    }
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if domain.split('.').all(is_label) { Ok(domain.to_ascii_lowercase()) } else { Err(AddressError::Domain) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(typed: &str) -> Result<String, AddressError> {
        canonical(typed.trim()).map(|address| address.to_string())
    }

    #[test]
    fn typed_addresses() {
        for (typed, expected) in [
            ("alice@example.com", "alice@example.com"),
            ("  Alice@EXAMPLE.Com\n", "Alice@example.com"),
            ("sip:alice@example.com", "alice@example.com"),
            ("SIPS:alice@example.com", "alice@example.com"),
            ("+43-1-234@192.0.2.1", "+43-1-234@192.0.2.1"),
            ("bob@[2001:DB8:0::1]", "bob@[2001:db8::1]"),
            ("sip:j%C3%bcrgen%23@example.com", "jürgen#@example.com"),
            ("sip:bob%40corp.com@provider.com", "bob@corp.com@provider.com"),
            ("bob@corp.com@provider.com", "bob@corp.com@provider.com"),
            ("100%sure@example.com", "100%sure@example.com"),
            ("1;phone-context=x@my_box", "1;phone-context=x@my_box"),
        ] {
            assert_eq!(parsed(typed).as_deref(), Ok(expected), "{typed}");
        }
    }

    #[test]
    fn bad_addresses() {
        let long = format!("{}@example.com", "a".repeat(MAX_ADDRESS_LEN - 11));
        for (typed, fault) in [
            ("", AddressError::NoDomain),
            ("alice", AddressError::NoDomain),
            ("tel:+4312345", AddressError::NoDomain),
            ("@example.com", AddressError::NoUser),
            ("sip:@example.com", AddressError::NoUser),
            ("sip:alice:secret@example.com", AddressError::User),
            ("al ice@example.com", AddressError::User),
            ("sip:al%20ice@example.com", AddressError::User),
            ("sip:al%3aice@example.com", AddressError::User),
            ("sip:al%00ice@example.com", AddressError::User),
            ("<sip:alice@example.com>", AddressError::User),
            ("sip:a@b@example.com", AddressError::At),
            ("sip:al%2@example.com", AddressError::Escape),
            ("sip:al%zz@example.com", AddressError::Escape),
            ("sip:al%2é@example.com", AddressError::Escape),
            ("sip:al%ff@example.com", AddressError::Escape),
            ("alice@", AddressError::Domain),
            ("alice@example..com", AddressError::Domain),
            ("alice@example.com:5060", AddressError::Domain),
            ("sip:alice@example.com;transport=tcp", AddressError::Domain),
            ("alice@bücher.example", AddressError::Domain),
            ("alice@[2001:db8::1", AddressError::Domain),
            ("alice@[fe80::1%eth0]", AddressError::Domain),
            (&long, AddressError::Long),
        ] {
            assert_eq!(parsed(typed), Err(fault), "{typed}");
        }
    }

    #[test]
    fn the_error_shows_the_input_escaped() {
        let error = Address::parse("al\u{1b}[31mice").expect_err("no domain");
        assert_eq!(
            error.to_string(),
            r#""al\u{1b}[31mice" is not a valid address: it has no "@" before a domain; write user@domain, such as alice@example.com"#
        );
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_stable(typed in "(sip:)?[ -~é]{0,6}(%[0-9a-f]{2})?@[A-Za-z0-9.:\\[\\]-]{0,8}") {
            if let Ok(address) = Address::parse(&typed) {
                prop_assert_eq!(Address::parse(address.as_str()).expect("canonical"), address.clone());
                prop_assert_eq!(format!("{}@{}", address.user(), address.domain()), address.as_str());
            }
        }
    }
}
