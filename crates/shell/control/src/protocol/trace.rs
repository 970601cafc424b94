//! Traces of messages.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Selection and limits of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Selects the messages.
    pub filter: TraceFilter,
    /// Duration of the trace, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Number of messages after which the trace ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Whether to send whole messages as lines; otherwise only what a ladder row shows.
    #[serde(default)]
    pub messages: bool,
    /// Whether to send the bytes of messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bytes: bool,
}

/// Selection of messages. After a match by user or address, the trace follows the Call-ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFilter {
    /// User part, or user@domain, in the Request-URI, From, To or P-Asserted-Identity.
    User(String),
    /// Call-ID.
    CallId(String),
    /// Source or destination address.
    Ip(IpAddr),
}

impl TraceFilter {
    /// Checks the text of [`TraceFilter::User`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_user(text: &str) -> Result<(), String> {
        let bare = ["sip:", "sips:", "tel:"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        let is_half = bare.rsplit_once('@').is_some_and(|(user, domain)| user.is_empty() || domain.is_empty());
        if bare.is_empty() || is_half {
            return Err(format!("{text:?} is not a user; write it as alice or alice@example.com"));
        }
        Ok(())
    }
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceEvent {
    /// The trace has started.
    Started,
    /// A matching message.
    Message(Box<TracedMessage>),
    /// Number of messages lost because the client read too slowly.
    Lost(u64),
    /// A limit of the trace is reached.
    Ended,
}

/// A traced message. Texts come from peers, with control characters escaped; credentials and media keys are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TracedMessage {
    /// Time in UTC (RFC 3339).
    pub time: String,
    /// The same in nanoseconds since 1970-01-01 UTC; 0 from a server that does not tell it.
    #[serde(default)]
    pub unix_ns: u64,
    /// Microseconds since the server started, on a monotonic clock.
    pub at_us: u64,
    /// Whether the server sent it; otherwise it was received.
    pub sent: bool,
    /// The transport, as in Via.
    pub transport: String,
    /// Local listening address.
    pub local: String,
    /// Remote address.
    #[schema(value_type = String)]
    pub peer: SocketAddr,
    /// First line.
    pub start: String,
    /// CSeq.
    pub cseq: String,
    /// Call-ID.
    pub call_id: String,
    /// Length in bytes.
    pub length: usize,
    /// Lines of the message, if requested, up to the stored length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
    /// The message in base64url without padding (RFC 4648 §5), if its bytes were requested, up to the stored length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// Number of bytes that are not stored.
    #[serde(default)]
    pub cut: usize,
}
