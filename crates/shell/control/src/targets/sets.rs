//! Target sets in the form for the shards.

use std::sync::Arc;

use strowger_balancer::{Member, Registry, Set, SetConfig, SlotLoads};
use strowger_shard::RouteTarget;

use super::{Origin, Sources, TargetEntry, TargetError};
use crate::config::values::TargetSource;
use crate::config::{Balancer, Config};

/// The target sets of all balancers.
#[derive(Clone, Debug, Default)]
pub struct TargetSets {
    sets: Vec<TargetSet>,
    slot_loads: Arc<SlotLoads>,
}

/// Target set of a balancer.
#[derive(Clone, Debug)]
pub struct TargetSet {
    set: Arc<Set>,
    /// Next hop of each member.
    next_hops: Vec<RouteTarget>,
    /// Origin of each member.
    origins: Vec<Origin>,
}

impl TargetSets {
    /// Builds the sets of `config`, reusing the targets in `registry`. A set with unusable targets is empty; the
    /// reasons are returned too.
    #[must_use]
    pub fn build_all(config: &Config, sources: &Sources<'_>, registry: &Registry) -> (Self, Vec<TargetError>) {
        let mut refused = Vec::new();
        let mut sets = Vec::new();
        for (index, balancer) in config.balancers.iter().enumerate() {
            let made = sources.targets(index, balancer).and_then(|listed| {
                let fault = |message| TargetError::new(format!("balancer[{index}].targets"), message);
                TargetSet::new(balancer, &listed, registry).map_err(fault)
            });
            sets.extend(made.unwrap_or_else(|why| {
                refused.push(why);
                None
            }));
        }
        (Self { sets, slot_loads: registry.slot_loads() }, refused)
    }

    /// Like [`build_all`](Self::build_all), but fails on the first error.
    ///
    /// # Errors
    /// The first set with unusable targets.
    pub fn build(config: &Config, sources: &Sources<'_>, registry: &Registry) -> Result<Self, TargetError> {
        let (sets, refused) = Self::build_all(config, sources, registry);
        refused.into_iter().next().map_or(Ok(sets), Err)
    }

    /// Returns the sets without targets, with the key of their targets and a remedy.
    #[must_use]
    pub fn empty(&self, config: &Config) -> Vec<TargetError> {
        let of = |(index, balancer): (usize, &Balancer)| {
            let key = || format!("balancer[{index}].targets");
            self.of(&balancer.name).is_none().then(|| TargetError::new(key(), balancer.emptiness()))
        };
        config.balancers.iter().enumerate().filter_map(of).collect()
    }

    /// Returns the load of each slot of users.
    #[must_use]
    pub fn slot_loads(&self) -> Arc<SlotLoads> {
        Arc::clone(&self.slot_loads)
    }

    /// Returns the set of a balancer, if it has a target.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&TargetSet> {
        self.iter().find(|set| set.set.config().name == name)
    }

    /// Returns the sets with targets, in configuration order.
    pub fn iter(&self) -> impl Iterator<Item = &TargetSet> {
        self.sets.iter()
    }
}

impl TargetSet {
    /// Returns `None` if there is no target.
    fn new(balancer: &Balancer, listed: &[TargetEntry], registry: &Registry) -> Result<Option<Self>, String> {
        if listed.is_empty() {
            return Ok(None);
        }
        let member = |listed: &TargetEntry| {
            let share = &listed.share;
            let uri = &share.target.uri;
            let target = registry.target(&balancer.name, uri.as_bytes()).map_err(|why| format!("{uri}: {why}"))?;
            let (priority, weight, capacity) = (share.priority, share.weight, share.capacity);
            Ok(Member { target, priority, weight, capacity, enabled: listed.enabled })
        };
        let members = listed.iter().map(member).collect::<Result<Vec<_>, String>>()?;
        let set = Set::new(balancer.set_config(), members).map_err(|why| why.to_string())?;
        Ok(Some(Self {
            set: Arc::new(set),
            next_hops: listed.iter().map(|listed| crate::config::route_target(&listed.share)).collect(),
            origins: listed.iter().map(|listed| listed.origin.clone()).collect(),
        }))
    }

    /// Returns the set that chooses among the members.
    #[must_use]
    pub const fn set(&self) -> &Arc<Set> {
        &self.set
    }

    /// Returns the next hops of the members, in order.
    #[must_use]
    pub fn next_hops(&self) -> &[RouteTarget] {
        &self.next_hops
    }

    /// Returns the origins of the members, in order.
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }
}

impl Balancer {
    fn set_config(&self) -> SetConfig {
        SetConfig {
            name: self.name.clone(),
            policy: self.policy.into(),
            key: self.key().into(),
            candidates: self.candidates.unwrap_or_default().into(),
            weights: self.transaction_cost().weights(),
            slow_start: self.slow_start.0,
            failover_timeout: Some(self.failover_timeout.0),
            tries_down: self.tries_down,
            probe: self.probe.0.as_ref().map(crate::config::Probe::to_balancer),
        }
    }

    /// Returns the message for a source without targets.
    fn emptiness(&self) -> String {
        let sources: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        let mut sets = self.targets.iter().filter_map(|source| match source {
            TargetSource::Set(name) => Some(&name.0),
            _ => None,
        });
        let remedy = match sets.next() {
            Some(set) => format!("`strowger gateway add {set} sip:HOST` adds one"),
            None => "use a source with targets".to_owned(),
        };
        format!("{} has no targets: calls would get 503; {remedy}", sources.join(", "))
    }
}
