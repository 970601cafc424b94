//! Calls and registrations through a server, side by side with Debian's Kamailio and with a relay that does nothing.
//!
//! [`scenario`] says what is done and in which steps, [`peer`] who does it, [`relay`] is the floor, [`generate`] and [`watch`]
//! measure a server that runs, [`search`] finds its highest rate, [`instructions`] counts in callgrind, [`figures`] keeps what
//! came of it, [`table`] and [`plot`] show that.

pub mod figures;
pub mod generate;
pub mod instructions;
pub mod peer;
pub mod plot;
pub mod relay;
pub mod scenario;
pub mod search;
pub mod table;
pub mod watch;

/// The domain of all users.
pub const DOMAIN: &str = "ex.example.com";
