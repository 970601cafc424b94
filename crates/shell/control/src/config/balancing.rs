//! `[[balancer]]`: a named set of targets and the policy that spreads calls over them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strowger_balancer::{FAILOVER_TIMEOUT, MethodClass, MethodWeights, Weights};

use super::Span;
use super::error::nearest;
use super::values::{StatusRange, TargetSource};

/// `[[balancer]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Balancer {
    /// Name used by routes and commands.
    pub name: String,
    /// Policy that chooses a target for a new call: hash (of the key; adding or removing a target moves only its own
    /// share), fnv, bernstein, sha1, openser (hash of the key modulo the number of targets), range (first letter of
    /// the key), round-robin, weighted, random, least-calls, least-transactions, least-work (transactions weighted by
    /// the cost of their method), response-time or priority (the first in order of priority).
    pub policy: Policy,
    /// Key of hash policies: call-id, from, to, user (of the Request-URI), aor (address of record: To in a REGISTER,
    /// otherwise the Request-URI) or source. Default: call-id; user for range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Cost of a transaction under least-work. "1.75" or "2" (an INVITE; every other method costs 1), "adaptive"
    /// (measured), or a table by method such as { INVITE = 1.75, BYE = 1 }. Default: "1.75".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_cost: Option<TransactionCost>,
    /// Candidates of load policies: all targets, or the two that the Call-ID selects. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Candidates>,
    /// Targets of calls: SIP URIs, tables with uri, weight, priority and capacity, "set:NAME" (gateways in the
    /// database), "list:FILE#SETID" (a dispatcher list), "srv:DOMAIN" (servers of the SRV records) or "dns:HOST:PORT"
    /// (every address of a host).
    pub targets: Vec<TargetSource>,
    /// Health probes by OPTIONS: true, false, or a table with interval, timeout, down, up and accept.
    pub probe: Probing,
    /// Time in which a recovered target ramps up to its full share.
    pub slow_start: Span,
    /// Time to wait for a silent target before trying the next one.
    pub failover_timeout: Span,
    /// Whether targets that fail their probes are tried if no other target is left.
    #[serde(skip)]
    pub tries_down: bool,
}

impl Default for Balancer {
    fn default() -> Self {
        Self {
            name: String::new(),
            policy: Policy::Hash,
            key: None,
            transaction_cost: None,
            candidates: None,
            targets: Vec::new(),
            probe: Probing(None),
            slow_start: Span::from_secs(30),
            failover_timeout: Span(FAILOVER_TIMEOUT),
            tries_down: false,
        }
    }
}

impl Balancer {
    /// Returns the key of hash policies.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key.unwrap_or(if self.policy == Policy::Range { Key::User } else { Key::CallId })
    }

    /// Returns the cost of transactions under least-work.
    #[must_use]
    pub fn transaction_cost(&self) -> TransactionCost {
        self.transaction_cost.clone().unwrap_or(TransactionCost::Invite175)
    }
}

/// `balancer.policy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Balancer::policy` says what they mean")]
pub enum Policy {
    Hash,
    Fnv,
    Bernstein,
    Sha1,
    Openser,
    Range,
    RoundRobin,
    Weighted,
    Random,
    LeastCalls,
    LeastTransactions,
    LeastWork,
    ResponseTime,
    Priority,
}

impl Policy {
    /// Returns the name as written in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        strowger_balancer::Policy::from(self).as_str()
    }

    /// Whether the policy uses a key of the request.
    #[must_use]
    pub fn is_by_key(self) -> bool {
        strowger_balancer::Policy::from(self).is_by_key()
    }

    /// Whether the policy uses weights.
    #[must_use]
    pub fn heeds_weight(self) -> bool {
        strowger_balancer::Policy::from(self).uses_weights()
    }

    /// Whether the policy uses the targets' current load.
    #[must_use]
    pub fn is_by_load(self) -> bool {
        strowger_balancer::Policy::from(self).is_by_load()
    }

    /// Whether a retransmitted request may reach another target unless the first choice is stored.
    #[must_use]
    pub fn needs_state(self) -> bool {
        self.is_by_load() || matches!(self, Self::RoundRobin | Self::Weighted)
    }
}

impl From<Policy> for strowger_balancer::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Hash => Self::Hash,
            Policy::Fnv => Self::Fnv,
            Policy::Bernstein => Self::Bernstein,
            Policy::Sha1 => Self::Sha1,
            Policy::Openser => Self::Openser,
            Policy::Range => Self::Range,
            Policy::RoundRobin => Self::RoundRobin,
            Policy::Weighted => Self::Weighted,
            Policy::Random => Self::Random,
            Policy::LeastCalls => Self::LeastCalls,
            Policy::LeastTransactions => Self::LeastTransactions,
            Policy::LeastWork => Self::LeastWork,
            Policy::ResponseTime => Self::ResponseTime,
            Policy::Priority => Self::Priority,
        }
    }
}

/// `balancer.key`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Balancer::key` says what they mean")]
pub enum Key {
    CallId,
    From,
    To,
    User,
    Aor,
    Source,
}

impl From<Key> for strowger_balancer::Key {
    fn from(key: Key) -> Self {
        match key {
            Key::CallId => Self::CallId,
            Key::From => Self::From,
            Key::To => Self::To,
            Key::User => Self::User,
            Key::Aor => Self::Aor,
            Key::Source => Self::Source,
        }
    }
}

/// `balancer.candidates`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Balancer::candidates` says what they mean")]
pub enum Candidates {
    #[default]
    All,
    Two,
}

impl From<Candidates> for strowger_balancer::Candidates {
    fn from(candidates: Candidates) -> Self {
        match candidates {
            Candidates::All => Self::All,
            Candidates::Two => Self::Two,
        }
    }
}

/// `balancer.transaction_cost`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionCost {
    /// An INVITE costs 1.75, every other method 1.
    Invite175,
    /// An INVITE costs 2, every other method 1.
    Invite2,
    /// Measured costs.
    Adaptive,
    /// Costs by method, in thousandths; every other method costs 1.
    Table(BTreeMap<MethodClass, u16>),
}

/// Maximum cost of a transaction.
const MAX_COST: f64 = 65.0;

impl TransactionCost {
    /// Converts the setting for the balancer.
    #[must_use]
    pub fn weights(&self) -> Weights {
        match self {
            Self::Invite175 => Weights::Fixed(MethodWeights::TLWL_1_75),
            Self::Invite2 => Weights::Fixed(MethodWeights::TLWL_2),
            Self::Adaptive => Weights::Adaptive,
            Self::Table(costs) => {
                let add = |weights: MethodWeights, (method, cost): (&MethodClass, &u16)| weights.with(*method, *cost);
                Weights::Fixed(costs.iter().fold(MethodWeights::EVEN, add))
            }
        }
    }
}

impl FromStr for TransactionCost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1.75" => Ok(Self::Invite175),
            "2" => Ok(Self::Invite2),
            "adaptive" => Ok(Self::Adaptive),
            _ => Err(format!(
                "{text:?} is not a transaction cost; write \"1.75\", \"2\", \"adaptive\", or a table of methods, such as \
                 {{ INVITE = 1.75, BYE = 1 }}"
            )),
        }
    }
}

impl fmt::Display for TransactionCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invite175 => f.write_str("1.75"),
            Self::Invite2 => f.write_str("2"),
            Self::Adaptive => f.write_str("adaptive"),
            Self::Table(costs) => {
                let shown = costs.iter().map(|(method, cost)| format!("{} {}", method.as_str(), units(*cost)));
                f.write_str(&shown.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Converts thousandths to a number.
fn units(thousandths: u16) -> f64 {
    f64::from(thousandths) / 1000.0
}

impl Serialize for TransactionCost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self::Table(costs) = self else { return serializer.collect_str(self) };
        let mut map = serializer.serialize_map(Some(costs.len()))?;
        costs.iter().try_for_each(|(method, cost)| map.serialize_entry(method.as_str(), &units(*cost)))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for TransactionCost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = TransactionCost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"1.75\", \"2\" or \"adaptive\" in quotes, or a table of methods, such as { INVITE = 1.75, BYE = 1 }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TransactionCost, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TransactionCost, A::Error> {
                let mut costs = BTreeMap::new();
                while let Some(method) = map.next_key::<String>()? {
                    let known = MethodClass::ALL.into_iter().find(|known| method.eq_ignore_ascii_case(known.as_str()));
                    let Some(known) = known else { return Err(de::Error::custom(unknown_method(&method))) };
                    let Cost(thousandths) = map.next_value()?;
                    costs.insert(known, thousandths);
                }
                Ok(TransactionCost::Table(costs))
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

fn unknown_method(method: &str) -> String {
    let remedy = match nearest(method, &MethodClass::ALL.map(MethodClass::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "write a method such as INVITE or BYE, or \"*\" for all others".to_owned(),
    };
    format!("{method:?} is not a method with a transaction cost; {remedy}")
}

/// A cost in thousandths, written as a number.
struct Cost(u16);

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let cost = f64::deserialize(deserializer)?;
        if !(0.001..=MAX_COST).contains(&cost) {
            return Err(de::Error::custom(format!(
                "{cost} is not from 0.001 to {MAX_COST}; choose a value in this range"
            )));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in that range")]
        Ok(Self((cost * 1000.0).round() as u16))
    }
}

impl JsonSchema for TransactionCost {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TransactionCost".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "enum": ["1.75", "2", "adaptive"] },
                {
                    "type": "object",
                    "propertyNames": { "enum": MethodClass::ALL.map(MethodClass::as_str) },
                    "additionalProperties": { "type": "number", "minimum": 0.001, "maximum": MAX_COST },
                },
            ]
        })
    }
}

/// `balancer.probe`: probe settings, or `None` if targets are not probed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probing(pub Option<Probe>);

/// `balancer.probe` as a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// Interval between probes of a target.
    pub interval: Span,
    /// Time to wait for a response.
    pub timeout: Span,
    /// Consecutive failures (bad responses or none) that take a target out of service.
    #[schemars(range(min = 1, max = 255))]
    pub down: u8,
    /// Consecutive good responses that bring it back.
    #[schemars(range(min = 1, max = 255))]
    pub up: u8,
    /// Good responses: statuses, classes or ranges.
    pub accept: Vec<StatusRange>,
}

impl Default for Probe {
    /// Any response shows that a target is alive, except 500 and 502 to 599, which say that it serves nobody.
    fn default() -> Self {
        let accept = [(200, 499), (501, 501), (600, 699)];
        let accept = accept.map(|(first, last)| StatusRange(strowger_balancer::StatusRange { first, last })).into();
        Self { interval: Span::from_secs(5), timeout: Span::from_secs(1), down: 2, up: 2, accept }
    }
}

impl Probe {
    /// Converts the setting for the balancer.
    #[must_use]
    pub fn to_balancer(&self) -> strowger_balancer::Probe {
        let Self { interval, timeout, down, up, accept } = self;
        let accept = accept.iter().map(|range| range.0).collect();
        strowger_balancer::Probe { interval: interval.0, timeout: timeout.0, down: *down, up: *up, accept }
    }
}

impl Serialize for Probing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            None => serializer.serialize_bool(false),
            Some(probe) => probe.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Probing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SwitchOrTable;
        impl<'de> Visitor<'de> for SwitchOrTable {
            type Value = Probing;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a table, as { interval = \"5s\", timeout = \"1s\", down = 2, up = 2 }")
            }

            fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<Probing, E> {
                Ok(Probing(is_on.then(Probe::default)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Probing, A::Error> {
                Probe::deserialize(MapAccessDeserializer::new(map)).map(|probe| Probing(Some(probe)))
            }
        }
        deserializer.deserialize_any(SwitchOrTable)
    }
}

impl JsonSchema for Probing {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Probing".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<Probe>();
        json_schema!({ "anyOf": [{ "type": "boolean" }, table] })
    }
}
