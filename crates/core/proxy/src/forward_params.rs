//! What a request is forwarded with: for the branches of now, and kept for those of later.

use core::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::Flow;
use strowger_message::Message;

use crate::forward::Edits;
use crate::policy::Policy;
use crate::routing::RouteSet;

/// What all branches of a request share.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    /// The edits.
    pub edits: Edits<'a>,
    /// The flow by which the caller of a dialog that begins is reached, where its Contact does not say enough.
    pub caller: Option<Flow>,
    /// Whether who registers said that it supports outbound (RFC 5626), for the Path that it is given.
    pub outbound: bool,
    /// The loop hash of the request as it came in.
    pub loop_hash: u64,
    /// Max-Breadth to be shared out, or written where there was none (RFC 5393 §5.3.3).
    pub max_breadth: u32,
    /// The times.
    pub policy: ForwardingPolicy,
    /// The call's name to who follows it; 0 where nobody does.
    pub call: u64,
    /// Other members share our keys, and may be sent what follows.
    pub has_shared_keys: bool,
}

/// The operator's limits that hold for one request.
#[derive(Clone, Copy, Debug)]
pub struct ForwardingPolicy {
    /// Timer C.
    pub ring_timeout: Duration,
    /// See [`Policy::fork_timeout`].
    pub fork_timeout: Duration,
    /// See [`Policy::failover_timeout`].
    pub failover_timeout: Duration,
    /// See [`Policy::avoid_for`].
    pub avoid_for: Duration,
    /// See [`Policy::recurse`].
    pub recurse: bool,
    /// See [`Policy::mtu`].
    pub mtu: usize,
    /// See [`Policy::outbound`].
    pub path: bool,
    /// See [`Policy::only_where_needed`].
    pub only_where_needed: bool,
}

impl ForwardingPolicy {
    /// The operator's, with the ring time-out of a route and the failover time-out of a balanced set where they have one.
    #[must_use]
    pub fn of(policy: &Policy, ring_timeout: Option<Duration>, failover_timeout: Option<Duration>) -> Self {
        let Policy { fork_timeout, avoid_for, recurse, mtu, outbound, only_where_needed, .. } = *policy;
        let ring_timeout = ring_timeout.unwrap_or(policy.ring_timeout);
        let failover_timeout = failover_timeout.unwrap_or(policy.failover_timeout);
        Self {
            ring_timeout,
            fork_timeout,
            failover_timeout,
            avoid_for,
            recurse,
            mtu,
            path: outbound,
            only_where_needed,
        }
    }
}

/// A [`Forwarding`] that outlives the bytes of its request.
#[derive(Clone, Debug)]
pub(crate) struct OwnedForwarding {
    source: Flow,
    own_routes: usize,
    from_last: bool,
    strict: bool,
    record_route: bool,
    strip_identity: bool,
    strip_credentials: Option<SmallVec<[u8; 32]>>,
    caller: Option<Flow>,
    outbound: bool,
    loop_hash: u64,
    pub(crate) max_breadth: u32,
    pub(crate) policy: ForwardingPolicy,
    call: u64,
    has_shared_keys: bool,
}

impl OwnedForwarding {
    pub(crate) fn of(forwarding: &Forwarding<'_>) -> Self {
        let edits = &forwarding.edits;
        Self {
            source: edits.source,
            own_routes: edits.routes.own_routes,
            from_last: edits.routes.is_uri_from_last_route,
            strict: edits.strict,
            record_route: edits.record_route,
            strip_identity: edits.strip_identity,
            strip_credentials: edits.strip_credentials.map(SmallVec::from_slice),
            caller: forwarding.caller,
            outbound: forwarding.outbound,
            loop_hash: forwarding.loop_hash,
            max_breadth: forwarding.max_breadth,
            policy: forwarding.policy,
            call: forwarding.call,
            has_shared_keys: forwarding.has_shared_keys,
        }
    }

    /// The Routes of `message`, which is the same request.
    pub(crate) fn routes<'a>(&self, message: &Message<'a>) -> RouteSet<'a> {
        RouteSet::reread(message, self.own_routes, self.from_last)
    }

    /// The forwarding of the request whose Routes are `routes`.
    pub(crate) fn forwarding<'a>(&'a self, routes: &'a RouteSet<'a>) -> Forwarding<'a> {
        Forwarding {
            edits: Edits {
                source: self.source,
                routes,
                strict: self.strict,
                record_route: self.record_route,
                strip_identity: self.strip_identity,
                strip_credentials: self.strip_credentials.as_deref(),
            },
            caller: self.caller,
            outbound: self.outbound,
            loop_hash: self.loop_hash,
            max_breadth: self.max_breadth,
            policy: self.policy,
            call: self.call,
            has_shared_keys: self.has_shared_keys,
        }
    }
}
