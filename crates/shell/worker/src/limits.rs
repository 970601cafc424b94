//! How much connections may cost.

use std::time::Duration;

/// Bytes of one worker's incomplete messages, beyond [`FREE_BYTES`] each; past it a connection that wants more is closed.
/// Whole messages that wait for another worker may take as much again. Buffers have up to twice the room.
pub const KEPT_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of one worker's send queues, beyond [`FREE_BYTES`] each; past it a connection that wants more is closed.
pub const QUEUED_BYTES: usize = 128 * 1024 * 1024;

/// What every connection may keep or queue whatever the others do: few messages are larger.
pub const FREE_BYTES: usize = 4 * 1024;

/// The limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Connections of the whole server. What is accepted past fifteen sixteenths of it is closed at once; past it nothing
    /// more is opened.
    pub connections: usize,
    /// Accepted connections of one source: an IPv4 address or an IPv6 /64.
    pub per_source: usize,
    /// Bytes that may wait to be sent on one connection; past it it is closed.
    pub send_queue: usize,
    /// How long a message may take from its first byte to its last.
    pub message_time: Duration,
    /// How long a connection may bring neither a message nor a keep-alive; zero for any time.
    pub idle: Duration,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// How long what was sent may stay unacknowledged by the peer's system before the connection counts as dead.
    pub user_timeout: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            per_source: 256,
            send_queue: 256 * 1024,
            message_time: Duration::from_secs(30),
            idle: Duration::from_secs(3600),
            connect_timeout: Duration::from_secs(3),
            user_timeout: Duration::from_secs(20),
        }
    }
}
