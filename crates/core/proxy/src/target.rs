//! The targets of a request.

use core::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{self as balancer, CallGuard, FailoverBudget, TargetId};
use strowger_foundation::{Flow, ListenerId};
use strowger_locate::LocateQuery;
use strowger_message::Status;

use crate::policy::Changes;

/// One destination of a request, with one branch at a time: its next hops are tried in order until one responds.
#[derive(Clone, Debug)]
pub struct Target {
    /// Next hops in order of preference; at least one.
    pub next_hops: SmallVec<[NextHop; 1]>,
    /// Preference in thousandths: higher values are tried first, equal ones in parallel (RFC 3261 §16.6).
    pub q: u16,
    /// Header changes for this destination.
    pub changes: Option<Arc<Changes>>,
    /// Id of the trunk whose credentials answer a challenge.
    pub trunk: Option<u32>,
    /// Whether there were several usable next hops: the last one then gets no more time than the others.
    pub has_several_hops: bool,
    /// Whether its route may rewrite the called number.
    pub is_rewritten: bool,
    /// Budget for failover to another next hop; not needed if the next hops are not shared.
    pub budget: Option<Arc<FailoverBudget>>,
}

/// A next hop of a destination.
#[derive(Clone, Debug)]
pub struct NextHop {
    /// The Request-URI to send.
    pub request_uri: SmallVec<[u8; 64]>,
    /// The address, or the name to resolve.
    pub address: NextHopAddress,
    /// Route headers to insert: the Path of its registration.
    pub path: Option<Box<[u8]>>,
    /// What is known about the next hop.
    pub kind: NextHopKind,
    /// The target of a balanced set at this next hop, which counts its requests.
    pub balanced: Option<BalancedTarget>,
}

/// A target of a balanced set with the weight of a request.
#[derive(Clone, Debug)]
pub struct BalancedTarget {
    /// The target.
    pub target: Arc<balancer::Target>,
    /// Weight of the request in thousandths of a BYE.
    pub work: u32,
    /// Largest number of concurrent calls at the target.
    pub capacity: u32,
}

/// How an INVITE that begins a call was sent: to a trunk, or by a route that rewrites the called number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentAs {
    /// Id of the trunk.
    pub trunk: Option<u32>,
    /// The Request-URI as sent.
    pub request_uri: SmallVec<[u8; 64]>,
}

/// The trunk and the balanced target that a call was sent to, as far as it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallDestination {
    /// Id of the trunk.
    pub trunk: Option<u32>,
    /// Id of the target, which may be a member of a cluster.
    pub target: Option<TargetId>,
}

/// All remaining next hops are targets at their call limit.
pub(crate) struct AllTargetsFull;

/// An address, or a name to resolve.
#[derive(Clone, Debug)]
pub enum NextHopAddress {
    /// A known address.
    Flow(Flow),
    /// A name to look up in the DNS.
    Name {
        /// The DNS query.
        question: Box<LocateQuery>,
        /// The preferred listener, as far as it is known before resolution.
        listener: ListenerId,
        /// The address of who named it; `None` if the operator did.
        named_by: Option<IpAddr>,
    },
}

/// What is known about a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHopKind {
    /// An address that is not bound to a flow: a large request may use a stream instead of a datagram.
    Address,
    /// Like [`NextHopKind::Address`], but the transport is given or already chosen.
    AddressFixedTransport,
    /// An address that many requests share: a target of a route, or a resolved name. It is avoided after a failure.
    Shared,
    /// Like [`NextHopKind::Shared`], with the transport given or already chosen.
    SharedFixedTransport,
    /// The flow of a registration or dialog: this request and later ones of the dialog must use it.
    Flow {
        /// The status for the caller if the flow is gone.
        status_if_gone: Status,
    },
}

impl NextHopKind {
    pub(crate) const fn is_flow(self) -> bool {
        matches!(self, Self::Flow { .. })
    }

    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::SharedFixedTransport)
    }

    /// Returns the kind after the transport is chosen; `None` if it already was.
    pub(crate) const fn with_fixed_transport(self) -> Option<Self> {
        match self {
            Self::Address => Some(Self::AddressFixedTransport),
            Self::Shared => Some(Self::SharedFixedTransport),
            Self::AddressFixedTransport | Self::SharedFixedTransport | Self::Flow { .. } => None,
        }
    }

    pub(crate) const fn unreachable_status(self) -> Status {
        match self {
            Self::Flow { status_if_gone: lost } => lost,
            _ => Status::SERVICE_UNAVAILABLE,
        }
    }
}

impl Default for Target {
    /// Returns a destination of the highest preference without next hops.
    fn default() -> Self {
        Self {
            next_hops: SmallVec::new(),
            q: 1000,
            changes: None,
            trunk: None,
            has_several_hops: false,
            is_rewritten: false,
            budget: None,
        }
    }
}

impl Target {
    /// Creates a destination with one next hop.
    #[must_use]
    pub fn at(place: NextHop) -> Self {
        let mut places = SmallVec::new();
        places.push(place);
        Self { next_hops: places, q: 1000, ..Self::default() }
    }

    /// Returns how a call is sent to the next hop `place` of this destination; `None` if call records need not tell.
    pub(crate) fn sent_as(&self, place: &NextHop) -> Option<Box<SentAs>> {
        let is_told = self.trunk.is_some() || self.is_rewritten;
        is_told.then(|| Box::new(SentAs { trunk: self.trunk, request_uri: place.request_uri.clone() }))
    }

    /// Acquires a call at the first next hop if that is a balanced target with a known address. Drops next hops whose
    /// targets have reached their limit since they were selected, because of concurrent requests.
    pub(crate) fn acquire_call(&mut self) -> Result<Option<CallGuard>, AllTargetsFull> {
        while let Some(place) = self.next_hops.first() {
            let Some(balanced) = place.balanced.as_ref().filter(|_| matches!(place.address, NextHopAddress::Flow(_)))
            else {
                return Ok(None);
            };
            if let Some(call_guard) = balanced.target.try_begin_call(balanced.capacity) {
                return Ok(Some(call_guard));
            }
            self.next_hops.remove(0);
        }
        Err(AllTargetsFull)
    }
}
