//! Where a request is sent.

use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{self as balancer, FailoverBudget, Seat};
use strowger_foundation::{Flow, ListenerId};
use strowger_locate::Question;
use strowger_message::Status;

use crate::policy::Changes;

/// One destination of a request, which becomes one branch at a time: it is tried at its places, one after the other, until
/// one answers.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where, in the order in which it is tried; at least one.
    pub places: SmallVec<[Place; 1]>,
    /// The preference in thousandths: higher ones are tried first, equal ones at once (RFC 3261 §16.6).
    pub q: u16,
    /// Headers that are changed for this destination.
    pub changes: Option<Arc<Changes>>,
    /// The trunk whose credentials answer a challenge; its id.
    pub trunk: Option<u32>,
    /// There were several places that were worth a try: the last of them is given no more time than the others.
    pub is_list: bool,
    /// What it may take to try another place when one fails; it takes nothing where nobody shares the places.
    pub budget: Option<Arc<FailoverBudget>>,
}

/// One place where a destination may be.
#[derive(Clone, Debug)]
pub struct Place {
    /// The Request-URI there.
    pub request_uri: SmallVec<[u8; 64]>,
    /// Where that is.
    pub to: To,
    /// Route headers that lead there: the Path of its registration.
    pub path: Option<Box<[u8]>>,
    /// What is known of the way there.
    pub reach: Reach,
    /// The target of a balanced set that is there, which is told of what it gets to do.
    pub balanced: Option<Balanced>,
}

/// A target of a balanced set, as one request is sent to it.
#[derive(Clone, Debug)]
pub struct Balanced {
    /// Which.
    pub target: Arc<balancer::Target>,
    /// The work that the request is, in thousandths of that of a BYE.
    pub work: u32,
    /// Calls that it may have at one time, at most.
    pub capacity: u32,
}

/// All places that are left are of targets that have as many calls as they may have.
pub(crate) struct Full;

/// An address, or a name that leads to addresses.
#[derive(Clone, Debug)]
pub enum To {
    /// Here.
    Flow(Flow),
    /// Where the DNS says.
    Name {
        /// What is asked.
        question: Box<Question>,
        /// The listener from which it is best reached, as far as one can say.
        listener: ListenerId,
    },
}

/// What is known of the way to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anybody can send there: a large request may go by a stream instead of a datagram.
    Address,
    /// As [`Reach::Address`], but its transport is named or was chosen already.
    Fixed,
    /// An address that many requests are sent to: a target of a route, or what a name led to. When it fails it is avoided.
    Shared,
    /// As [`Reach::Shared`] with its transport named or chosen.
    SharedFixed,
    /// The flow of a registration or of a dialog: it, and what follows in the dialog, goes this way and no other.
    Flow {
        /// What the caller is told where the flow is gone.
        lost: Status,
    },
}

impl Reach {
    pub(crate) const fn is_flow(self) -> bool {
        matches!(self, Self::Flow { .. })
    }

    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::SharedFixed)
    }

    /// What is known once the transport is chosen; `None` where it was already.
    pub(crate) const fn fixed(self) -> Option<Self> {
        match self {
            Self::Address => Some(Self::Fixed),
            Self::Shared => Some(Self::SharedFixed),
            Self::Fixed | Self::SharedFixed | Self::Flow { .. } => None,
        }
    }

    pub(crate) const fn lost(self) -> Status {
        match self {
            Self::Flow { lost } => lost,
            _ => Status::SERVICE_UNAVAILABLE,
        }
    }
}

impl Default for Target {
    /// One of the highest preference that is nowhere yet.
    fn default() -> Self {
        Self { places: SmallVec::new(), q: 1000, changes: None, trunk: None, is_list: false, budget: None }
    }
}

impl Target {
    /// The destination that is at one place.
    #[must_use]
    pub fn at(place: Place) -> Self {
        let mut places = SmallVec::new();
        places.push(place);
        Self { places, q: 1000, ..Self::default() }
    }

    /// The seat of a call at the first place, where that is a balanced target's that is known. Those that have filled up since they
    /// were chosen, by others who chose them at the same moment, are places no more.
    pub(crate) fn take_seat(&mut self) -> Result<Option<Seat>, Full> {
        while let Some(place) = self.places.first() {
            let Some(balanced) = place.balanced.as_ref().filter(|_| matches!(place.to, To::Flow(_))) else {
                return Ok(None);
            };
            if let Some(seat) = balanced.target.seat_within(balanced.capacity) {
                return Ok(Some(seat));
            }
            self.places.remove(0);
        }
        Err(Full)
    }
}
