//! What the operator decides about proxying.

use core::net::SocketAddr;
use core::time::Duration;

use strowger_message::Status;

/// The most branches of one request.
pub const MAX_BRANCHES: usize = 32;
/// Max-Breadth of a request that carries none (RFC 5393 §5.3.3).
pub const DEFAULT_MAX_BREADTH: u32 = 60;

/// The operator's decisions.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Timer C: how long a branch may ring (RFC 3261 §16.6 step 11).
    pub ring_timeout: Duration,
    /// Whether dialogs stay on the server's path.
    pub record_route: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { ring_timeout: Duration::from_secs(180), record_route: true }
    }
}

/// When a route's requests are forwarded without keeping state (RFC 3261 §16.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stateless {
    /// Never.
    #[default]
    Never,
    /// Where there is one target and nothing needs a transaction.
    WhenPossible,
    /// Always; of several targets the first is taken.
    Always,
}

/// One place where a route sends requests.
#[derive(Clone, Debug)]
pub struct RouteTarget {
    /// The URI as configured.
    pub uri: Box<[u8]>,
    /// Its address, which is written as a literal.
    pub address: SocketAddr,
}

/// What a route does with a request.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends it on: to the targets, or where there is none, to the user's contacts or the Request-URI's literal address.
    Proxy {
        /// Where to.
        targets: Vec<RouteTarget>,
        /// Whether state is kept.
        stateless: Stateless,
    },
    /// Answers 302 with the targets, or where there is none, with the user's contacts.
    Redirect {
        /// The contacts.
        targets: Vec<RouteTarget>,
    },
    /// Answers so.
    Reject {
        /// The status.
        status: Status,
    },
}

/// One rule; the first whose match fits a request is used.
#[derive(Clone, Debug)]
pub struct Route {
    /// The Request-URI's domain in lower case: a name, `*.name`, or `*` for any.
    pub domain: Box<[u8]>,
    /// The methods, in capitals; any when empty.
    pub methods: Vec<Box<[u8]>>,
    /// What is done.
    pub action: Action,
}

impl Route {
    /// Whether the route takes a request of `method` (in capitals) for `domain` (in lower case).
    #[must_use]
    pub fn matches(&self, domain: &[u8], method: &[u8]) -> bool {
        let fits = match self.domain.as_ref() {
            b"*" => true,
            [b'*', suffix @ ..] => domain.ends_with(suffix),
            name => name == domain,
        };
        fits && (self.methods.is_empty() || self.methods.iter().any(|m| **m == *method))
    }
}
