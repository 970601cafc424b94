//! `[ban]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_auth::Network;
use strowger_ban::BanPolicy;

use super::values::Source;
use super::{Config, Span};

/// Beginnings of the User-Agent of well-known scanners.
const SCANNERS: [&str; 9] = [
    "friendly-scanner",
    "friendly-request",
    "sipvicious",
    "sipcli",
    "sip-scan",
    "sipscan",
    "sundayddr",
    "iWar",
    "pplsip",
];

/// `[ban]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ban {
    /// Whether addresses are banned after failed authentications. Never banned are addresses that have authenticated
    /// within the last two hours, have a registration, or belong to trunks, targets, members, balancers or
    /// auth.trusted. If off, only `strowger ctl ban add` bans.
    pub automatic: bool,
    /// Number of failures after which an address is banned.
    #[schemars(range(min = 1, max = 1000))]
    pub failures: u32,
    /// Time within which they must happen.
    pub within: Span,
    /// Duration of an address's first ban. Each further one is twice as long.
    pub duration: Span,
    /// Maximum duration of a ban, and time until an address's earlier bans are forgotten.
    pub max_duration: Span,
    /// Addresses and networks that are never banned automatically.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Source>,
    /// Beginnings of the User-Agent of scanners, in any case. Each of their requests that is not served counts as a
    /// failure, unless it came over UDP, where the address may be forged.
    pub scanners: Vec<String>,
}

impl Default for Ban {
    fn default() -> Self {
        let BanPolicy { is_automatic, failures, period, duration, max_duration } = BanPolicy::default();
        Self {
            automatic: is_automatic,
            failures,
            within: Span(period),
            duration: Span(duration),
            max_duration: Span(max_duration),
            allow: Vec::new(),
            scanners: SCANNERS.map(str::to_owned).to_vec(),
        }
    }
}

impl Config {
    /// Returns when sources are banned.
    #[must_use]
    pub fn ban_policy(&self) -> BanPolicy {
        let Ban { automatic, failures, within, duration, max_duration, .. } = &self.ban;
        BanPolicy {
            is_automatic: *automatic,
            failures: *failures,
            period: within.0,
            duration: duration.0,
            max_duration: max_duration.0,
        }
    }

    /// Returns the networks that are never banned automatically: those of `ban.allow`, and balancers in front.
    #[must_use]
    pub fn never_banned(&self) -> Vec<Network> {
        self.ban.allow.iter().chain(&self.tcp.proxy_protocol_from).map(|source| source.0).collect()
    }
}
