//! Constraints between the keys of a balancer.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{at_most, count, within};
use crate::config::error::{Fault, nearest};
use crate::config::values::{StoreUrl, TargetSource, WeightedTarget};
use crate::config::{Action, Balancer, Config, Policy, Probe, Route, Stateless};
use crate::targets::MAX_TARGETS;

/// Maximum number of balancers.
const MAX_BALANCERS: usize = 256;
/// Maximum length of a name.
const MAX_NAME: usize = 64;
/// Maximum capacity in calls, the same as for a gateway.
const MAX_CAPACITY: u32 = strowger_store::MAX_CAPACITY;

impl Config {
    /// Returns the faults of each balancer: the first of each part and of each target.
    pub(super) fn validate_balancers(&self) -> Vec<Fault> {
        let mut names = BTreeSet::new();
        let mut faults: Vec<Fault> = count("balancer", self.balancers.len(), MAX_BALANCERS).err().into_iter().collect();
        for (index, balancer) in self.balancers.iter().enumerate() {
            let key = |name: &str| format!("balancer[{index}].{name}");
            let mut named = validate_name(&balancer.name, &key);
            if named.is_ok() && !names.insert(&balancer.name) {
                let message = format!("{:?} is the name of another balancer; choose another", balancer.name);
                named = Err(Fault::new(key("name"), message));
            }
            let parts = [
                named,
                validate_policy(balancer, &key),
                at_most(&key("slow_start"), balancer.slow_start),
                within(&key("failover_timeout"), balancer.failover_timeout, Duration::from_millis(100)),
                balancer.probe.0.as_ref().map_or(Ok(()), |probe| validate_probe(probe, &key)),
            ];
            faults.extend(parts.into_iter().filter_map(Result::err));
            faults.extend(self.validate_sources(balancer, &key));
        }
        faults
    }

    fn validate_sources(&self, balancer: &Balancer, key: &dyn Fn(&str) -> String) -> Vec<Fault> {
        let targets = &balancer.targets;
        if targets.is_empty() {
            let message = "the list is empty; list the targets, such as [\"sip:192.0.2.1\", \"sip:192.0.2.2\"]";
            return vec![Fault::new(key("targets"), message)];
        }
        if let Err(fault) = count(&key("targets"), targets.len(), MAX_TARGETS) {
            return vec![fault];
        }
        let each = targets.iter().enumerate().map(|(index, source)| {
            let earlier = targets.get(..index).unwrap_or_default();
            self.validate_source(source, earlier, format!("{}[{index}]", key("targets")))
        });
        each.filter_map(Result::err).collect()
    }

    fn validate_source(&self, source: &TargetSource, earlier: &[TargetSource], key: String) -> Result<(), Fault> {
        match source {
            TargetSource::Target(share) => validate_share(share, &key)?,
            TargetSource::Set(_) if self.store_url() == StoreUrl::Memory => {
                let message = format!(
                    "{source} is read from the database, but store.url is memory:; give one there, such as \
                     sqlite:data/strowger.db, or write the targets here"
                );
                return Err(Fault::new(key, message));
            }
            TargetSource::Set(_) | TargetSource::List(_) | TargetSource::Service(_) | TargetSource::Host(_) => {}
        }
        if earlier.iter().any(|other| same_place(other, source)) {
            let message = format!("{source} is listed twice; remove one (weight gives it a greater share)");
            return Err(Fault::new(key, message));
        }
        Ok(())
    }

    /// Checks that the balancer named by a route exists and that the route's other keys allow it.
    pub(super) fn validate_balance(&self, route: &Route, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
        let Some(name) = &route.balance else { return Ok(()) };
        let fault = |of: &str, message: String| Err(Fault::new(key(of), message));
        if route.action != Action::Proxy {
            return fault("balance", "only action = \"proxy\" forwards; remove it".to_owned());
        }
        if route.trunk.is_some() {
            return fault("trunk", "the balancer has its own targets; remove this, or balance".to_owned());
        }
        if !route.targets.is_empty() {
            return fault("targets", "the balancer has its own targets; remove these, or balance".to_owned());
        }
        let Some(balancer) = self.balancers.iter().find(|balancer| balancer.name == *name) else {
            let known: Vec<&str> = self.balancers.iter().map(|balancer| balancer.name.as_str()).collect();
            let remedy = match nearest(name, &known) {
                Some(name) => format!("did you mean {name:?}?"),
                None => format!("add a [[balancer]] with name = {name:?}"),
            };
            return fault("balance", format!("there is no balancer {name:?}; {remedy}"));
        };
        if route.stateless == Stateless::Always && balancer.policy.needs_state() {
            let message = format!(
                "the balancer {name:?} uses {}, and a stateless proxy would send a retransmission to another \
                 target; remove it, or choose a policy such as hash there",
                balancer.policy.as_str()
            );
            return fault("stateless", message);
        }
        Ok(())
    }
}

fn validate_name(name: &str, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        let message =
            format!("{name:?} is not a valid name; write up to {MAX_NAME} letters and digits, such as name = \"pool\"");
        return Err(Fault::new(key("name"), message));
    }
    Ok(())
}

fn validate_policy(balancer: &Balancer, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    let policy = balancer.policy;
    let useless = |of: &str, who: &str| {
        let message = format!("{} does not use it, only {who}; remove it, or choose another policy", policy.as_str());
        Err(Fault::new(key(of), message))
    };
    if balancer.key.is_some() && !policy.is_by_key() {
        return useless("key", "hash, fnv, bernstein, sha1, openser and range do");
    }
    if balancer.transaction_cost.is_some() && policy != Policy::LeastWork {
        return useless("transaction_cost", "least-work does");
    }
    if balancer.candidates.is_some() && !policy.is_by_load() {
        return useless("candidates", "least-calls, least-transactions, least-work and response-time do");
    }
    Ok(())
}

fn validate_share(share: &WeightedTarget, key: &str) -> Result<(), Fault> {
    if share.weight == 0 {
        let message = "a target with weight 0 would never get a call; choose 1 to 65535, or remove the target";
        return Err(Fault::new(format!("{key}.weight"), message));
    }
    match share.capacity {
        Some(calls) if !(1..=MAX_CAPACITY).contains(&calls) => {
            let message = format!("{calls} is not from 1 to {MAX_CAPACITY} calls; omit it for no limit");
            Err(Fault::new(format!("{key}.capacity"), message))
        }
        _ => Ok(()),
    }
}

pub(super) fn validate_probe(probe: &Probe, key: &dyn Fn(&str) -> String) -> Result<(), Fault> {
    within(&key("probe.interval"), probe.interval, Duration::from_millis(100))?;
    within(&key("probe.timeout"), probe.timeout, Duration::from_millis(10))?;
    if probe.timeout > probe.interval {
        let message = format!("{} is longer than probe.interval, {}; lower it", probe.timeout, probe.interval);
        return Err(Fault::new(key("probe.timeout"), message));
    }
    for (name, number) in [("probe.down", probe.down), ("probe.up", probe.up)] {
        if number == 0 {
            return Err(Fault::new(key(name), "0 is not from 1 to 255; choose a value in this range"));
        }
    }
    if probe.accept.is_empty() {
        let message =
            "the list is empty, so no response would be accepted; list some, such as [\"2xx\", \"404\"], or omit it";
        return Err(Fault::new(key("probe.accept"), message));
    }
    Ok(())
}

fn same_place(one: &TargetSource, other: &TargetSource) -> bool {
    match (one, other) {
        (TargetSource::Target(one), TargetSource::Target(other)) => {
            // A duplicate next hop, written differently, would get two shares and be counted twice.
            one.target.next_hop == other.target.next_hop
        }
        (one, other) => one == other,
    }
}
