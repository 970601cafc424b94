//! Workers that share one peer's messages, each held to a part of a core.

pub mod cpu_quota;
pub mod run;

/// The domain of all users.
const DOMAIN: &str = "example.com";
