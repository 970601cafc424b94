//! Who has failed to log in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Recent failures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Failures {
    /// The failures, the most recent first.
    pub failures: Vec<Failure>,
    /// Whether there are more than the limit.
    pub more: bool,
}

/// Failures of one kind from one address, for one user. Texts come from peers, with control characters escaped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// `wrong-password`, `unknown-user`, `scanner` or `admin-token`, as in the log.
    pub event: String,
    /// Where they came from.
    pub address: String,
    /// Transport of the last one: `udp`, `tcp`, `tls`, `ws`, `wss` or `http`.
    pub transport: String,
    /// The user name in the credentials; for a scanner, its User-Agent; none for a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// How many there were. Those that the log leaves out, because there are too many at a time, are not counted.
    pub count: u64,
    /// Seconds since the first one.
    pub first_s: f64,
    /// Seconds since the last one.
    pub last_s: f64,
    /// Whether the address cannot be forged; only such failures count towards a ban.
    pub proven: bool,
    /// Whether the address is never banned automatically.
    pub exempt: bool,
}
