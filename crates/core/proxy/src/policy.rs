//! What the operator decides about proxying.

use core::time::Duration;

/// The most branches of one request at one time, and the most destinations in all.
pub const MAX_BRANCHES: usize = 32;
/// The most requests that one request becomes, over all its destinations and their places.
pub const MAX_ATTEMPTS: usize = 64;
/// How often the contacts of a redirection are followed for one request.
pub const MAX_REDIRECTIONS: u8 = 5;
/// Max-Breadth of a request that carries none (RFC 5393 §5.3.3).
pub const DEFAULT_MAX_BREADTH: u32 = 60;

/// The operator's decisions.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Timer C: how long a branch may ring (RFC 3261 §16.6 step 11).
    pub ring_timeout: Duration,
    /// How long one step of a serial fork may ring before the next begins.
    pub fork_timeout: Duration,
    /// How long a target may be silent before the next place is tried, where there is one.
    pub failover_timeout: Duration,
    /// How long a target that failed is tried after the others.
    pub avoid_for: Duration,
    /// Whether the server follows a redirection itself (RFC 3261 §16.7 step 4).
    pub recurse: bool,
    /// The most bytes of a request that leaves as a datagram where it may choose (RFC 3261 §18.1.1).
    pub mtu: usize,
    /// Whether dialogs stay on the server's path.
    pub record_route: bool,
    /// Whether requests inside dialogs, which follow our Record-Route and no route, are forwarded without keeping state.
    pub stateless: Stateless,
    /// Whether a REGISTER that is forwarded gets a Path that leads back over its own flow (RFC 5626 §5.1).
    pub outbound: bool,
    /// Whether [`record_route`](Self::record_route) holds only for dialogs of whom nobody but this server reaches: who is behind a
    /// translation, or on a connection.
    pub only_where_needed: bool,
    /// Whether servers are told, and asked, how much is to be sent (RFC 7339).
    pub overload_control: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ring_timeout: Duration::from_secs(180),
            fork_timeout: Duration::from_secs(20),
            failover_timeout: Duration::from_secs(4),
            avoid_for: Duration::from_secs(30),
            recurse: false,
            mtu: 1300,
            record_route: true,
            stateless: Stateless::Never,
            outbound: false,
            only_where_needed: false,
            overload_control: true,
        }
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

/// A header's name and value.
pub type AddedHeader = (Box<[u8]>, Box<[u8]>);

/// Headers that a route changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Names and values that are added.
    pub add: Vec<AddedHeader>,
    /// Names of the headers that go.
    pub remove: Vec<Box<[u8]>>,
}
