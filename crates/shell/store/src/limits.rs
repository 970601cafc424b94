//! Limits of addresses and gateways.

/// Maximum number of gateways in all sets.
pub const MAX_GATEWAYS: usize = 4096;

/// Maximum number of members of a set.
pub const MAX_SET_GATEWAYS: usize = 64;

/// Maximum length of a set's name, in bytes.
pub const MAX_SET_NAME_LEN: usize = 64;

/// Maximum length of an address, in bytes.
pub const MAX_ADDRESS_LEN: usize = 255;
