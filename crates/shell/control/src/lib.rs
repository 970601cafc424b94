//! Control plane: configuration ([`config`]), the control socket of a running server ([`socket`]) and the display of
//! traces ([`ladder`]). Nothing here is time-critical.

#![forbid(unsafe_code)]

pub mod caller;
pub mod config;
pub mod dns;
pub mod ladder;
mod own_program;
pub mod protocol;
pub mod socket;
pub mod targets;

pub use own_program::own_program;
