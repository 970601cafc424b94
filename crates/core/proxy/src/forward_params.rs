//! Parameters of forwarding a request, borrowed for current branches and owned for later ones.

use core::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::Flow;
use strowger_message::Message;

use crate::forward::Edits;
use crate::policy::Policy;
use crate::routing::RouteSet;

/// Parameters common to all branches of a request.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    /// The edits.
    pub edits: Edits<'a>,
    /// The flow to the caller of a new dialog, if its Contact does not suffice.
    pub caller: Option<Flow>,
    /// Whether the registering client supports outbound (RFC 5626), for its Path.
    pub outbound: bool,
    /// Loop hash of the request as received.
    pub loop_hash: u64,
    /// Max-Breadth to distribute, or to write if there was none (RFC 5393 §5.3.3).
    pub max_breadth: u32,
    /// The limits for this request.
    pub policy: ForwardingPolicy,
    /// Id of the call in call tracking; 0 if it is not tracked.
    pub call: u64,
    /// Whether other members share our keys and may receive later messages.
    pub has_shared_keys: bool,
}

/// The operator's limits for a request.
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
    /// Returns the policy's limits, overridden by a route's ring timeout and a balanced set's failover timeout.
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

/// A [`Forwarding`] that does not borrow from the request.
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

    /// Returns the Routes of `message`, the same request.
    pub(crate) fn routes<'a>(&self, message: &Message<'a>) -> RouteSet<'a> {
        RouteSet::reread(message, self.own_routes, self.from_last)
    }

    /// Returns the forwarding of the request with `routes`.
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
