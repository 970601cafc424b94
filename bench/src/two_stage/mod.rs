//! Clusters of two stages: S first-stage servers hash each user to one of P clusters of B servers. What they carry at each load, beside
//! the formula of Singh and Schulzrinne's failover paper (section 5.2) and the paper's own figures.
//!
//! [`layout`] names the arrangements, [`configuration`] writes the configurations of their servers, [`site`] starts them, each held to
//! the same share of a core; [`load`] offers calls and registrations to them, [`sweep`] raises the load through saturation, [`capacity`]
//! finds what one server of each stage carries and [`prediction`] computes what all of them should. [`results`] keeps what was measured,
//! [`table`] and [`plot`] show it, [`paper`] has the figures of the paper.

pub mod capacity;
pub mod configuration;
pub mod deployment;
pub mod layout;
pub mod load;
pub mod paper;
pub mod plot;
pub mod prediction;
pub mod results;
pub mod sweep;
pub mod table;

/// The core that all servers share.
pub const SERVER_CORE: &str = "0";
/// The core of callers and callees.
pub const GENERATOR_CORE: usize = 1;
/// The domain of all users.
pub const DOMAIN: &str = "two-stage.example";
/// Users who are called, or register, of all callers together.
pub const USERS: u32 = 1_000;
