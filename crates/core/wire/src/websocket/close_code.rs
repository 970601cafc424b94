//! Status codes of closing frames.

use std::fmt;

/// Why an end closes a connection (RFC 6455 §7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server shuts down, or the page was left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A message is not text.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A rule of this end was broken.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message is too long.
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The server is overloaded.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// Returns a code that a frame may contain; `None` for reserved ones (RFC 6455 §7.4.1, §7.4.2).
    #[must_use]
    pub fn new(code: u16) -> Option<Self> {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(code))
    }

    /// Returns the number.
    #[must_use]
    pub fn as_u16(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
