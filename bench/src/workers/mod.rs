//! Workers that share one peer's messages, each limited to a share of a core.

pub mod cpu_quota;
pub mod run;

/// Domain of all users.
const DOMAIN: &str = "example.com";
