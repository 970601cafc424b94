//! Prefixes of targets that are no addresses.

/// Prefix of a host name whose addresses are all targets.
pub(super) const HOST: &str = "dns:";

/// Prefix of a set's name.
pub(super) const SET: &str = "set:";

/// Prefix of a dispatcher list file.
pub(super) const LIST: &str = "list:";

/// Prefix of a name with SRV records.
pub(super) const SERVICE: &str = "srv:";
