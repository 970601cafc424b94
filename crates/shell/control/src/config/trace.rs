//! `[trace]`: messages and calls for other tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{CollectorAddress, MethodName, OtlpUrl, Password};

/// `[trace]`: messages and calls for other tools. docs/operating/trace.md has the steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trace {
    /// Name of this server at collectors. Default: its name in the configuration, or the host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Copies of messages for Homer.
    pub hep: Hep,
    /// Spans of calls for OpenTelemetry.
    pub otlp: Otlp,
}

/// `[trace.hep]`: copies of messages for Homer and other collectors of HEP version 3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hep {
    /// Address of the collector, such as "udp:192.0.2.60:9060" or "tcp:homer.example.com:9060". Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<CollectorAddress>,
    /// Number of this server at the collector.
    pub capture_id: u32,
    /// Key that the collector requires; never shown.
    #[serde(skip_serializing)]
    pub auth_key: Option<Password>,
    /// File whose first line is the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_key_file: Option<PathBuf>,
    /// Share of calls, from 0 to 1. Servers with the same share choose the same calls.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample: f64,
    /// Methods whose messages are not sent, such as "OPTIONS".
    pub except: Vec<MethodName>,
}

impl Default for Hep {
    fn default() -> Self {
        Self { to: None, capture_id: 1, auth_key: None, auth_key_file: None, sample: 1.0, except: Vec::new() }
    }
}

/// `[trace.otlp]`: spans of calls for Jaeger, Tempo and other collectors of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// URL of the collector, such as "http://127.0.0.1:4318". Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<OtlpUrl>,
    /// Name of the service at the collector.
    pub service: String,
    /// Share of calls, from 0 to 1. Servers with the same share choose the same calls.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample: f64,
    /// Whether spans have the URIs of callers and callees.
    pub users: bool,
    /// Header fields of each request, such as `{ Authorization = "Bearer SECRET" }`; values are never shown.
    #[serde(skip_serializing)]
    pub headers: BTreeMap<String, Password>,
}

impl Default for Otlp {
    fn default() -> Self {
        Self { to: None, service: "strowger".to_owned(), sample: 1.0, users: false, headers: BTreeMap::new() }
    }
}
