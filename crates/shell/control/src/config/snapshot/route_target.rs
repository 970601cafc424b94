//! Targets of routes and sets.

use strowger_shard::{RouteTarget, TargetAddress};

use crate::config::snapshot::bytes;
use crate::config::values::{Destination, Target, WeightedTarget};

/// Converts a balancer's target to a route's target.
pub(crate) fn route_target(share: &WeightedTarget) -> RouteTarget {
    placed(&share.target, share.priority, share.weight)
}

pub(crate) fn placed(target: &Target, priority: u16, weight: u16) -> RouteTarget {
    let place = match &target.next_hop {
        strowger_trunk::NextHop::Address(hop) => {
            TargetAddress::Literal { address: hop.address, transport: target.transport }
        }
        strowger_trunk::NextHop::Name(question) => TargetAddress::Name(question.clone()),
    };
    RouteTarget { uri: bytes(&target.uri), address: place, priority, weight }
}

pub(crate) fn target(destination: &Destination) -> RouteTarget {
    placed(&destination.target, destination.priority, destination.weight)
}
