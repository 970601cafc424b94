//! What the API exchanges besides the types of the control socket. The commands print the same with `--json`.

use serde::{Deserialize, Deserializer, Serialize};
use strowger_control::protocol::{Balancer, Outage};
use utoipa::{IntoParams, ToSchema};

use crate::tokens::Role;

/// Who is asking, and whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Session {
    /// The token's name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Version of the server.
    pub server: String,
    /// Domains that the server is responsible for; a user without a domain is in the first.
    pub domains: Vec<String>,
    /// Whether the server passes requests to clusters.
    #[serde(default)]
    pub has_clusters: bool,
}

/// A page of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Users {
    /// The users, ordered by address.
    pub users: Vec<User>,
    /// Whether there are more; ask for them with `after`.
    #[serde(default)]
    pub more: bool,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    /// The address of record.
    #[schema(example = "alice@example.com")]
    pub aor: String,
    /// Realm of the password.
    pub realm: String,
    /// Digest algorithms for which the password is known.
    pub algorithms: Vec<String>,
    /// Whether the user may register and call.
    pub enabled: bool,
    /// When it was added, in seconds since 1970.
    pub created_s: i64,
    /// Further addresses of the user.
    pub aliases: Vec<String>,
    /// What keeps the user from registering, apart from `enabled`; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        example = "example.org is not in server.domains, so the server does not serve dora@example.org"
    )]
    pub note: Option<String>,
}

/// Which users to list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UserPage {
    /// Only users whose address, or one of whose aliases, contains this text.
    pub search: Option<String>,
    /// Maximum number of users.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: usize,
    /// Only users whose address sorts after this one: the last of the page before.
    pub after: Option<String>,
}

impl UserPage {
    /// Maximum number of users in one answer.
    pub const MAX_LIMIT: usize = 1_000;
}

impl Default for UserPage {
    fn default() -> Self {
        Self { search: None, limit: 100, after: None }
    }
}

/// A user to add.
#[derive(Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The address of record; without a domain, in the server's first one.
    #[schema(example = "alice")]
    pub aor: String,
    /// The password. Only hashes of it are stored.
    #[schema(format = Password)]
    pub password: String,
}

impl std::fmt::Debug for NewUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewUser").field("aor", &self.aor).finish_non_exhaustive()
    }
}

/// What to change of a user; what is missing stays.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UserChange {
    /// Whether the user may register and call.
    #[schema(nullable = false)]
    pub enabled: Option<bool>,
    /// A new password.
    #[schema(format = Password, nullable = false)]
    pub password: Option<String>,
}

impl std::fmt::Debug for UserChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserChange").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

/// An alias of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alias {
    /// The further address.
    pub alias: String,
    /// The user's address of record.
    pub aor: String,
}

/// A list of gateways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gateways {
    /// Gateways, by set.
    pub gateways: Vec<Gateway>,
}

/// A gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gateway {
    /// Its set, which routes and balancers name.
    pub set: String,
    /// Its SIP URI.
    pub uri: String,
    /// Priority; lower ones are tried first.
    pub priority: u16,
    /// Weight among gateways of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls; none for no limit.
    pub capacity: Option<u32>,
    /// Whether it takes calls.
    pub enabled: bool,
    /// A note for operators.
    pub note: String,
    /// When it was added, in seconds since 1970.
    pub created_s: i64,
    /// Why the server finds that it does not answer; none if it answers, or if no server runs.
    pub outage: Option<Outage>,
}

/// A gateway to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGateway {
    /// The set; the first gateway creates it.
    #[schema(example = "pstn")]
    pub set: String,
    /// The gateway's SIP URI.
    #[schema(example = "sip:192.0.2.1:5060")]
    pub uri: String,
    /// Priority; lower ones are tried first.
    #[serde(default)]
    pub priority: u16,
    /// Weight among gateways of the same priority.
    #[serde(default = "one")]
    #[schema(default = 1)]
    pub weight: u16,
    /// Maximum number of simultaneous calls; none for no limit.
    #[serde(default)]
    pub capacity: Option<u32>,
    /// A note for operators.
    #[serde(default)]
    pub note: String,
}

const fn one() -> u16 {
    1
}

/// What to change of a gateway; what is missing stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayChange {
    /// Priority; lower ones are tried first.
    #[schema(nullable = false)]
    pub priority: Option<u16>,
    /// Weight among gateways of the same priority.
    #[schema(nullable = false)]
    pub weight: Option<u16>,
    /// Maximum number of simultaneous calls; null for no limit.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub capacity: Option<Option<u32>>,
    /// A note for operators.
    #[schema(nullable = false)]
    pub note: Option<String>,
    /// Whether it takes calls.
    #[schema(nullable = false)]
    pub enabled: Option<bool>,
}

/// Tells a null from a missing value.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Balancers {
    /// Balancers, in configuration order.
    pub balancers: Vec<Balancer>,
}

/// What an operation did, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Outcome {
    /// The words.
    pub result: String,
}

/// The configuration that the server runs with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApiConfiguration {
    /// The file that it was read from; none if every key has its default.
    pub file: Option<String>,
    /// Every key with its value; passwords are left out.
    #[schema(value_type = Object)]
    pub configuration: serde_json::Value,
}
