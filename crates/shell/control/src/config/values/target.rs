//! Destinations of requests.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strowger_foundation::Transport;
use strowger_locate::{Hop, LocateQuery};
use strowger_message::{Host, SipUri, Uri};
use strowger_trunk::NextHop;

/// A SIP URI with a usable next hop: a literal address, or a name in DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// URI as written.
    pub uri: String,
    /// Transport named in the URI.
    pub transport: Option<Transport>,
    /// Next hop of the URI.
    pub next_hop: NextHop,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::refuse_set(text)?;
        let Some(Uri::Sip(uri)) = Uri::parse(text.as_bytes()) else {
            return Err(format!(
                "{text:?} is not a SIP URI; write sip:HOST or sip:HOST:PORT, such as sip:192.0.2.1:5060"
            ));
        };
        if uri.headers.is_some() {
            return Err(format!("{text:?} has headers, which no request may have; remove what follows \"?\""));
        }
        let transport = match (uri.params.value("transport").map(Transport::from_token), uri.secure) {
            (None, false) => None,
            //= rfc3263#4.1:sips-services
            (None | Some(Some(Transport::Tcp | Transport::Tls)), true) => Some(Transport::Tls),
            (Some(Some(Transport::Udp)), true) => {
                return Err(format!("{text:?} asks for UDP, which is never secure; leave the transport out"));
            }
            (Some(Some(transport @ (Transport::Udp | Transport::Tcp | Transport::Tls))), false) => Some(transport),
            (Some(_), _) => {
                return Err(format!(
                    "{text:?} asks for a transport that is not supported yet, only udp, tcp and tls are; leave it out"
                ));
            }
        };
        Ok(Self { uri: text.to_owned(), transport, next_hop: next_hop_of(&uri, transport) })
    }
}

fn next_hop_of(uri: &SipUri<'_>, transport: Option<Transport>) -> NextHop {
    match uri.host() {
        Host::Ip(ip) => {
            let transport = transport.unwrap_or_default();
            let port = uri.port().unwrap_or(transport.default_port());
            NextHop::Address(Hop::new(transport, SocketAddr::new(ip, port)))
        }
        Host::Name(name) => {
            // A sips URI leaves it to the DNS whether it is TLS or a WebSocket.
            let named = transport.filter(|_| !uri.secure || uri.port().is_some());
            NextHop::Name(LocateQuery::new(name, uri.port(), named, uri.secure))
        }
    }
}

impl Target {
    /// Creates the target for an address, over any transport.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let place = NextHop::Address(Hop::new(Transport::default(), address));
        Self { uri: format!("sip:{address}"), transport: None, next_hop: place }
    }

    /// Returns the URI without its user part, as used to address a registrar (RFC 3261 §10.2).
    #[must_use]
    pub fn without_user(&self) -> String {
        match self.uri.split_once('@') {
            Some((_, rest)) => format!("sip:{rest}"),
            None => self.uri.clone(),
        }
    }

    /// Returns the host as written, without port and parameters.
    #[must_use]
    pub fn host(&self) -> String {
        match Uri::parse(self.uri.as_bytes()) {
            Some(Uri::Sip(uri)) => uri.host().to_string(),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

/// A target with its rank: a URI, or a table with `uri`, `priority` and `weight`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The target.
    pub target: Target,
    /// Priority; lower ones are tried first.
    pub priority: u16,
    /// Weight among targets of the same priority.
    pub weight: u16,
}

impl Destination {
    const PRIORITY: u16 = 0;
    const WEIGHT: u16 = 1;
}

/// Table form of a target.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Target")]
struct Table {
    /// A SIP URI.
    uri: Target,
    /// Priority; lower ones are tried first.
    #[serde(default = "default_priority")]
    priority: u16,
    /// Weight among targets of the same priority.
    #[serde(default = "default_weight")]
    weight: u16,
}

const fn default_priority() -> u16 {
    Destination::PRIORITY
}

const fn default_weight() -> u16 {
    Destination::WEIGHT
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { target: text.parse()?, priority: Self::PRIORITY, weight: Self::WEIGHT })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if (self.priority, self.weight) == (Self::PRIORITY, Self::WEIGHT) {
            return self.target.serialize(serializer);
        }
        let uri = self.target.clone();
        Table { uri, priority: self.priority, weight: self.weight }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Destination;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a SIP URI in quotes, such as \"sip:192.0.2.1:5060\", or a table with uri, priority and weight",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Destination, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Destination, A::Error> {
                let Table { uri: target, priority, weight } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Destination { target, priority, weight })
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

impl JsonSchema for Destination {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Destination".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<Table>();
        json_schema!({ "anyOf": [{ "type": "string" }, table] })
    }
}
