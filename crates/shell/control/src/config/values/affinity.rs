//! CPU affinity of workers.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Assignment of workers to cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// The system schedules the workers.
    None,
    /// Each worker runs on its own core, of those available to the process.
    Auto,
    /// Cores by worker number; the system schedules further workers.
    Cores(Vec<u16>),
}

impl Serialize for Affinity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Auto => serializer.serialize_str("auto"),
            Self::Cores(cores) => cores.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Affinity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrCores;
        impl<'de> Visitor<'de> for WordOrCores {
            type Value = Affinity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", \"auto\" or the cores of the workers, such as [2, 3]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Affinity, E> {
                match text {
                    "none" => Ok(Affinity::None),
                    "auto" => Ok(Affinity::Auto),
                    _ => Err(E::custom(format!(
                        "{text:?} is not an affinity; write \"none\", \"auto\" or the cores of the workers, such as [2, 3]"
                    ))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Affinity, A::Error> {
                let mut cores = Vec::new();
                while let Some(core) = values.next_element()? {
                    cores.push(core);
                }
                Ok(Affinity::Cores(cores))
            }
        }
        deserializer.deserialize_any(WordOrCores)
    }
}

impl JsonSchema for Affinity {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Affinity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let cores = json_schema!({ "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 1023 } });
        json_schema!({ "anyOf": [{ "enum": ["none", "auto"] }, cores] })
    }
}
