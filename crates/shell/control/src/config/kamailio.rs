//! `[kamailio]`: database of another server, followed read-only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{DatabaseUrl, Domain, Target};

/// `[kamailio]`: database of a Kamailio or OpenSIPS server, which is followed unchanged and only read. Without this
/// section, none is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kamailio {
    /// The database: mysql:// or postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or sqlite:PATH.
    pub database: DatabaseUrl,
    /// Owner of the database: kamailio or opensips.
    #[serde(default)]
    pub flavor: Flavor,
    /// Data to follow: users (table subscriber) and gateways (table dispatcher).
    #[serde(default = "all")]
    pub follow: Vec<FollowedTable>,
    /// Address where that server takes requests, such as sip:192.0.2.1:5060. Requests for users not registered here
    /// go there. Default: they are answered 480.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Target>,
    /// Domain of rows without one. Default: the first of server.domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// Prefix of a dispatcher set's number in its name, as in set:dispatcher-1.
    #[serde(default = "default_prefix")]
    pub set_prefix: String,
    /// Whether tables of unknown versions are read.
    #[serde(default)]
    pub any_version: bool,
}

/// `kamailio.flavor`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Kamailio::flavor` says what they mean")]
pub enum Flavor {
    #[default]
    Kamailio,
    Opensips,
}

/// `kamailio.follow`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Kamailio::follow` says what they mean")]
pub enum FollowedTable {
    Users,
    Gateways,
}

fn all() -> Vec<FollowedTable> {
    vec![FollowedTable::Users, FollowedTable::Gateways]
}

fn default_prefix() -> String {
    "dispatcher-".to_owned()
}
