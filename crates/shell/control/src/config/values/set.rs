//! Targets of a route: SIP URIs and names of gateway sets.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strowger_store::MAX_SET_NAME_LEN;

use super::prefix::{LIST, SERVICE};
use super::{Destination, Target};
use crate::config::values::prefix::SET;

/// A target, or all gateways of a set, with their own priorities and weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetOrSet {
    /// A SIP URI.
    Target(Destination),
    /// Enabled gateways of a set.
    Set(SetName),
}

/// Name of a gateway set in the database, written as `set:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetName(pub String);

impl FromStr for TargetOrSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(SET) { text.parse().map(Self::Set) } else { text.parse().map(Self::Target) }
    }
}

impl FromStr for SetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix(SET).unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > MAX_SET_NAME_LEN || !name.bytes().all(fits) {
            return Err(format!(
                "{text:?} has no valid set name; write set: and a name of letters, digits, -, _ and ., such as set:pstn"
            ));
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SET}{}", self.0)
    }
}

impl fmt::Display for TargetOrSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(target) => target.fmt(f),
            Self::Set(name) => name.fmt(f),
        }
    }
}

impl Serialize for TargetOrSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Target(target) => target.serialize(serializer),
            Self::Set(name) => serializer.collect_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for TargetOrSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = TargetOrSet;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a SIP URI in quotes, such as \"sip:192.0.2.1:5060\", a set, such as \"set:pstn\", or a table with uri, priority \
                     and weight",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TargetOrSet, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TargetOrSet, A::Error> {
                Destination::deserialize(MapAccessDeserializer::new(map)).map(TargetOrSet::Target)
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

impl JsonSchema for TargetOrSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TargetOrSet".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Destination::json_schema(generator)
    }
}

impl Target {
    /// Returns an error if a set is given where only a target is allowed.
    pub(super) fn refuse_set(text: &str) -> Result<(), String> {
        if text.starts_with(SET) {
            return Err(format!(
                "{text:?}: a set stands alone among a route's targets, such as targets = [\"set:pstn\"]"
            ));
        }
        if [LIST, SERVICE].iter().any(|prefix| text.starts_with(prefix)) {
            return Err(format!(
                "{text:?} stands alone among the targets of a [[balancer]], which a route names with balance = \"NAME\""
            ));
        }
        Ok(())
    }
}
