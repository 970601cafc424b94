//! `[overload]`: overload control.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[overload]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overload {
    /// Whether new work beyond capacity is refused: calls in progress go first, then the order of route.class and
    /// docs/operating/overload.md applies. If off, all requests wait in one queue.
    pub control: bool,
    /// Whether servers exchange overload feedback (RFC 7339, RFC 7415): the server asks trunks and balancers' targets
    /// for it and follows it, and sends it to every server that asks.
    pub feedback: bool,
}

impl Default for Overload {
    fn default() -> Self {
        Self { control: true, feedback: true }
    }
}

/// `route.class`: class of requests under overload, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "docs/operating/overload.md says what they mean")]
pub enum Class {
    Emergency,
    Refresh,
    TrunkCall,
    Call,
    Contact,
    Other,
}

impl From<Class> for strowger_overload::Class {
    fn from(class: Class) -> Self {
        match class {
            Class::Emergency => Self::Emergency,
            Class::Refresh => Self::Refresh,
            Class::TrunkCall => Self::TrunkCall,
            Class::Call => Self::Call,
            Class::Contact => Self::Contact,
            Class::Other => Self::Other,
        }
    }
}
