//! The sets as shards are told them.

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

/// One balancer's.
#[derive(Clone, Debug)]
pub struct TargetSet {
    set: Arc<Set>,
    /// Where each member is.
    next_hops: Vec<RouteTarget>,
    /// Who named each member.
    origins: Vec<Origin>,
}

impl TargetSets {
    /// The sets of `config`, with the targets of `registry` that there are already. One whose targets cannot be used is empty;
    /// why is told beside them.
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

    /// As [`build_all`](Self::build_all), all or nothing.
    ///
    /// # Errors
    /// The first set whose targets cannot be used.
    pub fn build(config: &Config, sources: &Sources<'_>, registry: &Registry) -> Result<Self, TargetError> {
        let (sets, refused) = Self::build_all(config, sources, registry);
        refused.into_iter().next().map_or(Ok(sets), Err)
    }

    /// The sets that have no target, with the key of their targets and what to do.
    #[must_use]
    pub fn empty(&self, config: &Config) -> Vec<TargetError> {
        let of = |(index, balancer): (usize, &Balancer)| {
            let key = || format!("balancer[{index}].targets");
            self.of(&balancer.name).is_none().then(|| TargetError::new(key(), balancer.emptiness()))
        };
        config.balancers.iter().enumerate().filter_map(of).collect()
    }

    /// How much the users of each slot are asked for.
    #[must_use]
    pub fn slot_loads(&self) -> Arc<SlotLoads> {
        Arc::clone(&self.slot_loads)
    }

    /// The set of a balancer, where it has a target.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&TargetSet> {
        self.iter().find(|set| set.set.config().name == name)
    }

    /// Those that have targets, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &TargetSet> {
        self.sets.iter()
    }
}

impl TargetSet {
    /// None where there is no target.
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

    /// What chooses among the members.
    #[must_use]
    pub const fn set(&self) -> &Arc<Set> {
        &self.set
    }

    /// Where the members are, in their order.
    #[must_use]
    pub fn next_hops(&self) -> &[RouteTarget] {
        &self.next_hops
    }

    /// Who named the members, in their order.
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
            weights: self.work().weights(),
            slow_start: self.slow_start.0,
            failover_timeout: Some(self.failover_timeout.0),
            tries_down: self.tries_down,
            probe: self.probe.0.as_ref().map(crate::config::Probe::to_balancer),
        }
    }

    /// What is said of it where it has no target.
    fn emptiness(&self) -> String {
        let sources: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        let mut sets = self.targets.iter().filter_map(|source| match source {
            TargetSource::Set(name) => Some(&name.0),
            _ => None,
        });
        let remedy = match sets.next() {
            Some(set) => format!("`strowger gateway add {set} sip:HOST` adds one"),
            None => "name one that has some".to_owned(),
        };
        format!("there is no target in {}: calls would get 503; {remedy}", sources.join(", "))
    }
}
