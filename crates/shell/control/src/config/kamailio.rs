//! `[kamailio]`: the database of another server, which is followed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{DatabaseUrl, Domain, Target};

/// `[kamailio]`: the database of a Kamailio or OpenSIPS that is followed as it is, and only read. Without it there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kamailio {
    /// The database: mysql:// or postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or sqlite:PATH.
    pub database: DatabaseUrl,
    /// Whose it is: kamailio or opensips.
    #[serde(default)]
    pub flavor: Flavor,
    /// What is followed: users (the table subscriber) and gateways (the table dispatcher).
    #[serde(default = "all")]
    pub follow: Vec<FollowedTable>,
    /// Where that server takes requests, as sip:192.0.2.1:5060: those go there for users who are not registered here. Not given: they are
    /// answered 480.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Target>,
    /// The domain of rows that have none. Not given: the first of server.domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// What stands before the number of a dispatcher set in its name, as in set:dispatcher-1.
    #[serde(default = "default_prefix")]
    pub set_prefix: String,
    /// Whether tables of other versions are read than those that are known.
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
