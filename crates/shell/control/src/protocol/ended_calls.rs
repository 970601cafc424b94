//! Calls that have ended.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The latest calls that have ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EndedCalls {
    /// Their records, the most recent first.
    pub calls: Vec<EndedCall>,
    /// Whether there are more than the limit.
    pub more: bool,
    /// Whether the server records calls: `cdr.file`, `cdr.database` or `trace.otlp.to` is set.
    pub recorded: bool,
    /// If it does not: what to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl EndedCalls {
    /// Returns the response of a server that records calls or does not.
    #[must_use]
    pub fn new(calls: Vec<EndedCall>, more: bool, recorded: bool) -> Self {
        let note = || "the server does not record calls; name a file in [cdr] file, and reload it".to_owned();
        Self { calls, more, recorded, note: (!recorded).then(note) }
    }
}

/// The record of a call, as in the file of call records. New fields are added at the end; existing ones keep their meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EndedCall {
    /// Time of the INVITE; UTC, RFC 3339.
    pub start: String,
    /// Time of the first 2xx; none if the call was not answered.
    pub answer: Option<String>,
    /// Time of the end.
    pub end: String,
    /// Seconds from start to answer, or to the end of an unanswered call.
    pub setup_s: f64,
    /// Seconds from answer to end.
    pub talk_s: f64,
    /// Why it ended, such as `caller hung up`.
    pub reason: String,
    /// Final response sent to the caller, if any.
    pub status: Option<u16>,
    /// URI in From.
    pub caller: String,
    /// Request-URI as the caller sent it.
    pub callee: String,
    /// Call-ID.
    pub call_id: String,
    /// Transport and address that the INVITE came from.
    pub source: String,
    /// Address that answered, or whose rejection the caller got.
    pub target: Option<String>,
    /// Name of the trunk that the INVITE came from.
    pub source_trunk: Option<String>,
    /// Name of the trunk that was called.
    pub target_trunk: Option<String>,
    /// Request-URI as sent there, if a trunk or a route changed it.
    pub target_uri: Option<String>,
}
