//! Errors in addresses.

use crate::limits::MAX_ADDRESS_LEN;

/// Why a text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// No `@`.
    #[error("it has no \"@\" before a domain")]
    NoDomain,
    /// Nothing before the `@`.
    #[error("it has no user before the \"@\"")]
    NoUser,
    /// An invalid character before the `@`. A colon would end the digest user name.
    #[error("a user has no spaces, colons, angle brackets or control characters")]
    User,
    /// A second `@` in a URI.
    #[error("a second \"@\" in a URI is written %40")]
    At,
    /// An invalid escape, or one that encodes bytes that are not UTF-8.
    #[error("its escapes (%..) are not two hexadecimal digits each, of UTF-8 text")]
    Escape,
    /// An invalid domain.
    #[error(
        "its domain is not a host name, IPv4 address or [IPv6 address]; an address has no port or parameters, \
         and an international name is written in its xn-- form"
    )]
    Domain,
    /// More than [`MAX_ADDRESS_LEN`] bytes.
    #[error("it is longer than {MAX_ADDRESS_LEN} bytes")]
    Long,
}
