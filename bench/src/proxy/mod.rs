//! Calls and registrations through a server, side by side with Debian's Kamailio and a relay without logic.
//!
//! [`scenario`] defines scenarios and their steps, [`peer`] the servers, [`relay`] is the lower bound. [`generate`]
//! and [`watch`] measure a running server, [`search`] finds its highest rate, [`instructions`] counts with callgrind.
//! [`figures`] saves the results, [`table`] and [`plot`] present them.

pub mod figures;
pub mod generate;
pub mod instructions;
pub mod peer;
pub mod plot;
pub mod relay;
pub mod scenario;
pub mod search;
pub mod steps;
pub mod table;
pub mod watch;

/// Domain of all users.
pub const DOMAIN: &str = "ex.example.com";
