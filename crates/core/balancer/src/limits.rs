//! Limits of a set and of a request.

/// Maximum number of members of one set.
pub const MAX_MEMBERS: usize = 256;

/// Maximum number of members that one request tries.
pub const MAX_TRIES: usize = 4;
