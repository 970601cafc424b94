//! Registered contacts.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A list of registrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Registrations {
    /// Contacts, up to the limit.
    pub registrations: Vec<Registration>,
    /// Whether there are more.
    pub more: bool,
}

/// A registered contact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Registration {
    /// The address of record.
    pub aor: String,
    /// Contact URI as sent by the peer, with control characters escaped.
    pub contact: String,
    /// Seconds until it expires.
    pub expires_s: u64,
    /// Address that its REGISTER came from: on a connection that is open, the connection's far end.
    #[schema(value_type = String)]
    pub source: SocketAddr,
    /// Transport of its REGISTER; empty from a server that does not report it.
    #[serde(default)]
    pub transport: String,
    /// Preference, from 0 to 1.
    pub q: f64,
    /// Member that received its last REGISTER, if members share registrations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u16>,
}
