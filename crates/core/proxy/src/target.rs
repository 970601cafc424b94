//! Where a request is sent.

use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{self as balancer, CallGuard, FailoverBudget};
use strowger_foundation::{Flow, ListenerId};
use strowger_locate::LocateQuery;
use strowger_message::Status;

use crate::policy::Changes;

/// One destination of a request, which becomes one branch at a time: it is tried at its places, one after the other, until
/// one answers.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where, in the order in which it is tried; at least one.
    pub next_hops: SmallVec<[NextHop; 1]>,
    /// The preference in thousandths: higher ones are tried first, equal ones at once (RFC 3261 §16.6).
    pub q: u16,
    /// Headers that are changed for this destination.
    pub changes: Option<Arc<Changes>>,
    /// The trunk whose credentials answer a challenge; its id.
    pub trunk: Option<u32>,
    /// There were several places that were worth a try: the last of them is given no more time than the others.
    pub has_several_hops: bool,
    /// What it may take to try another place when one fails; it takes nothing where nobody shares the places.
    pub budget: Option<Arc<FailoverBudget>>,
}

/// One place where a destination may be.
#[derive(Clone, Debug)]
pub struct NextHop {
    /// The Request-URI there.
    pub request_uri: SmallVec<[u8; 64]>,
    /// Where that is.
    pub address: NextHopAddress,
    /// Route headers that lead there: the Path of its registration.
    pub path: Option<Box<[u8]>>,
    /// What is known of the way there.
    pub kind: NextHopKind,
    /// The target of a balanced set that is there, which is told of what it gets to do.
    pub balanced: Option<BalancedTarget>,
}

/// A target of a balanced set, as one request is sent to it.
#[derive(Clone, Debug)]
pub struct BalancedTarget {
    /// Which.
    pub target: Arc<balancer::Target>,
    /// The work that the request is, in thousandths of that of a BYE.
    pub work: u32,
    /// Calls that it may have at one time, at most.
    pub capacity: u32,
}

/// All places that are left are of targets that have as many calls as they may have.
pub(crate) struct AllTargetsFull;

/// An address, or a name that leads to addresses.
#[derive(Clone, Debug)]
pub enum NextHopAddress {
    /// Here.
    Flow(Flow),
    /// Where the DNS says.
    Name {
        /// What is asked.
        question: Box<LocateQuery>,
        /// The listener from which it is best reached, as far as one can say.
        listener: ListenerId,
    },
}

/// What is known of the way to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHopKind {
    /// Anybody can send there: a large request may go by a stream instead of a datagram.
    Address,
    /// As [`Reach::Address`], but its transport is named or was chosen already.
    AddressFixedTransport,
    /// An address that many requests are sent to: a target of a route, or what a name led to. When it fails it is avoided.
    Shared,
    /// As [`Reach::Shared`] with its transport named or chosen.
    SharedFixedTransport,
    /// The flow of a registration or of a dialog: it, and what follows in the dialog, goes this way and no other.
    Flow {
        /// What the caller is told where the flow is gone.
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

    /// What is known once the transport is chosen; `None` where it was already.
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
    /// One of the highest preference that is nowhere yet.
    fn default() -> Self {
        Self { next_hops: SmallVec::new(), q: 1000, changes: None, trunk: None, has_several_hops: false, budget: None }
    }
}

impl Target {
    /// The destination that is at one place.
    #[must_use]
    pub fn at(place: NextHop) -> Self {
        let mut places = SmallVec::new();
        places.push(place);
        Self { next_hops: places, q: 1000, ..Self::default() }
    }

    /// The seat of a call at the first place, where that is a balanced target's that is known. Those that have filled up since they
    /// were chosen, by others who chose them at the same moment, are places no more.
    pub(crate) fn acquire_call(&mut self) -> Result<Option<CallGuard>, AllTargetsFull> {
        while let Some(place) = self.next_hops.first() {
            let Some(balanced) = place.balanced.as_ref().filter(|_| matches!(place.address, NextHopAddress::Flow(_)))
            else {
                return Ok(None);
            };
            if let Some(seat) = balanced.target.try_begin_call(balanced.capacity) {
                return Ok(Some(seat));
            }
            self.next_hops.remove(0);
        }
        Err(AllTargetsFull)
    }
}
