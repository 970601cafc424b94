//! `[proxy]`: forwarding.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Span, Stateless};

/// `[proxy]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Proxy {
    /// Maximum ringing time before the caller gets 408 (Timer C).
    pub ring_timeout: Span,
    /// Maximum ringing time before the next phone is tried, in serial forking.
    pub fork_timeout: Span,
    /// Time to wait for a silent target before trying the next one, or the next address of its name.
    pub failover_timeout: Span,
    /// Time for which a failed target is tried after the others. 0s: none.
    pub avoid_for: Span,
    /// Whether the server follows redirections (3xx) instead of passing them to the caller.
    pub recurse: bool,
    /// Maximum size in bytes of a request sent over UDP if TCP is possible.
    #[schemars(range(min = 500, max = 65000))]
    pub mtu: u16,
    /// Whether the server stays in the path of a call after it is answered.
    pub record_route: bool,
    /// Whether requests inside a record-routed call may be forwarded statelessly: never, when-possible or always.
    pub stateless: Stateless,
    /// Whether requests to a phone whose REGISTER was forwarded return over the phone's own flow (edge proxy of RFC
    /// 5626: Path with a flow token).
    pub outbound: bool,
    /// Status for requests that are for none of the server's users and match no route: 403, 404 or 603.
    pub unrouted_status: u16,
}

impl Default for Proxy {
    fn default() -> Self {
        Self {
            ring_timeout: Span::from_secs(180),
            fork_timeout: Span::from_secs(20),
            failover_timeout: Span::from_secs(4),
            avoid_for: Span::from_secs(30),
            recurse: false,
            mtu: 1300,
            record_route: true,
            stateless: Stateless::Never,
            outbound: false,
            unrouted_status: 404,
        }
    }
}
