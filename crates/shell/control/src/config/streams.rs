//! TCP, TLS, WebSocket and DNS settings.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::values::{DnsServer, Source};

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
    /// Balancers, as addresses or networks: their connections begin with the client's address (PROXY protocol 1 or 2).
    /// No others may send it.
    pub proxy_protocol_from: Vec<Source>,
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
            proxy_protocol_from: Vec::new(),
        }
    }
}

/// `[tls]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Certificates of the server. A client gets the one for the name that it asks for, else the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
    /// Whether clients are asked for a certificate: off, optional (one that is presented must be valid), or required.
    pub client_certificates: ClientCertificates,
    /// PEM file with the authorities that sign the certificates of peers. Default: those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file with lists of revoked certificates. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<PathBuf>,
    /// Maximum number of accepted connections over TLS, WebSockets not included. Default: that of `tcp.connections`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: Option<u32>,
    /// Lowest version of TLS: 1.2 or 1.3.
    pub min_version: TlsVersion,
    /// Cipher suites by their IANA names, the preferred one first. Empty: all that are safe.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ciphers: Vec<String>,
}

/// `tls.certificates`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// PEM file with the certificate, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// PEM file with the private key, which only its owner may read.
    pub key: PathBuf,
}

/// `tls.client_certificates`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Tls::client_certificates` says what they mean")]
pub enum ClientCertificates {
    #[default]
    Off,
    Optional,
    Required,
}

/// `tls.min_version`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Tls::min_version` says what they mean")]
pub enum TlsVersion {
    #[default]
    #[serde(rename = "1.2")]
    V12,
    #[serde(rename = "1.3")]
    V13,
}

/// `[websocket]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocket {
    /// Web pages that may connect, by their origins, such as `https://phone.example.com`. An empty list lets in
    /// programs only, `*` every page. Needed if there is a ws or wss listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origins: Option<Vec<String>>,
    /// Maximum number of WebSockets. Default: that of `tcp.connections`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: Option<u32>,
    /// Time without a message after which a client is pinged, and disconnected if it does not answer in the same time
    /// again. 0s: never, then `tcp.idle` applies.
    pub ping: Span,
}

impl Default for WebSocket {
    fn default() -> Self {
        Self { origins: None, connections: None, ping: Span::from_secs(30) }
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
