//! From what is needed, and a measured profile, to servers.

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

/// What to buy, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// What was asked.
    #[serde(rename = "needs")]
    pub requirements: Requirements,
    /// With which server.
    pub profile: Profile,
    /// What the subscribers send.
    pub traffic: Traffic,
    /// S: first-stage servers; 0 where none is needed.
    pub first: u32,
    /// P: clusters of the second stage.
    pub clusters: u32,
    /// B: members of each cluster.
    pub members: u32,
    /// S + P·B.
    pub servers: u32,
    /// Cores of all of them.
    pub cores: u32,
    /// Servers that the load alone needs, were any availability enough.
    pub servers_for_load: u32,
    /// Cores that would work all of the time: the load without head-room, spares and rounding.
    pub busy_cores: f64,
    /// What keeps them busy.
    pub work: Work,
    /// Memory that they need all together, bytes.
    pub memory_bytes: f64,
    /// What crosses the network at the edge of the cluster, bit/s, both directions together.
    pub bandwidth_bits_per_s: f64,
    /// SIP messages, in and out, of the second stage, 1/s.
    pub messages_per_s: f64,
    /// Datagrams that keep the ways through NATs open, 1/s; the bandwidth has them, the messages do not.
    pub keep_alives_per_s: f64,
    /// Connections at the busiest server with one of its group gone.
    pub connections_per_server: f64,
    /// The mean wait of a packet at the busiest member with one of its cluster gone, each core a queue of its own (M/G/1), s.
    /// Where the profile has no parts of the service time, as if that were exponential.
    pub wait_s: Option<f64>,
    /// Stores: one with each member of a cluster that has them.
    pub stores: u32,
    /// What the engine of the busiest cluster carries, where members share registrations through one.
    pub engine: Option<EngineLoad>,
    /// Of all servers, in the profile's currency.
    pub cost_per_month: f64,
    /// Of the whole.
    pub availability: Availability,
    /// What callers notice of a failure.
    pub failover: Failover,
    /// What follows an outage of everything; nothing where calls alone are too much for it.
    #[serde(rename = "storm")]
    pub avalanche: Option<Avalanche>,
    /// What each server has to do, of what it can, with one server of its group gone; what fills up first stands first.
    pub limits: Vec<Limit>,
    /// What each input changes.
    pub sensitivities: Vec<Sensitivity>,
    /// What to know before all else: inputs that are hardly meant.
    pub caveats: Vec<String>,
    /// Why so: sentences.
    pub reasons: Vec<String>,
}

/// What members write to the engine that they share registrations through, and read from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EngineLoad {
    /// REGISTERs whose changes are written, 1/s.
    pub changes_per_s: f64,
    /// To the engine, bit/s.
    pub in_bits_per_s: f64,
    /// From the engine to all other members, bit/s.
    pub out_bits_per_s: f64,
}

/// Cores that are busy with each kind of work: core seconds in a second.
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
    /// Keep-alives. Their cost was not measured: each counts as a forwarded message, which is received and read besides.
    pub keep_alives: f64,
}

impl Work {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.registers + self.calls + self.copies + self.stores + self.first_stage + self.keep_alives
    }
}

/// Every phone registers again, after an outage of the whole service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Avalanche {
    /// How many: one of each contact.
    pub registrations: f64,
    /// What all servers together take of them, beside the calls of the busy hour and with no reserve, 1/s.
    pub registrations_per_s: f64,
    /// So long it takes at least, s.
    pub least_s: f64,
    /// What is full then, of this stage.
    pub stage: Stage,
    /// And this part.
    pub resource: Resource,
}

/// Which part of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Its cores.
    Cpu,
    /// Its memory.
    Memory,
    /// Its network.
    Network,
    /// Its store.
    Store,
    /// The connections that it may have.
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

/// Of which stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Forwards to clusters.
    First,
    /// Serves.
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

/// How full a part is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Limit {
    /// Of which stage.
    pub stage: Stage,
    /// Which part.
    pub resource: Resource,
    /// What is asked of the busiest server when one of its group has failed: a core's time in a second, bytes, bit/s, a store's
    /// time in a second, connections.
    #[serde(rename = "asked")]
    pub required: f64,
    /// What it has of that.
    #[serde(rename = "has")]
    pub available: f64,
    /// The one over the other.
    pub used: f64,
    /// The share that may be used.
    pub allowed: f64,
    /// So many subscribers, of the same habits, fill it with as many servers; infinite where they never do.
    pub carries_subscribers: f64,
}

/// What a change of an input is worth: of a tenth, but for what is counted in nines.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sensitivity {
    /// Which.
    pub input: &'static str,
    /// As it is, with its unit.
    pub value: String,
    /// By how much it is changed, in %: 10, or −10 where there cannot be more; −90 or 900 for a nine.
    pub change_percent: f64,
    /// What that changes of the busy cores, in %, with as many servers.
    pub busy_cores_percent: f64,
    /// What that changes of the use of what limits first, in %, with as many servers.
    pub limit_percent: f64,
    /// How many servers more.
    pub servers: i64,
    /// How much dearer a month.
    pub cost_per_month: f64,
    /// That makes the needs impossible to meet.
    pub impossible: bool,
}

/// The cheapest S, P and B that carry what is needed with one server of a group gone, and are as available as asked.
///
/// # Errors
/// Inputs that cannot be; needs that no plan of up to 4,096 clusters of 8 members meets ([`PlanError::NoPlan`], which says why).
pub fn size(needs: &Requirements, profile: &Profile) -> Result<Plan, PlanError> {
    let mut plan = search::cheapest(needs, profile)?;
    plan.sensitivities = sensitivity::of(needs, profile, &plan);
    plan.caveats = reasons::caveats(&plan);
    plan.reasons = reasons::of(&plan, &Demand::of(needs, profile)?);
    Ok(plan)
}
