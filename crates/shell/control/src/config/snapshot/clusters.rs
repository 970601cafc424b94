//! The second stage's clusters in the form for the shards.

use std::sync::Arc;

use strowger_balancer::Partition;
use strowger_registrar::Nat;
use strowger_shard::{Action, Clusters, Route, RouteMatch};

use crate::config::Config;
use crate::targets::TargetSets;

/// Name shared by the servers of the first stage; no cluster can have it.
const FIRST_STAGE: &str = "first stage";

impl Config {
    /// Returns the clusters, if the configuration has any.
    #[must_use]
    pub fn clusters(&self, sets: &TargetSets) -> Option<Arc<Clusters>> {
        let role = self.role()?;
        let route = |(at, name): (usize, &str)| {
            let set = sets.of(name).filter(|_| Some(at) != role.cluster);
            let action = set.map_or(Action::NoTarget, |set| {
                Action::balance(Arc::clone(set.set()), set.next_hops().to_vec(), strowger_proxy::Stateless::Never)
            });
            Route::new(RouteMatch::default(), action)
        };
        let (partition, before) = (self.partition(), self.partition_before());
        let own = role.cluster.and_then(|own| self.second_stage.get(own));
        Some(Arc::new(Clusters {
            own: role.cluster,
            stage: own.map_or(FIRST_STAGE, |own| &own.name).into(),
            previous: (before != partition).then_some(before),
            partition,
            routes: self.second_stage.iter().map(|cluster| &*cluster.name).enumerate().map(route).collect(),
            loads: sets.slot_loads(),
            registrar: strowger_registrar::Policy { nat: Nat::Never, ..self.registrar_policy() },
        }))
    }

    /// Returns the assignment of users to clusters.
    #[must_use]
    pub fn partition(&self) -> Partition {
        Partition::new(self.second_stage.iter().map(|cluster| (&*cluster.name, cluster.weight)))
    }

    /// Returns the assignment of users to clusters before the last change.
    #[must_use]
    pub fn partition_before(&self) -> Partition {
        Partition::new(self.second_stage.iter().map(|cluster| (&*cluster.name, cluster.weight_before())))
    }
}
