//! Connections and names, as they are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::values::DnsServer;

/// `[tcp]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// Connections of the whole server; what is accepted past it is closed at once.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: u32,
    /// Accepted connections of one source: an IPv4 address, or a /64 network of IPv6.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub per_source: u32,
    /// How long a connection may bring neither a message nor a keep-alive. 0s: any time.
    pub idle: Span,
    /// How long a message may take from its first byte to its last.
    pub message_time: Span,
    /// How long opening a connection may take.
    pub connect_timeout: Span,
    /// How long what was sent may stay unacknowledged before a connection counts as dead.
    pub user_timeout: Span,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            connections: 16_384,
            per_source: 256,
            idle: Span::from_secs(3600),
            message_time: Span::from_secs(30),
            connect_timeout: Span::from_secs(3),
            user_timeout: Span::from_secs(20),
        }
    }
}

/// `[dns]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dns {
    /// The servers that are asked, as 192.0.2.53 or 192.0.2.53:5353. Empty: those of the system (/etc/resolv.conf).
    pub servers: Vec<DnsServer>,
    /// How long an answer is waited for.
    pub timeout: Span,
    /// Whether answers are kept for as long as they say.
    pub cache: bool,
    /// How long an answer may be used beyond its time while the DNS gives none. 0s: not at all.
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
