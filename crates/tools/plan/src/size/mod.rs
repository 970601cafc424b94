//! Sizing: from requirements and a measured profile to a number of servers.

mod avalanche;
mod demand;
mod explain;
mod profile;
mod profiles;
mod reasons;
mod requirements;
mod search;
mod sensitivity;

use std::fmt;

use serde::Serialize;

pub use profile::{Costs, Engine, Memory, Messages, Profile, Server, Store};
pub use requirements::{DEFAULT_CONNECTIONS, FailoverMethod, MOST_CONNECTIONS, Replication, Requirements};

use demand::Demand;

use crate::availability::Availability;
use crate::error::PlanError;
use crate::failover::Failover;
use crate::traffic::Traffic;

/// Number of servers, and the reasons for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Requirements.
    #[serde(rename = "needs")]
    pub requirements: Requirements,
    /// Profile of a server.
    pub profile: Profile,
    /// Traffic of the subscribers.
    pub traffic: Traffic,
    /// S: first-stage servers; 0 if none is needed.
    pub first: u32,
    /// P: clusters of the second stage.
    pub clusters: u32,
    /// B: members of each cluster.
    pub members: u32,
    /// S + P·B: number of servers.
    pub servers: u32,
    /// Cores of all servers.
    pub cores: u32,
    /// Servers needed for the load alone, without an availability requirement.
    pub servers_for_load: u32,
    /// Number of cores at full utilization: the load without headroom, spares and rounding.
    pub busy_cores: f64,
    /// Work of these cores by kind.
    pub work: Work,
    /// Memory needed by all servers, bytes.
    pub memory_bytes: f64,
    /// Network traffic at the edge of the cluster, both directions together, bit/s.
    pub bandwidth_bits_per_s: f64,
    /// SIP messages of the second stage, in and out, 1/s.
    pub messages_per_s: f64,
    /// Datagrams that keep NAT bindings open, 1/s; included in the bandwidth but not in the messages.
    pub keep_alives_per_s: f64,
    /// Connections at the busiest server after one of its group has failed.
    pub connections_per_server: f64,
    /// Mean wait of a packet at the busiest member after one of its cluster has failed, s.
    ///
    /// Each core is a queue of its own (M/G/1). If the profile has no parts of the service time, it counts as
    /// exponential.
    pub wait_s: Option<f64>,
    /// Number of stores: one per member if members have stores.
    pub stores: u32,
    /// Load on the engine of the busiest cluster, if members share registrations through an engine.
    pub engine: Option<EngineLoad>,
    /// Cost of all servers per month, in the profile's currency.
    pub cost_per_month: f64,
    /// Availability of the whole service.
    pub availability: Availability,
    /// Effect of a failure on callers.
    pub failover: Failover,
    /// Registration avalanche after an outage of the whole service; `None` if calls alone overload it.
    #[serde(rename = "storm")]
    pub avalanche: Option<Avalanche>,
    /// Utilization of each resource after one server of its group has failed, most critical first.
    pub limits: Vec<Limit>,
    /// Effect of a change of each input.
    pub sensitivities: Vec<Sensitivity>,
    /// Warnings about inputs that are probably mistakes.
    pub caveats: Vec<String>,
    /// Reasons for the plan, as sentences.
    pub reasons: Vec<String>,
}

/// Traffic between the members and the engine through which they share registrations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EngineLoad {
    /// REGISTERs whose changes are written, 1/s.
    pub changes_per_s: f64,
    /// Traffic to the engine, bit/s.
    pub in_bits_per_s: f64,
    /// Traffic from the engine to all other members, bit/s.
    pub out_bits_per_s: f64,
}

/// Cores busy with each kind of work: core seconds per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Work {
    /// REGISTERs.
    pub registers: f64,
    /// Calls.
    pub calls: f64,
    /// Registrations that members pass on to each other.
    pub copies: f64,
    /// Databases of members.
    pub stores: f64,
    /// Forwarding in the first stage.
    pub first_stage: f64,
    /// Keep-alives. Their cost was not measured; each counts as a forwarded message, although it is neither received
    /// nor parsed.
    pub keep_alives: f64,
}

impl Work {
    /// Returns the total.
    pub fn total(&self) -> f64 {
        self.registers + self.calls + self.copies + self.stores + self.first_stage + self.keep_alives
    }
}

/// Registration of every phone at once after an outage of the whole service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Avalanche {
    /// Number of registrations: one per contact.
    pub registrations: f64,
    /// Registrations that all servers together can take besides the calls of the busy hour, without headroom, 1/s.
    pub registrations_per_s: f64,
    /// Shortest duration of the avalanche, s.
    pub least_s: f64,
    /// Stage of the bottleneck.
    pub stage: Stage,
    /// Resource of the bottleneck.
    pub resource: Resource,
}

/// Resource of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Cores.
    Cpu,
    /// Memory.
    Memory,
    /// Network.
    Network,
    /// Store.
    Store,
    /// Connections.
    Connections,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cores",
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Store => "store",
            Self::Connections => "connections",
        })
    }
}

/// Stage of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// First stage: forwards to clusters.
    First,
    /// Second stage: serves users.
    Second,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first stage",
            Self::Second => "second stage",
        })
    }
}

/// Utilization of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Limit {
    /// Stage of the server.
    pub stage: Stage,
    /// Resource.
    pub resource: Resource,
    /// Load on the busiest server after one of its group has failed: core time per second, bytes, bit/s, store time
    /// per second, or connections.
    #[serde(rename = "asked")]
    pub required: f64,
    /// Capacity of the resource, in the same unit.
    #[serde(rename = "has")]
    pub available: f64,
    /// `required` divided by `available`.
    pub used: f64,
    /// Highest allowed utilization.
    pub allowed: f64,
    /// Number of subscribers with the same behavior that these servers can carry; infinite if the resource is unused.
    pub carries_subscribers: f64,
}

/// Effect of changing an input by a tenth, or an availability by a nine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sensitivity {
    /// Name of the input.
    pub input: &'static str,
    /// Current value with its unit.
    pub value: String,
    /// Change of the input, in %: 10, or −10 if the input cannot grow; −90 or 900 for a nine.
    pub change_percent: f64,
    /// Change of the busy cores with the same servers, in %.
    pub busy_cores_percent: f64,
    /// Change of the utilization of the first bottleneck with the same servers, in %.
    pub limit_percent: f64,
    /// Change of the number of servers.
    pub servers: i64,
    /// Change of the monthly cost.
    pub cost_per_month: f64,
    /// Whether the change makes the requirements unreachable.
    pub impossible: bool,
}

/// Returns the cheapest S, P and B that carry the load after one server of a group has failed, and reach the
/// availability.
///
/// # Errors
/// Invalid inputs; requirements that no plan of up to 4,096 clusters of 8 members meets ([`PlanError::NoPlan`], with
/// the reason).
pub fn size(needs: &Requirements, profile: &Profile) -> Result<Plan, PlanError> {
    let mut plan = search::cheapest(needs, profile)?;
    plan.sensitivities = sensitivity::of(needs, profile, &plan);
    plan.caveats = reasons::caveats(&plan);
    plan.reasons = reasons::of(&plan, &Demand::of(needs, profile)?);
    Ok(plan)
}
