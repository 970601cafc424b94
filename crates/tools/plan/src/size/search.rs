//! The cheapest plan that carries the load and is as available as asked.

use super::demand::Demand;
use super::explain::reasons;
use super::needs::Needs;
use super::profile::Profile;
use super::{Limit, Plan, Resource, Stage};
use crate::availability::Availability;
use crate::error::PlanError;
use crate::failover::{FailoverTimes, failover};
use crate::mg1::mg1;
use crate::service::ServiceTime;
use crate::units;

/// P at most.
pub(super) const MAX_CLUSTERS: u32 = 4_096;
/// B at most.
pub(super) const MAX_MEMBERS: u32 = 8;
/// S at most.
pub(super) const MAX_FIRST: u32 = 4_096;

/// How many of each.
#[derive(Clone, Copy)]
struct Shape {
    first: u32,
    clusters: u32,
    members: u32,
}

impl Shape {
    fn servers(self) -> u32 {
        self.first + self.clusters * self.members
    }

    fn availability(self, profile: &Profile) -> Result<Availability, PlanError> {
        let node = profile.server.availability;
        Availability::two_stage(self.first, node, self.clusters, self.members, node)
    }
}

/// For each B, the fewest clusters that carry the load, then the fewest first-stage servers that carry it and reach the
/// availability. More clusters than needed make it dearer and less available, so they are never tried.
pub(super) fn cheapest(needs: &Needs, profile: &Profile) -> Result<Plan, PlanError> {
    let demand = Demand::of(needs, profile)?;
    let mut best: Option<Shape> = None;
    let mut most_available = 0.0_f64;
    for members in 1..=MAX_MEMBERS {
        let Some(clusters) = fewest(MAX_CLUSTERS, |clusters| fits(&demand.second_limits(clusters, members))) else {
            continue;
        };
        let Some(first) = fewest_first(&demand, clusters) else { continue };
        let mut shape = Shape { first, clusters, members };
        let mut reached = shape.availability(profile)?;
        while !is_enough(&reached, needs) && shape.first > 0 && shape.first < first + MAX_MEMBERS {
            shape.first += 1;
            reached = shape.availability(profile)?;
        }
        most_available = most_available.max(reached.availability);
        if is_enough(&reached, needs) && best.is_none_or(|best| shape.servers() < best.servers()) {
            best = Some(shape);
        }
    }
    match best {
        Some(shape) => plan(&demand, needs, profile, shape),
        None if most_available > 0.0 => Err(not_available(needs, profile, most_available)),
        None => Err(does_not_fit(&demand)),
    }
}

/// Two servers of 99 % are 99.99 %, although 1 − 0.01² is not 0.9999 to the last bit.
fn is_enough(reached: &Availability, needs: &Needs) -> bool {
    reached.unavailability <= (1.0 - needs.availability) * (1.0 + 1e-9)
}

fn fits(limits: &[Limit]) -> bool {
    // A load that is above its limit by a rounding error is at it.
    limits.iter().all(|limit| limit.used <= limit.allowed * (1.0 + 1e-12))
}

/// None where one cluster serves all; else as many as carry the load with one of them gone.
fn fewest_first(demand: &Demand<'_>, clusters: u32) -> Option<u32> {
    if clusters == 1 {
        return Some(0);
    }
    fewest(MAX_FIRST, |first| fits(&demand.first_limits(first)))
}

/// The least number from 1 to `most` that is enough, where each number above one that is enough is too.
fn fewest(most: u32, enough: impl Fn(u32) -> bool) -> Option<u32> {
    if !enough(most) {
        return None;
    }
    let (mut short, mut enough_at) = (0, most);
    while enough_at - short > 1 {
        let middle = u32::midpoint(short, enough_at);
        if enough(middle) {
            enough_at = middle;
        } else {
            short = middle;
        }
    }
    Some(enough_at)
}

fn plan(demand: &Demand<'_>, needs: &Needs, profile: &Profile, shape: Shape) -> Result<Plan, PlanError> {
    let Shape { first, clusters, members } = shape;
    let mut limits = demand.second_limits(clusters, members);
    if first > 0 {
        limits.extend(demand.first_limits(first));
    }
    limits.sort_by(|a, b| a.carries_subscribers.total_cmp(&b.carries_subscribers));
    let stored = needs.replication == super::Replication::Store;
    let mut plan = Plan {
        needs: *needs,
        profile: profile.clone(),
        traffic: demand.traffic,
        first,
        clusters,
        members,
        servers: shape.servers(),
        cores: shape.servers() * profile.server.cores,
        busy_cores: demand.busy_cores(clusters, members),
        memory_bytes: demand.memory_bytes(first, clusters, members),
        bandwidth_bits_per_s: demand.bandwidth_bits_per_s(),
        messages_per_s: demand.messages_per_s(),
        wait_s: wait_s(demand, profile, shape, &limits),
        stores: if stored { clusters * members } else { 0 },
        cost_per_month: f64::from(shape.servers()) * profile.server.cost_per_month,
        availability: shape.availability(profile)?,
        failover: failover(times(needs, profile))?,
        limits,
        sensitivities: Vec::new(),
        reasons: Vec::new(),
    };
    plan.reasons = reasons(&plan, demand);
    Ok(plan)
}

/// The mean wait at the busiest member, each of its cores a queue of its own.
fn wait_s(demand: &Demand<'_>, profile: &Profile, shape: Shape, limits: &[Limit]) -> Option<f64> {
    let rate = demand.packets_per_core(shape.clusters, shape.members);
    let service = match &profile.timing {
        Some(timing) => timing.service_at(rate),
        None => {
            let is_cpu = |limit: &&Limit| limit.stage == Stage::Second && limit.resource == Resource::Cpu;
            ServiceTime::exponential(limits.iter().find(is_cpu)?.used / rate)
        }
    };
    mg1(rate, service.ok()?).ok().map(|queue| queue.wait_s)
}

/// R = T_F/(T_F + T_M).
fn times(needs: &Needs, profile: &Profile) -> FailoverTimes {
    let node = profile.server.availability;
    let failure_s = if node < 1.0 { needs.repair_s * node / (1.0 - node) } else { f64::MAX };
    FailoverTimes {
        availability: node,
        client_retry_s: needs.client_retry_s,
        dns_ttl_s: needs.dns_ttl_s,
        repair_s: needs.repair_s,
        failure_s,
        replication_s: needs.replication_s,
        cache_s: needs.cache_s,
        refresh_s: needs.refresh_s,
    }
}

fn not_available(needs: &Needs, profile: &Profile, most: f64) -> PlanError {
    PlanError::NoPlan {
        need: "availability".into(),
        reason: format!(
            "with servers that are {} available, the best of clusters of up to {MAX_MEMBERS} is {}, not {}",
            units::share(profile.server.availability),
            units::share(most),
            units::share(needs.availability)
        ),
        remedy: "take more available servers, fewer and larger ones, or promise less".into(),
    }
}

fn does_not_fit(demand: &Demand<'_>) -> PlanError {
    let limits = demand.second_limits(MAX_CLUSTERS, 1);
    let first = demand.first_limits(MAX_FIRST);
    let fullest = limits.iter().chain(&first).max_by(|a, b| (a.used / a.allowed).total_cmp(&(b.used / b.allowed)));
    let reason = fullest.map_or_else(String::new, |limit| {
        format!(
            "even with {MAX_CLUSTERS} clusters {} of the {} of the {} would be used, where {} may be",
            units::share(limit.used),
            limit.resource,
            limit.stage,
            units::share(limit.allowed)
        )
    });
    PlanError::NoPlan {
        need: "load".into(),
        reason,
        remedy: "take larger servers, use more of each, or ask for less".into(),
    }
}
