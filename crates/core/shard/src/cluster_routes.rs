//! The clusters of servers and the users of each.

use std::sync::Arc;

use strowger_balancer::{Partition, Slot, SlotLoads};

use crate::route::Route;

/// The clusters, from the view of one server.
#[derive(Clone, Debug)]
pub struct Clusters {
    /// The cluster of this server; `None` for a first stage.
    pub own: Option<usize>,
    /// The common name of the servers that stand in for this one: the name of its cluster or of the first stage.
    pub stage: Box<str>,
    /// The current assignment of users to clusters.
    pub partition: Partition,
    /// The previous assignment, if it differs for some users.
    pub previous: Option<Partition>,
    /// The route to the members of each cluster.
    pub routes: Vec<Route>,
    /// Request counts per slot.
    pub loads: Arc<SlotLoads>,
    /// The policy for a REGISTER that came through another server of ours: that server has added a Path where phones
    /// are reachable only through it.
    pub registrar: strowger_registrar::Policy,
}

impl Clusters {
    /// Returns which cluster serves the users of this slot, for a member of a cluster; `None` for a first stage, and
    /// if no cluster has any users.
    pub(crate) fn serving_cluster(&self, slot: Slot) -> Option<ServingCluster> {
        let own = self.own?;
        let owner = self.partition.owner(slot)?;
        if owner != own {
            return Some(ServingCluster::Other(owner));
        }
        let before = self.previous.as_ref().and_then(|before| before.owner(slot));
        Some(ServingCluster::Own { also: before.filter(|before| *before != own) })
    }
}

/// The cluster that serves a request for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServingCluster {
    /// This server's cluster. It also asks `also`: the user's previous cluster, or the user's cluster in this
    /// server's view when the asking server has another view.
    Own { also: Option<usize> },
    /// Another cluster.
    Other(usize),
}
