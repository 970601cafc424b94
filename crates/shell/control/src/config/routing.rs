//! Trunks and routes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::values::{
    CountryCode, Destination, DialString, Domain, DomainPattern, Methods, OneOrMany, Origin, Password, Prefix, Realm,
    Source, Target, TargetOrSet, UserPart,
};
use super::{Class, Span};

/// `[[trunk]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trunk {
    /// Name used by routes.
    pub name: String,
    /// Targets: SIP URIs, or tables with uri, priority (lower first) and weight (share among equal priorities).
    pub targets: Vec<Destination>,
    /// User name for authentication to the trunk, in REGISTER and when challenged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Password; never shown.
    #[serde(skip_serializing)]
    pub password: Option<Password>,
    /// File whose first line is the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Environment variable with the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// The only realm whose challenges are answered. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<Realm>,
    /// Whether the server registers with the trunk to receive calls.
    pub register: bool,
    /// Registrar. Default: the first target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registrar: Option<Target>,
    /// Address to register, such as sip:4930123@carrier.example. Default: the user name at the registrar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Target>,
    /// User part of the registered contact, to which the trunk sends calls. Default: the user part of from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<UserPart>,
    /// Requested lifetime of a registration.
    pub expires: Span,
    /// Addresses and networks that the trunk sends from; calls from there need no password.
    pub sources: Vec<Source>,
    /// Domains that the trunk's certificate speaks for; calls on a TLS connection with such a certificate need no
    /// password.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificate_domains: Vec<Domain>,
}

impl Default for Trunk {
    fn default() -> Self {
        Self {
            name: String::new(),
            targets: Vec::new(),
            username: None,
            password: None,
            password_file: None,
            password_env: None,
            realm: None,
            register: false,
            registrar: None,
            from: None,
            contact: None,
            expires: Span::from_secs(3600),
            sources: Vec::new(),
            certificate_domains: Vec::new(),
        }
    }
}

impl Trunk {
    /// Returns the registrar.
    #[must_use]
    pub fn registrar(&self) -> Option<&Target> {
        self.registrar.as_ref().or_else(|| self.targets.first().map(|destination| &destination.target))
    }

    /// Returns the address to register, with an escaped user part.
    #[must_use]
    pub fn from(&self) -> Option<String> {
        let default = || Some(format!("sip:{}@{}", escaped(self.username.as_deref()?), self.registrar()?.host()));
        self.from.as_ref().map(|from| from.uri.clone()).or_else(default)
    }
}

/// Escapes `text` as the user part of a URI.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// `[[route]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// Conditions for requests; all must match.
    #[serde(rename = "match")]
    pub matches: Match,
    /// proxy: forwards the request to the balancer, trunk or targets, or without any of them to the user's contacts.
    /// redirect: answers 302 with the targets, or without any with the user's contacts. reject: answers with the
    /// status.
    pub action: Action,
    /// For reject: 300 to 699.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 300, max = 699))]
    pub status: Option<u16>,
    /// For reject: the reason phrase. Default: the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For proxy: whether requests may be forwarded statelessly: never, when-possible or always.
    pub stateless: Stateless,
    /// For proxy: name of the balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// For proxy: name of the trunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// Targets: SIP URIs, tables with uri, priority (lower first) and weight (share among equal priorities), or
    /// gateway sets such as "set:pstn".
    pub targets: Vec<TargetOrSet>,
    /// Rewriting of the called number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<Rewrite>,
    /// Headers to add, with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_headers: BTreeMap<String, String>,
    /// Headers to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_headers: Vec<String>,
    /// Maximum ringing time of a target. Default: proxy.ring_timeout, or proxy.fork_timeout if another target
    /// follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Class of new requests under overload: emergency, refresh, trunk-call, call, contact or other. Default: derived
    /// from the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            matches: Match::default(),
            action: Action::Proxy,
            status: None,
            reason: None,
            stateless: Stateless::Never,
            balance: None,
            trunk: None,
            targets: Vec::new(),
            rewrite: None,
            add_headers: BTreeMap::new(),
            remove_headers: Vec::new(),
            timeout: None,
            class: None,
        }
    }
}

/// `route.match`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// Domain of the Request-URI: a name, *.name, or * for any.
    pub domain: DomainPattern,
    /// A method or a list of methods. Default: any.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub method: Methods,
    /// Prefix of the called number (the user part, or the number of a tel URI). One or a list. Default: any.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub prefix: OneOrMany<Prefix>,
    /// Source of the request: an address, a network, "trunk:NAME", or a list of them. Default: any.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub source: OneOrMany<Origin>,
}

impl Default for Match {
    fn default() -> Self {
        Self {
            domain: DomainPattern("*".to_owned()),
            method: Methods::default(),
            prefix: OneOrMany::default(),
            source: OneOrMany::default(),
        }
    }
}

/// `route.action`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Route::action` says what they mean")]
pub enum Action {
    Proxy,
    Redirect,
    Reject,
}

/// `route.stateless`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Route::stateless` says what they mean")]
pub enum Stateless {
    Never,
    WhenPossible,
    Always,
}

/// `route.rewrite`. Steps in order: leading characters are stripped, a prefix is added, the number is converted to
/// E.164. What is not a telephone number stays unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rewrite {
    /// Number of leading characters to strip, including a plus.
    pub strip: u8,
    /// Prefix to add, replacing a plus.
    pub prefix: DialString,
    /// Country whose dialling rules apply, as "49", or a table with country, national_prefix ("0"),
    /// international_prefix ("00") and plus (whether the result begins with +).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e164: Option<Country>,
}

/// `route.rewrite.e164`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Country {
    /// Country code.
    pub country: CountryCode,
    /// Prefix dialled before an area code.
    pub national_prefix: DialString,
    /// Prefix dialled before a country code.
    pub international_prefix: DialString,
    /// Whether the result begins with +.
    pub plus: bool,
}

/// Table form of a country.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "E164")]
struct CountryTable {
    /// Country code.
    country: CountryCode,
    /// Prefix dialled before an area code; "" for none.
    national_prefix: Option<DialString>,
    /// Prefix dialled before a country code.
    international_prefix: Option<DialString>,
    /// Whether the result begins with +.
    plus: Option<bool>,
}

impl From<CountryTable> for Country {
    fn from(table: CountryTable) -> Self {
        let dialled = |given: Option<DialString>, usual: &str| given.unwrap_or_else(|| DialString(usual.to_owned()));
        Self {
            country: table.country,
            national_prefix: dialled(table.national_prefix, "0"),
            international_prefix: dialled(table.international_prefix, "00"),
            plus: table.plus.unwrap_or(true),
        }
    }
}

impl<'de> Deserialize<'de> for Country {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CodeOrTable;
        impl<'de> Visitor<'de> for CodeOrTable {
            type Value = Country;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a country's code in quotes, such as \"49\", or a table with country and its prefixes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Country, E> {
                let country = text.parse().map_err(E::custom)?;
                Ok(CountryTable { country, national_prefix: None, international_prefix: None, plus: None }.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Country, A::Error> {
                CountryTable::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
            }
        }
        deserializer.deserialize_any(CodeOrTable)
    }
}

impl JsonSchema for Country {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Country".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<CountryTable>();
        json_schema!({ "anyOf": [{ "type": "string" }, table] })
    }
}
