//! Values written alone or as a list.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{EngineUrl, MethodName, Origin, Prefix, SharedDatabase};

/// One value or a list; if empty, any value matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct OneOrMany<T>(pub Vec<T>);

/// One method or a list.
pub type Methods = OneOrMany<MethodName>;

/// A value that may be written alone or in a list.
pub trait ListItem: std::str::FromStr<Err = String> {
    /// Description of the expected values, for messages.
    const EXPECTED: &'static str;
}

impl ListItem for MethodName {
    const EXPECTED: &'static str = "a method or a list of them, such as \"INVITE\" or [\"INVITE\", \"MESSAGE\"]";
}

impl ListItem for Prefix {
    const EXPECTED: &'static str = "the beginning of a number or a list of them, such as \"+49\" or [\"+49\", \"0\"]";
}

impl ListItem for Origin {
    const EXPECTED: &'static str =
        "a source or a list of them, such as \"192.0.2.0/24\" or [\"192.0.2.7\", \"trunk:NAME\"]";
}

impl ListItem for SharedDatabase {
    const EXPECTED: &'static str =
        "a database or a list of them, such as \"postgresql://strowger:secret@192.0.2.10/strowger\"";
}

impl ListItem for EngineUrl {
    const EXPECTED: &'static str = "an engine or a list of them, such as \"redis://192.0.2.10:6379\"";
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// Whether any value matches.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de, T: ListItem + Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values<T>(PhantomData<T>);
        impl<'de, T: ListItem + Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany<T>, E> {
                Ok(OneOrMany(vec![text.parse().map_err(E::custom)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<OneOrMany<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(value) = values.next_element()? {
                    all.push(value);
                }
                Ok(OneOrMany(all))
            }
        }
        deserializer.deserialize_any(Values(PhantomData))
    }
}

impl<T> JsonSchema for OneOrMany<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OneOrMany".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
    }
}
