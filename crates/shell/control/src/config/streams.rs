//! TCP and DNS settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::values::DnsServer;

/// `[tcp]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// Maximum number of connections of the server; further ones are closed when accepted.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: u32,
    /// Maximum number of accepted connections from one IPv4 address or one IPv6 /64 network.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub per_source: u32,
    /// Time without a message or keep-alive after which a connection is closed. 0s: never.
    pub idle: Span,
    /// Maximum time from the first to the last byte of a message.
    pub message_timeout: Span,
    /// Timeout for opening a connection.
    pub connect_timeout: Span,
    /// Time for which sent data may stay unacknowledged before the connection counts as dead.
    pub user_timeout: Span,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            connections: 16_384,
            per_source: 256,
            idle: Span::from_secs(3600),
            message_timeout: Span::from_secs(30),
            connect_timeout: Span::from_secs(3),
            user_timeout: Span::from_secs(20),
        }
    }
}

/// `[dns]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dns {
    /// Name servers, such as 192.0.2.53 or 192.0.2.53:5353. Empty: those of the system (/etc/resolv.conf).
    pub servers: Vec<DnsServer>,
    /// Timeout for an answer.
    pub timeout: Span,
    /// Whether answers are cached for their TTL.
    pub cache: bool,
    /// Time for which an expired answer may be used while DNS does not answer. 0s: none.
    pub serve_stale: Span,
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            timeout: Span::from_millis(1500),
            cache: true,
            serve_stale: Span::from_secs(86_400),
        }
    }
}
