//! `[log]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[log]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Minimum level to log: error, warn, info, debug or trace.
    pub level: Level,
    /// text, or json: one object per line.
    pub format: Format,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: Level::Info, format: Format::Text }
    }
}

/// `log.level`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// `log.format`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum Format {
    Text,
    Json,
}
