//! `[store]`: users and registrations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{OneOrMany, SharedDatabase, StoreUrl};

/// `[store]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Storage of users: sqlite:FILE, or memory: for none. Default: sqlite:DATA/strowger.db.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<StoreUrl>,
    /// Database of users and gateways that several servers share: postgresql:// or
    /// mysql://USER:PASSWORD@HOST:PORT/DATABASE. If several are given, the first writable one is used. Its contents
    /// are copied to url.
    #[serde(skip_serializing_if = "OneOrMany::is_any")]
    pub shared_users: OneOrMany<SharedDatabase>,
    /// What a 200 to a REGISTER guarantees: write-through (the registration survives a crash), write-behind (it will
    /// survive after a moment) or memory (it ends with the process). Default: write-through, or memory if url is
    /// memory:.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// `store.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Store::mode` says what they mean")]
pub enum Mode {
    WriteThrough,
    WriteBehind,
    Memory,
}

impl Mode {
    /// Returns the name as written in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteBehind => "write-behind",
            Self::Memory => "memory",
        }
    }

    /// Whether registrations outlive the process.
    #[must_use]
    pub const fn is_durable(self) -> bool {
        !matches!(self, Self::Memory)
    }
}
