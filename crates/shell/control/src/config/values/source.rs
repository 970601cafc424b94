//! Sources of a balancer's targets: the configuration, the database, a dispatcher list or DNS.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strowger_foundation::Transport;
use strowger_locate::LocateQuery;
use strowger_message::Host;

use super::prefix::{HOST, SET};
use super::{SetName, Target};
use crate::config::values::host::HostName;
use crate::config::values::prefix::{LIST, SERVICE};

/// An entry in a balancer's list of targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSource {
    /// A target in the configuration.
    Target(WeightedTarget),
    /// Gateways of a set in the database.
    Set(SetName),
    /// Destinations of a set in a dispatcher list file.
    List(ListName),
    /// Servers named by SRV records.
    Service(ServiceName),
    /// Every address of a host.
    Host(HostName),
}

impl TargetSource {
    /// Returns the DNS name to query; `None` for sources outside DNS.
    #[must_use]
    pub fn dns_name(&self) -> Option<DnsName> {
        match self {
            Self::Service(name) => Some(DnsName::Service(name.clone())),
            Self::Host(name) => Some(DnsName::Host(name.clone())),
            Self::Target(_) | Self::Set(_) | Self::List(_) => None,
        }
    }
}

impl FromStr for TargetSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            _ if text.starts_with(SET) => text.parse().map(Self::Set),
            _ if text.starts_with(LIST) => text.parse().map(Self::List),
            _ if text.starts_with(SERVICE) => text.parse().map(Self::Service),
            _ if text.starts_with(HOST) => text.parse().map(Self::Host),
            _ => text.parse().map(WeightedTarget::of).map(Self::Target),
        }
    }
}

impl fmt::Display for TargetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(share) => share.target.fmt(f),
            Self::Set(name) => name.fmt(f),
            Self::List(name) => name.fmt(f),
            Self::Service(name) => name.fmt(f),
            Self::Host(name) => name.fmt(f),
        }
    }
}

/// A target with its priority, weight and capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedTarget {
    /// The target.
    pub target: Target,
    /// Priority; targets with a higher number are spares for lower ones.
    pub priority: u16,
    /// Weight among targets of the same priority.
    pub weight: u16,
    /// Maximum number of simultaneous calls; none for no limit.
    pub capacity: Option<u32>,
}

impl WeightedTarget {
    /// Creates a target with default priority and weight.
    #[must_use]
    pub const fn of(target: Target) -> Self {
        Self { target, priority: 0, weight: 1, capacity: None }
    }
}

/// Table form of a target.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BalancerTarget")]
struct Table {
    /// A SIP URI.
    uri: Target,
    /// Priority; targets with a higher number are spares for lower ones.
    #[serde(default)]
    priority: u16,
    /// Weight among targets of the same priority.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 1, max = 65535))]
    weight: u16,
    /// Maximum number of simultaneous calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    capacity: Option<u32>,
}

const fn default_weight() -> u16 {
    1
}

/// A set in a Kamailio dispatcher list file, written as `list:FILE#SETID`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListName {
    /// The file, relative to the working directory.
    pub file: PathBuf,
    /// Number of the set in the file.
    pub id: u32,
}

impl FromStr for ListName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |what: &str| {
            format!("{text:?} {what}; write list:FILE#SETID, such as list:/etc/kamailio/dispatcher.list#1")
        };
        let Some((file, id)) = text.strip_prefix(LIST).unwrap_or_default().rsplit_once('#') else {
            return Err(fault("has no set of the file"));
        };
        if file.is_empty() {
            return Err(fault("names no file"));
        }
        let id = id.parse().map_err(|_| fault("has no number behind #"))?;
        Ok(Self { file: PathBuf::from(file), id })
    }
}

impl fmt::Display for ListName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LIST}{}#{}", self.file.display(), self.id)
    }
}

/// A name with SRV records (RFC 2782), written as `srv:example.com` or `srv:_sip._tcp.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    text: String,
    question: LocateQuery,
}

impl ServiceName {
    /// Returns the domain, and the transport if the name has one, as a query.
    #[must_use]
    pub const fn question(&self) -> &LocateQuery {
        &self.question
    }

    /// Returns the name as written, without `srv:`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |what: &str| {
            format!("{text:?} {what}; write srv: and a domain, such as srv:example.com or srv:_sip._tcp.example.com")
        };
        let name = text.strip_prefix(SERVICE).unwrap_or_default().to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let (transport, domain) = match name.split_at_checked("_sip._udp.".len()) {
            Some(("_sip._udp.", domain)) => (Some(Transport::Udp), domain),
            Some(("_sip._tcp.", domain)) => (Some(Transport::Tcp), domain),
            _ => match name.strip_prefix("_sips._tcp.") {
                Some(domain) => (Some(Transport::Tls), domain),
                None => (None, name),
            },
        };
        if domain.starts_with('_') {
            return Err(fault(
                "asks for a service that is not supported, only _sip._udp, _sip._tcp and _sips._tcp are",
            ));
        }
        match Host::parse(domain.as_bytes()) {
            Some(Host::Name(host)) => {
                let question = LocateQuery::new(host, None, transport, false);
                let text = name.to_owned();
                if question.is_valid_name() {
                    Ok(Self { text, question })
                } else {
                    Err(fault("is longer than any name"))
                }
            }
            Some(Host::Ip(_)) => Err(fault("is an address, which has no SRV records")),
            None => Err(fault("is not a DNS name")),
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SERVICE}{}", self.text)
    }
}

impl Serialize for TargetSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Target(WeightedTarget { target, priority, weight, capacity })
                if *self != Self::Target(WeightedTarget::of(target.clone())) =>
            {
                let (priority, weight, capacity) = (*priority, *weight, *capacity);
                Table { uri: target.clone(), priority, weight, capacity }.serialize(serializer)
            }
            other => serializer.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for TargetSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = TargetSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a SIP URI in quotes, such as \"sip:192.0.2.1:5060\", a table with uri, weight, priority and capacity, or \
                     \"set:NAME\", \"list:FILE#SETID\", \"srv:DOMAIN\" or \"dns:HOST:PORT\"",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TargetSource, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TargetSource, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                let Table { uri: target, priority, weight, capacity } = table;
                Ok(TargetSource::Target(WeightedTarget { target, priority, weight, capacity }))
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

impl JsonSchema for TargetSource {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TargetSource".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<Table>();
        json_schema!({ "anyOf": [{ "type": "string" }, table] })
    }
}

/// A DNS name that yields targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsName {
    /// A service whose SRV records name the targets.
    Service(ServiceName),
    /// A host whose addresses are the targets.
    Host(HostName),
}

impl fmt::Display for DnsName {
    /// Writes the name as in the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => name.fmt(f),
            Self::Host(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_parses_and_round_trips() {
        for text in [
            "sip:192.0.2.1:5060",
            "set:pstn",
            "list:/etc/kamailio/dispatcher.list#1",
            "list:a#b.list#12",
            "srv:example.com",
            "srv:_sip._tcp.example.com",
            "dns:pods.example.com",
            "dns:pods.example.com:5070;transport=tcp",
        ] {
            assert_eq!(text.parse::<TargetSource>().expect(text).to_string(), text);
        }
        let service = |text: &str| match text.parse() {
            Ok(TargetSource::Service(name)) => (name.to_string(), name.question().clone()),
            other => panic!("{other:?}"),
        };
        let (shown, question) = service("srv:_SIP._udp.Example.COM.");
        assert_eq!(shown, "srv:_sip._udp.example.com");
        assert_eq!((&question.host[..], question.transport), (&b"example.com"[..], Some(Transport::Udp)));
    }

    #[test]
    fn bad_sources_are_rejected() {
        for (text, what) in [
            ("set:", "has no valid set name"),
            ("list:/etc/dispatcher.list", "has no set of the file"),
            ("list:#1", "names no file"),
            ("list:/etc/dispatcher.list#one", "has no number behind #"),
            ("list:/etc/dispatcher.list#-1", "has no number behind #"),
            ("srv:", "is not a DNS name"),
            ("srv:192.0.2.1", "is an address"),
            ("srv:_sips._udp.example.com", "not supported"),
            ("srv:exa mple.com", "is not a DNS name"),
            ("dns:", "is not a DNS name"),
            ("dns:192.0.2.1:5060", "is an address"),
            ("dns:pods.example.com:0", "has no port from 1 to 65535"),
            ("dns:pods.example.com;transport=ws", "not supported"),
            ("http://192.0.2.1", "is not a SIP URI"),
        ] {
            let error = text.parse::<TargetSource>().expect_err(text);
            assert!(error.contains(what) && error.contains("; write "), "{text}: {error}");
        }
    }
}
