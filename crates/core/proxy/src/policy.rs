//! The operator's policy for proxying.

use core::time::Duration;
use std::sync::Arc;

use strowger_overload::{Neighbours, Shedding};

/// Largest number of concurrent branches of a request, and of destinations in total.
pub const MAX_BRANCHES: usize = 32;
/// Largest number of requests sent for one request, over all destinations and next hops.
pub const MAX_ATTEMPTS: usize = 64;
/// Largest number of redirections followed for a request.
pub const MAX_REDIRECTIONS: u8 = 5;
//= rfc5393#5.3.3:default
//= rfc5393#5.3.3:most-value
/// Max-Breadth for a request without it (RFC 5393 §5.3.3).
pub const DEFAULT_MAX_BREADTH: u32 = 60;

/// The policy for proxying.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Timer C: how long a branch may ring (RFC 3261 §16.6 step 11).
    pub ring_timeout: Duration,
    /// Ringing time of each step of a serial fork.
    pub fork_timeout: Duration,
    /// How long to wait for a first response before trying the next hop, if there is another.
    pub failover_timeout: Duration,
    /// How long a failed target is tried after the others.
    pub avoid_for: Duration,
    /// Whether the server follows a redirection itself (RFC 3261 §16.7 step 4).
    pub recurse: bool,
    /// Largest request in bytes to send as a datagram if there is a choice (RFC 3261 §18.1.1).
    pub mtu: usize,
    /// Whether to record-route.
    pub record_route: bool,
    /// Whether requests within dialogs, which follow our Record-Route instead of a route, are forwarded statelessly.
    pub stateless: Stateless,
    /// Whether a forwarded REGISTER gets a Path that leads back over its flow (RFC 5626 §5.1).
    pub outbound: bool,
    /// Whether [`record_route`](Self::record_route) applies only to dialogs with an end that only this server can
    /// reach: behind a NAT or on a connection.
    pub only_where_needed: bool,
    /// Whether overload control is negotiated with servers (RFC 7339).
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

/// When a route's requests are forwarded statelessly (RFC 3261 §16.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stateless {
    /// Never.
    #[default]
    Never,
    /// If there is one target and nothing needs a transaction.
    WhenPossible,
    /// Always; of several targets the first is used.
    Always,
}

/// A header's name and value.
pub type AddedHeader = (Box<[u8]>, Box<[u8]>);

/// A body that replaces the request's on its way to one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetBody {
    /// The body.
    pub bytes: Box<[u8]>,
    /// Number of the target among those of the request.
    pub number: u8,
}

/// Changes of a route or for a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Names and values to add.
    pub add: Vec<AddedHeader>,
    /// Names of headers to remove.
    pub remove: Vec<Box<[u8]>>,
    /// The body to send, if it differs from the request's.
    pub body: Option<TargetBody>,
}

/// State of overload control, shared by all shards.
#[derive(Clone, Debug)]
pub struct OverloadControl {
    /// This process's load shedding.
    pub shedding: Arc<Shedding>,
    /// The limits requested by next hops.
    pub neighbours: Arc<Neighbours>,
    /// Whether overload control is offered to next hops and sent to senders.
    pub is_enabled: bool,
}
