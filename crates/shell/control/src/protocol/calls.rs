//! Calls in progress, and times of call setup.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A list of calls in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Calls {
    /// Calls, the oldest first, up to the limit.
    pub calls: Vec<Call>,
    /// Whether there are more.
    pub more: bool,
}

/// A call in progress. Texts come from peers, with control characters escaped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Call {
    /// `trying`, `ringing`, `challenged` or `answered`.
    pub state: String,
    /// Seconds since its INVITE arrived.
    pub age_s: f64,
    /// Seconds since it was answered.
    pub answered_s: Option<f64>,
    /// URI of From.
    pub caller: String,
    /// Request-URI as sent by the caller.
    pub callee: String,
    /// Call-ID.
    pub call_id: String,
    /// Transport of the INVITE.
    pub transport: String,
    /// Source address of the INVITE.
    #[schema(value_type = String)]
    pub source: SocketAddr,
    /// Address that the answer came from.
    #[schema(value_type = Option<String>)]
    pub target: Option<SocketAddr>,
    /// Transport of the answer; none before it, and from a server that does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_transport: Option<String>,
}

/// Times from an INVITE to what became of it. A call that was challenged has begun with its first INVITE.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallSetup {
    /// To the first provisional response other than 100.
    pub ringing: SetupTimes,
    /// To the first 2xx.
    pub answered: SetupTimes,
    /// To a final response other than a 2xx.
    pub rejected: SetupTimes,
    /// To the final response after the caller's CANCEL.
    pub cancelled: SetupTimes,
}

/// Counts of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetupTimes {
    /// Number of times below 1, 2, 4, … 131,072 ms, each without the shorter ones, and last the number of all others.
    pub counts: Vec<u64>,
    /// Sum of the times, in seconds.
    pub sum_s: f64,
}

/// Times of the calls to a trunk or to a balancer's target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DestinationSetup {
    /// Name of the trunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// The balancer, or the cluster that the target is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// URI of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The times of call setup.
    pub setup: CallSetup,
    /// Times from an INVITE sent there until its first response, 100 included.
    #[serde(default)]
    pub response: SetupTimes,
}
