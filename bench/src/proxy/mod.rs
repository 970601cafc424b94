//! Calls and registrations through a server, side by side with Debian's Kamailio, by `strowger load`.
//!
//! [`scenario`] says what is done, [`peer`] who does it, [`measure`] runs the generator and reads its report, [`table`] shows it.

pub mod measure;
pub mod peer;
pub mod scenario;
pub mod table;

/// The domain of all users.
pub const DOMAIN: &str = "ex.example.com";
