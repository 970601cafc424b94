//! `[overload]`: what is done when there is too much to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[overload]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overload {
    /// Whether more new work than can be served is refused: calls in progress go first, then what route.class and docs/operating/overload.md
    /// say. Without it everything waits for everything else.
    pub control: bool,
    /// Whether servers tell each other how much is to be sent (RFC 7339, RFC 7415): trunks and targets of balancers are asked, and
    /// followed; whoever asks this server is told.
    pub between_servers: bool,
}

impl Default for Overload {
    fn default() -> Self {
        Self { control: true, between_servers: true }
    }
}

/// `route.class`: what requests count as under overload, the most important first.
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
