//! Two-stage clusters: S first-stage servers hash each user to one of P clusters of B servers. Measures throughput at
//! each load, beside the formula of Singh and Schulzrinne's failover paper (section 5.2) and the paper's own figures.
//!
//! [`layout`] defines the layouts, [`configuration`] writes the configuration of their servers, [`deployment`] starts
//! them, each limited to the same share of a core. [`load`] offers calls and registrations, [`sweep`] raises the load
//! through saturation, [`capacity`] finds the capacity of a single server of each stage and [`prediction`] computes
//! that of a whole layout. [`results`] saves the results, [`table`] and [`plot`] present them, [`paper`] has the
//! paper's figures.

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

/// Core shared by all servers.
pub const SERVER_CORE: &str = "0";
/// Core of callers and callees.
pub const GENERATOR_CORE: usize = 1;
/// Domain of all users.
pub const DOMAIN: &str = "two-stage.example";
/// Number of users who are called or register, over all callers.
pub const USERS: u32 = 1_000;
