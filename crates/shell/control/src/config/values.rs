//! Values written as text, each parsed once into its type.

mod admin_listen;
mod affinity;
mod collector_address;
mod engine;
mod engine_address;
mod host;
mod list;
mod otlp_url;
mod password;
mod prefix;
mod record_name;
mod set;
mod source;
mod spin;
mod status;
mod target;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strowger_auth::Network;
use strowger_foundation::Transport;
use strowger_message::{Host, Uri};

use super::duration::Span;
use crate::dns::DnsConfig;
pub use admin_listen::AdminListen;
pub use affinity::Affinity;
pub use collector_address::CollectorAddress;
pub use engine::{EngineKind, EngineUrl};
pub use engine_address::EngineAddress;
pub use host::HostName;
pub use list::{ListItem, Methods, OneOrMany};
pub use otlp_url::OtlpUrl;
pub use password::Password;
pub use record_name::RecordName;
pub use set::{SetName, TargetOrSet};
pub use source::{DnsName, ListName, ServiceName, TargetSource, WeightedTarget};
pub use spin::Spin;
pub use status::StatusRange;
pub use target::{Destination, Target};

/// Address of a listener, such as `udp:192.0.2.1:5060`. A wildcard (`0.0.0.0`, `[::]`) means every address of its
/// family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenAddress {
    /// `udp`, `tcp`, `tls`, `ws` or `wss`.
    pub transport: Transport,
    /// Address and port.
    pub address: SocketAddr,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, address)) = text.split_once(':') else {
            return Err(format!(
                "{text:?} names no transport and address; write udp, tcp, tls, ws or wss, then :ADDRESS:PORT, such as udp:0.0.0.0:5060"
            ));
        };
        let Some(transport) = Transport::from_token(name.as_bytes()) else {
            return Err(format!(
                "{name:?} is not a transport; write udp, tcp, tls, ws or wss, then :ADDRESS:PORT, such as udp:0.0.0.0:5060"
            ));
        };
        if let Ok(address) = address.parse::<SocketAddr>() {
            return Ok(Self { transport, address });
        }
        if let Ok(ip) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
            let address = (ip, transport.default_port()).into();
            return Err(format!("{text:?} has no port; write {}", Self { transport, address }));
        }
        Err(format!(
            "{address:?} is not a literal address with a port; write one, such as 192.0.2.1:5060 or [2001:db8::1]:5060"
        ))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.as_str().to_ascii_lowercase(), self.address)
    }
}

/// Storage of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// No storage and no users.
    Memory,
    /// A SQLite file.
    Sqlite(PathBuf),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        match text.strip_prefix("sqlite:") {
            Some("") => Err("\"sqlite:\" names no file; write sqlite:PATH, such as sqlite:data/strowger.db".to_owned()),
            Some(path) => Ok(Self::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))),
            // Only the scheme is shown: the URL of a database server may contain a password.
            None if matches!(scheme, "mysql" | "mariadb" | "postgres" | "postgresql" | "redis" | "rediss") => {
                Err(format!("{scheme}: is not supported yet; write sqlite:PATH or memory:"))
            }
            None => Err("this is not a known store; write sqlite:PATH or memory:".to_owned()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

/// A database shared by servers, such as `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`. Displayed without its
/// password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDatabase(pub strowger_sql::DatabaseUrl);

impl FromStr for SharedDatabase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse()? {
            strowger_sql::DatabaseUrl::Sqlite(_) => {
                Err("servers cannot share a file; write it as store.url, or here postgresql:// or \
                                           mysql://USER:PASSWORD@HOST:PORT/DATABASE"
                    .to_owned())
            }
            url => Ok(Self(url)),
        }
    }
}

impl fmt::Display for SharedDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An SQL database, such as `mysql://USER:PASSWORD@HOST:PORT/DATABASE`. Displayed without its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseUrl(pub strowger_sql::DatabaseUrl);

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A domain name or literal address in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain(pub String);

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_v6 = name.parse::<std::net::Ipv6Addr>().is_ok();
        match Host::parse(name.as_bytes()) {
            _ if is_v6 => Ok(Self(format!("[{name}]"))),
            Some(_) => Ok(Self(name)),
            None => Err(format!(
                "{text:?} is not a domain; write a name or an address without scheme and port, such as example.com"
            )),
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Domains that a route matches: `example.com`, `*.example.com` or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainPattern(pub String);

impl FromStr for DomainPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self(text.to_owned()));
        }
        let (star, name) = text.strip_prefix("*.").map_or(("", text), |name| ("*.", name));
        let Domain(name) = name.parse().map_err(|_| {
            format!("{text:?} is not a pattern of domains; write example.com, *.example.com, or * for any")
        })?;
        Ok(Self(format!("{star}{name}")))
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Realm of digest challenges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm(pub String);

impl FromStr for Realm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
            return Err(format!(
                "{text:?} is not a valid realm; write text without quotes and backslashes, such as example.com"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A digest algorithm, written by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm(pub strowger_auth::Algorithm);

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        strowger_auth::Algorithm::from_name(text.as_bytes())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a digest algorithm; write MD5, SHA-256 or SHA-512-256"))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// A SIP method in upper case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodName(pub String);

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c);
        if text.is_empty() || !text.chars().all(fits) {
            return Err(format!("{text:?} is not a method; write its name, such as INVITE"));
        }
        Ok(Self(text.to_ascii_uppercase()))
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An address, or a network such as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub Network);

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || format!("{text:?} is not an address or network; write one, such as 192.0.2.7 or 192.0.2.0/24");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => width,
            Some(prefix) => prefix.parse().ok().filter(|bits| *bits <= width).ok_or_else(fault)?,
        };
        Ok(Self(Network { address, prefix }))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Network { address, prefix } = self.0;
        let width = if address.is_ipv4() { 32 } else { 128 };
        if prefix == width { write!(f, "{address}") } else { write!(f, "{address}/{prefix}") }
    }
}

/// Source of requests: an address, a network, or a trunk's addresses as `trunk:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An address or a network.
    Network(Source),
    /// The sources of this trunk.
    Trunk(String),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("trunk:") {
            Some("") => Err("\"trunk:\" names no trunk; write trunk:NAME".to_owned()),
            Some(name) => Ok(Self::Trunk(name.to_owned())),
            None => text.parse().map(Self::Network).map_err(|_| {
                format!("{text:?} is not a source; write an address, a network or trunk:NAME, such as 192.0.2.0/24")
            }),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(source) => source.fmt(f),
            Self::Trunk(name) => write!(f, "trunk:{name}"),
        }
    }
}

/// A SIP URI with `lr`, for a Route header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LooseRoute(pub String);

impl FromStr for LooseRoute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Uri::parse(text.as_bytes()) {
            Some(Uri::Sip(uri)) if uri.headers.is_none() && uri.params.contains("lr") => Ok(Self(text.to_owned())),
            Some(Uri::Sip(uri)) if uri.headers.is_none() => Err(format!("{text:?} has no lr; write {text};lr")),
            _ => Err(format!("{text:?} is not a SIP URI; write one, such as sip:edge.example.com;lr")),
        }
    }
}

impl fmt::Display for LooseRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name server: a literal address, with its port unless it is 53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsServer(pub SocketAddr);

impl FromStr for DnsServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        DnsConfig::server(text).map(Self)
    }
}

impl fmt::Display for DnsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.port() == 53 { self.0.ip().fmt(f) } else { self.0.fmt(f) }
    }
}

/// Prefix of a called number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(pub String);

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "+-_.!~*'()&=$,#%".contains(c);
        if text.is_empty() || !text.chars().all(fits) {
            return Err(format!("{text:?} is not a number prefix; write digits, such as +4930 or 0"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// User part of a SIP URI, escaped where necessary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserPart(pub String);

impl FromStr for UserPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Uri::parse(format!("sip:{text}@host").as_bytes()) {
            Some(Uri::Sip(uri)) if uri.user == Some(text.as_bytes()) => Ok(Self(text.to_owned())),
            _ => Err(format!("{text:?} is not a user part of a SIP URI; write a number or a name, such as 4930123")),
        }
    }
}

impl fmt::Display for UserPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A dialled string of digits, `+` and `*`; may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DialString(pub String);

impl FromStr for DialString {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > 32 || !text.chars().all(|c| c.is_ascii_digit() || "+*".contains(c)) {
            return Err(format!("{text:?} is not a dialling prefix; write digits, such as 00 or +49"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for DialString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A country code of one to three digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountryCode(pub String);

impl FromStr for CountryCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix('+').unwrap_or(text);
        let fits = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !fits || digits.starts_with('0') {
            return Err(format!("{text:?} is not a country's code; write its digits, such as 49"));
        }
        Ok(Self(digits.to_owned()))
    }
}

impl fmt::Display for CountryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! text_values {
    ($($type:ident, $expected:literal;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string" })
            }
        }
    )*};
}

text_values! {
    Span, "a duration with its unit in quotes, such as \"30s\"";
    Spin, "a duration with its unit in quotes, such as \"10us\", or \"always\"";
    AdminListen, "an address and port in quotes, such as \"127.0.0.1:8060\", or \"off\"";
    ListenAddress, "a transport and an address in quotes, such as \"udp:0.0.0.0:5060\"";
    StoreUrl, "a store in quotes, such as \"sqlite:data/strowger.db\" or \"memory:\"";
    SharedDatabase, "a database in quotes, such as \"postgresql://strowger:secret@192.0.2.10/strowger\"";
    EngineUrl, "an engine in quotes, such as \"redis://192.0.2.10:6379\"";
    CollectorAddress, "a collector in quotes, such as \"udp:192.0.2.60:9060\"";
    OtlpUrl, "a URL in quotes, such as \"http://127.0.0.1:4318\"";
    EngineAddress, "an engine in quotes, such as \"udp:192.0.2.50:2223\"";
    DatabaseUrl, "a database in quotes, such as \"mysql://USER:PASSWORD@192.0.2.10/kamailio\"";
    Domain, "a domain in quotes, such as \"example.com\"";
    DomainPattern, "a domain in quotes, such as \"example.com\", \"*.example.com\" or \"*\"";
    Realm, "a text in quotes, such as \"example.com\"";
    Algorithm, "a digest algorithm in quotes, such as \"MD5\"";
    MethodName, "a method in quotes, such as \"INVITE\"";
    Source, "an address or network in quotes, such as \"192.0.2.0/24\"";
    Target, "a SIP URI in quotes, such as \"sip:192.0.2.1:5060\"";
    Origin, "an address, a network or a trunk in quotes, such as \"192.0.2.0/24\" or \"trunk:NAME\"";
    LooseRoute, "a SIP URI in quotes, such as \"sip:edge.example.com;lr\"";
    DnsServer, "a literal address in quotes, such as \"192.0.2.53\"";
    RecordName, "a DNS name in quotes, such as \"_sip._udp.example.com\"";
    Prefix, "the beginning of a number in quotes, such as \"+4930\"";
    UserPart, "the user part of a SIP URI in quotes, such as \"4930123\"";
    DialString, "digits in quotes, such as \"00\"";
    CountryCode, "a country's code in quotes, such as \"49\"";
    StatusRange, "a status, a class or a range in quotes, such as \"200\", \"4xx\" or \"200-299\"";
}
