//! `[registrar]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::values::LooseRoute;

/// `[registrar]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Registrar {
    /// Registration lifetimes.
    pub expires: Expires,
    /// Maximum number of contacts per address; a REGISTER that exceeds it is answered 403.
    #[schemars(range(min = 1, max = 32))]
    pub max_contacts: u16,
    /// Destination of requests to a registered contact: auto (the source of its REGISTER if that shows a NAT), always
    /// (the source) or never (the contact's own address).
    pub nat: Nat,
    /// Contacts that lead to this machine (a loopback address, or one that the server listens on), registered from
    /// elsewhere: refuse (with 403) or accept. Redirections, host names and requests within a call from elsewhere are
    /// treated alike.
    pub local_contacts: LocalContacts,
    /// Keep-alive for contacts behind NAT: crlf (an empty line), options (a request) or off.
    pub keepalive: KeepAlive,
    /// Interval between keep-alives.
    pub keepalive_interval: Span,
    /// Whether devices that ask for it get a GRUU (RFC 5627).
    pub gruu: bool,
    /// Maximum time between keep-alives that a phone sends over its registered connection (RFC 5626).
    pub flow_timer: Span,
    /// Service-Route for registered phones (RFC 3608): SIP URIs with lr, in order.
    pub service_route: Vec<LooseRoute>,
}

impl Default for Registrar {
    fn default() -> Self {
        Self {
            expires: Expires::default(),
            max_contacts: 10,
            nat: Nat::Auto,
            local_contacts: LocalContacts::Refuse,
            keepalive: KeepAlive::Crlf,
            keepalive_interval: Span::from_secs(30),
            gruu: true,
            flow_timer: Span::from_secs(120),
            service_route: Vec::new(),
        }
    }
}

/// `registrar.expires`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Expires {
    /// Lifetime if the phone asks for none.
    pub default: Span,
    /// Minimum lifetime; a shorter request is answered 423.
    pub min: Span,
    /// Maximum lifetime; a longer request is shortened.
    pub max: Span,
}

impl Default for Expires {
    fn default() -> Self {
        Self { default: Span::from_secs(3600), min: Span::from_secs(60), max: Span::from_secs(7200) }
    }
}

/// `registrar.nat`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Registrar::nat` says what they mean")]
pub enum Nat {
    Auto,
    Always,
    Never,
}

/// `registrar.local_contacts`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Registrar::local_contacts` says what they mean")]
pub enum LocalContacts {
    Refuse,
    Accept,
}

/// `registrar.keepalive`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Registrar::keepalive` says what they mean")]
pub enum KeepAlive {
    Crlf,
    Options,
    Off,
}
