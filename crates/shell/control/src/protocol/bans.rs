//! Banned addresses.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An address to ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBan {
    /// The address; of IPv6, its /64 is banned.
    #[schema(value_type = String, example = "192.0.2.7")]
    pub address: IpAddr,
    /// Duration in seconds; without it, until the ban is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
}

/// Banned addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bans {
    /// The bans, the most recent first.
    pub bans: Vec<Ban>,
    /// Whether there are more than the limit.
    pub more: bool,
}

/// A banned address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Ban {
    /// An IPv4 address, or a /64 of IPv6, such as `2001:db8::/64`.
    pub address: String,
    /// Why: `failures` or `operator`.
    pub cause: String,
    /// Seconds since it began.
    pub since_s: f64,
    /// Seconds until it ends; none if it lasts until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_s: Option<f64>,
    /// Number of the address's automatic bans so far.
    #[serde(default)]
    pub number: u32,
}
