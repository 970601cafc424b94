//! Search for the cheapest plan that carries the load and reaches the availability.

use super::avalanche::after_an_outage;
use super::demand::Demand;
use super::profile::Profile;
use super::requirements::{Replication, Requirements};
use super::{Limit, Plan, Resource, Stage};
use crate::availability::Availability;
use crate::error::PlanError;
use crate::failover::{FailoverTimes, failover, mean_time_to_failure_s};
use crate::mg1::{Mg1, mg1};
use crate::service::ServiceTime;
use crate::units::{self, brief};

/// Highest number of clusters, P.
pub(super) const MAX_CLUSTERS: u32 = 4_096;
/// Highest number of members, B.
pub(super) const MAX_MEMBERS: u32 = 8;
/// Highest number of first-stage servers, S.
pub(super) const MAX_FIRST: u32 = 4_096;

/// Number of servers of each kind.
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

/// Returns the plan with the fewest servers.
pub(super) fn cheapest(needs: &Requirements, profile: &Profile) -> Result<Plan, PlanError> {
    let demand = Demand::of(needs, profile)?;
    let shape = fewest_servers(&demand)?;
    let for_load = Requirements { availability: 0.0, ..*needs };
    let for_load = fewest_servers(&Demand::of(&for_load, profile)?)?;
    plan(&demand, shape, for_load.servers())
}

/// Returns the shape with the fewest servers.
///
/// For each B it finds the fewest clusters that carry the load, then the fewest first-stage servers that carry it and
/// reach the availability. More clusters cost more and lower the availability, so they are not tried.
fn fewest_servers(demand: &Demand<'_>) -> Result<Shape, PlanError> {
    let (needs, profile) = (demand.needs, demand.profile);
    let mut best: Option<Shape> = None;
    let mut least_missing: Option<f64> = None;
    let most_members = if needs.members_replace_each_other() { MAX_MEMBERS } else { 1 };
    for members in 1..=most_members {
        let Some(clusters) = fewest(MAX_CLUSTERS, |clusters| fits(&demand.second_limits(clusters, members))) else {
            continue;
        };
        let Some(first) = fewest_first(demand, clusters) else { continue };
        let mut shape = Shape { first, clusters, members };
        let mut reached = shape.availability(profile)?;
        while !is_enough(&reached, needs) && shape.first > 0 && shape.first < first + MAX_MEMBERS {
            shape.first += 1;
            reached = shape.availability(profile)?;
        }
        least_missing = Some(least_missing.map_or(reached.unavailability, |least| least.min(reached.unavailability)));
        if is_enough(&reached, needs) && best.is_none_or(|best| shape.servers() < best.servers()) {
            best = Some(shape);
        }
    }
    match (best, least_missing) {
        (Some(shape), _) => Ok(shape),
        (None, Some(missing)) => Err(not_available(needs, profile, missing)),
        (None, None) => Err(does_not_fit(demand)),
    }
}

/// Returns whether the availability is reached, within rounding: two servers of 99 % are 99.99 %, although 1 − 0.01²
/// is not exactly 0.9999 in floating point.
fn is_enough(reached: &Availability, needs: &Requirements) -> bool {
    reached.unavailability <= (1.0 - needs.availability) * (1.0 + 1e-9)
}

fn fits(limits: &[Limit]) -> bool {
    // A load above its limit by a rounding error is within the limit.
    limits.iter().all(|limit| limit.used <= limit.allowed * (1.0 + 1e-12))
}

/// Returns the fewest first-stage servers: 0 for one cluster, otherwise as many as carry the load after one has
/// failed.
fn fewest_first(demand: &Demand<'_>, clusters: u32) -> Option<u32> {
    if clusters == 1 {
        return Some(0);
    }
    fewest(MAX_FIRST, |first| fits(&demand.first_limits(first)))
}

/// Returns the smallest number from 1 to `most` that satisfies `enough`, which must be monotonic.
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

fn plan(demand: &Demand<'_>, shape: Shape, servers_for_load: u32) -> Result<Plan, PlanError> {
    let (needs, profile) = (demand.needs, demand.profile);
    let Shape { first, clusters, members } = shape;
    let mut limits = demand.second_limits(clusters, members);
    if first > 0 {
        limits.extend(demand.first_limits(first));
    }
    limits.sort_by(|a, b| a.carries_subscribers.total_cmp(&b.carries_subscribers));
    let work = demand.work(clusters, members);
    let connections = limits.iter().find(|limit| limit.resource == Resource::Connections);
    Ok(Plan {
        requirements: *needs,
        profile: profile.clone(),
        traffic: demand.traffic,
        first,
        clusters,
        members,
        servers: shape.servers(),
        cores: shape.servers() * profile.server.cores,
        servers_for_load,
        busy_cores: work.total(),
        work,
        memory_bytes: memory_bytes(demand, shape),
        bandwidth_bits_per_s: demand.bandwidth_bits_per_s(clusters, members),
        messages_per_s: demand.messages_per_s(),
        keep_alives_per_s: demand.keep_alives_per_s(clusters, members),
        connections_per_server: connections.map_or(0.0, |limit| limit.required),
        wait_s: queue(demand, clusters, members).map(|queue| queue.wait_s),
        stores: if needs.replication == Replication::Store { clusters * members } else { 0 },
        engine: demand.engine(clusters, members),
        cost_per_month: f64::from(shape.servers()) * profile.server.cost_per_month,
        availability: shape.availability(profile)?,
        failover: failover(times(needs, profile))?,
        avalanche: after_an_outage(demand, first, clusters, members),
        limits,
        sensitivities: Vec::new(),
        caveats: Vec::new(),
        reasons: Vec::new(),
    })
}

/// Returns the memory of all servers in normal operation, bytes.
fn memory_bytes(demand: &Demand<'_>, shape: Shape) -> f64 {
    let memory = &demand.profile.memory;
    f64::from(shape.servers()) * memory.base_bytes
        + demand.total_memory_items(shape.clusters, shape.members).bytes(memory)
}

/// Returns the queue of one core of the busiest member after one of its cluster has failed; each core has its own
/// queue.
pub(super) fn queue(demand: &Demand<'_>, clusters: u32, members: u32) -> Option<Mg1> {
    let rate = demand.packets_per_core(clusters, members);
    let service = match &demand.profile.timing {
        Some(timing) => timing.service_at(rate),
        // Attribute all work to the incoming packets.
        None => {
            let busy = demand.member(clusters, members).work / demand.profile.working_cores();
            ServiceTime::exponential(busy / rate)
        }
    };
    mg1(rate, service.ok()?).ok()
}

/// Converts the requirements to failover times; R = T_F/(T_F + T_M).
fn times(needs: &Requirements, profile: &Profile) -> FailoverTimes {
    let node = profile.server.availability;
    FailoverTimes {
        availability: node,
        client_retry_s: needs.client_retry_s,
        dns_ttl_s: needs.dns_ttl_s,
        repair_s: needs.repair_s,
        failure_s: mean_time_to_failure_s(node, needs.repair_s).min(f64::MAX),
        replication_s: needs.replication_s,
        cache_s: needs.cache_s,
        refresh_s: needs.refresh_s,
    }
}

fn not_available(needs: &Requirements, profile: &Profile, least_missing: f64) -> PlanError {
    let node = brief::all_but(1.0 - profile.server.availability);
    let (asked, best) = (units::all_but(1.0 - needs.availability), units::all_but(least_missing));
    let (reason, remedy) = if needs.availability >= 1.0 {
        (
            format!("servers that are {node} available fail, and no number of them reaches 100 %"),
            "require less than 100 %, such as 99.999 %, or use more available servers",
        )
    } else if needs.members_replace_each_other() {
        (
            format!(
                "with servers that are {node} available, clusters of up to {MAX_MEMBERS} members reach at most {best}, not {asked}"
            ),
            "use more available servers, fewer and larger ones, or require less",
        )
    } else {
        (
            format!(
                "servers that are {node} available and do not share registrations have no spares, so together they are \
                 {best}, not {asked}"
            ),
            "share registrations between members (--replication copies), let phones register with several servers (--failover \
             client), use more available servers, or require less",
        )
    };
    PlanError::NoPlan { need: "availability".into(), reason, remedy: remedy.into() }
}

fn does_not_fit(demand: &Demand<'_>) -> PlanError {
    let limits = demand.second_limits(MAX_CLUSTERS, 1);
    let first = demand.first_limits(MAX_FIRST);
    let fullest = limits.iter().chain(&first).max_by(|a, b| (a.used / a.allowed).total_cmp(&(b.used / b.allowed)));
    PlanError::NoPlan {
        need: "load".into(),
        reason: fullest.map_or_else(String::new, too_full),
        remedy: "use larger servers, raise --utilization, or reduce the load".into(),
    }
}

fn too_full(limit: &Limit) -> String {
    let Limit { stage, resource, used, allowed, .. } = limit;
    let needed = if *used > 2.0 { format!("{} times all", brief::parts(*used)) } else { brief::share(*used) };
    let owner = if *stage == Stage::First { "a server of the first stage" } else { "a member of a cluster" };
    format!(
        "even with {MAX_CLUSTERS} clusters, the load needs {needed} of the {resource} of {owner}, of at most {}",
        brief::share(*allowed)
    )
}
