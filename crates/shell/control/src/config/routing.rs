//! Trunks and routes, as they are written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::values::{
    CountryCode, Destination, DialString, DomainPattern, Methods, OneOrMany, Origin, Password, Prefix, Realm, Source,
    Target, TargetOrSet, UserPart,
};
use super::{Class, Span};

/// `[[trunk]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trunk {
    /// What routes call it.
    pub name: String,
    /// Where requests to it go: SIP URIs, or tables with uri, priority (lower first) and weight (the share among equals).
    pub targets: Vec<Destination>,
    /// The user that proves the server to the trunk, in REGISTER and where it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password. It is never shown.
    #[serde(skip_serializing)]
    pub password: Option<Password>,
    /// A file whose first line is the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// A variable of the environment that has the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// The only realm whose challenges are answered. Not given: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<Realm>,
    /// Whether the server registers there, so that the trunk sends it calls.
    pub register: bool,
    /// Where it registers. Not given: at the first target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registrar: Option<Target>,
    /// The address that is registered, as sip:4930123@carrier.example. Not given: the user at the registrar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Target>,
    /// The user part of the contact that is registered: what calls from the trunk are sent to. Not given: that of from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<UserPart>,
    /// How long a registration is asked for.
    pub expires: Span,
    /// The addresses and networks that the trunk sends from: calls from there need no password.
    pub sources: Vec<Source>,
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
        }
    }
}

impl Trunk {
    /// Where it registers.
    #[must_use]
    pub fn registrar(&self) -> Option<&Target> {
        self.registrar.as_ref().or_else(|| self.targets.first().map(|destination| &destination.target))
    }

    /// What it registers: an address with a user part, escaped as it has to be.
    #[must_use]
    pub fn from(&self) -> Option<String> {
        let default = || Some(format!("sip:{}@{}", escaped(self.username.as_deref()?), self.registrar()?.host()));
        self.from.as_ref().map(|from| from.uri.clone()).or_else(default)
    }
}

/// `text` as the user part of a URI.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// `[[route]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// Which requests; all that is given must fit.
    #[serde(rename = "match")]
    pub matches: Match,
    /// proxy: sends the request on, to the balancer, the trunk or the targets, or without any to the user's contacts.
    /// redirect: answers 302 with the targets, or without any with the user's contacts. reject: answers with the status.
    pub action: Action,
    /// Of reject: 300 to 699.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 300, max = 699))]
    pub status: Option<u16>,
    /// Of reject: the words behind the status. Not given: the customary ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of proxy: whether a request may be forwarded without keeping state: never, when-possible or always.
    pub stateless: Stateless,
    /// Of proxy: the balancer whose targets requests go to, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Of proxy: the trunk that requests go to, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// Where requests go: SIP URIs, tables with uri, priority (lower first) and weight (the share among equals), or sets of
    /// gateways, as "set:pstn".
    pub targets: Vec<TargetOrSet>,
    /// What becomes of the called number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<Rewrite>,
    /// Headers that are added, with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_headers: BTreeMap<String, String>,
    /// Headers that are removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_headers: Vec<String>,
    /// How long a target may ring. Not given: proxy.ring_timeout, and proxy.fork_timeout where there is a next target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// What requests that begin something count as under overload: emergency, refresh, trunk-call, call, contact or other. Not given:
    /// what they are.
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
    /// The domain of the Request-URI: a name, *.name, or * for any.
    pub domain: DomainPattern,
    /// A method or a list of them. Not given: any.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub method: Methods,
    /// What the called number begins with: the user part, or the number of a tel URI. One or a list. Not given: anything.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub prefix: OneOrMany<Prefix>,
    /// Where the request comes from: an address, a network, "trunk:NAME", or a list of them. Not given: anywhere.
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

/// `route.rewrite`: in this order the first characters go, a prefix comes before the rest, and the number is written for
/// the whole world. What is no telephone number stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rewrite {
    /// How many characters go, a plus counted.
    pub strip: u8,
    /// What comes before the rest, in place of a plus.
    pub prefix: DialString,
    /// The country whose numbers are dialled, as "49", or a table with country, national_prefix ("0"),
    /// international_prefix ("00") and plus (whether the result begins with +).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e164: Option<Country>,
}

/// `route.rewrite.e164`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Country {
    /// Its code.
    pub country: CountryCode,
    /// What is dialled before an area code.
    pub national_prefix: DialString,
    /// What is dialled before a country's code.
    pub international_prefix: DialString,
    /// Whether the result begins with +.
    pub plus: bool,
}

/// As it is written where it has more than a code.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "E164")]
struct CountryTable {
    /// The country's code.
    country: CountryCode,
    /// What is dialled before an area code; "" where there is nothing.
    national_prefix: Option<DialString>,
    /// What is dialled before a country's code.
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
                f.write_str("a country's code in quotes, as \"49\", or a table with country and its prefixes")
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
