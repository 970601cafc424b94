//! Passwords in the configuration file.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// A password. It never appears in errors, in the output of `check`, or in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub(crate) String);

impl Password {
    /// Returns the secret, only to be sent to whom it is for.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl<'de> Deserialize<'de> for Password {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        // The default message for a wrong type shows the value, so every scalar is handled here.
        const NO_TEXT: &str = "a password is a text; write it in quotes";
        impl Visitor<'_> for Text {
            type Value = Password;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Password, E> {
                Ok(Password(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Password, E> {
                Err(E::custom(NO_TEXT))
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Password, E> {
                Err(E::custom(NO_TEXT))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Password, E> {
                Err(E::custom(NO_TEXT))
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Password, E> {
                Err(E::custom(NO_TEXT))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Password {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Password".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
