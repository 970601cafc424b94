//! The plane that may be slow: what the operator writes ([`config`]) and what a running server is asked
//! ([`socket`]) and tells ([`ladder`]).

#![forbid(unsafe_code)]

pub mod config;
pub mod dns;
pub mod ladder;
pub mod protocol;
pub mod socket;
pub mod targets;
