//! Resource limits of connections.

use std::time::Duration;

/// Maximum bytes of one worker's incomplete messages, beyond [`FREE_BYTES`] per connection. Past it, a connection
/// that needs more is closed. Complete messages that wait for another worker may take the same amount again. Buffers
/// have up to twice the capacity.
pub const KEPT_BYTES: usize = 64 * 1024 * 1024;

/// Maximum bytes in one worker's send queues, beyond [`FREE_BYTES`] per connection. Past it, a connection that needs
/// more is closed.
pub const QUEUED_BYTES: usize = 128 * 1024 * 1024;

/// Bytes that every connection may buffer or queue regardless of others; few messages are larger.
pub const FREE_BYTES: usize = 4 * 1024;

/// Maximum number of handshakes continued per round, one after the other. A step of one may cost a millisecond, and
/// other peers wait as long.
pub(crate) const HANDSHAKES_A_ROUND: usize = 2;

/// Limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum number of connections of the server. Connections accepted beyond fifteen sixteenths of it are closed
    /// at once; at the limit no connections are opened either.
    pub connections: usize,
    /// Maximum number of accepted connections over TLS, WebSockets not included.
    pub tls: usize,
    /// Maximum number of WebSockets, with and without TLS.
    pub web_sockets: usize,
    /// Maximum number of accepted connections per source: an IPv4 address or an IPv6 /64.
    pub per_source: usize,
    /// Maximum number of handshakes, PROXY headers and upgrades in progress of peers that connected to the server; further connections
    /// are closed at once.
    pub handshakes: usize,
    /// The same per source.
    pub handshakes_per_source: usize,
    /// Maximum bytes waiting to be sent on one connection; beyond it, the connection is closed.
    pub send_queue: usize,
    /// Maximum time from the first to the last byte of a message.
    pub message_timeout: Duration,
    /// Maximum time without a message or keep-alive on a connection; zero for no limit.
    pub idle: Duration,
    /// Maximum time to open a connection, including its PROXY header, its handshake and the upgrade to a WebSocket.
    pub connect_timeout: Duration,
    /// Time without a message or keep-alive after which a WebSocket is pinged, and closed if it stays silent as long
    /// again. `idle` does not apply to it then. Zero for no pings.
    pub ping: Duration,
    /// Maximum time that sent bytes may stay unacknowledged by the peer's system before the connection is considered
    /// dead.
    pub user_timeout: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            tls: usize::MAX,
            web_sockets: usize::MAX,
            per_source: 256,
            handshakes: 1024,
            handshakes_per_source: 64,
            send_queue: 256 * 1024,
            message_timeout: Duration::from_secs(30),
            //= rfc3261#18:keep-open
            idle: Duration::from_secs(3600),
            connect_timeout: Duration::from_secs(3),
            ping: Duration::from_secs(30),
            user_timeout: Duration::from_secs(20),
        }
    }
}
