//! Servers that share registrations through an engine, beside one server alone and Debian's Kamailio: what a REGISTER costs, when the
//! other server knows of it, how soon a new one is there, and what happens while the engine stands still.
//!
//! [`engine`] starts Redis, PostgreSQL and MariaDB as an operator would, [`contender`] says who is compared and [`site`] starts it;
//! [`rates`], [`propagation`], [`joining`] and [`frozen`] measure. [`results`] keeps what was measured, [`table`] and [`plot`] show it.

pub mod contender;
pub mod deployment;
pub mod engine;
pub mod frozen;
pub mod joining;
pub mod plot;
pub mod propagation;
pub mod rates;
pub mod requests;
pub mod results;
pub mod table;

/// The core of the server that registers phones, and of the engine.
pub const SERVER_CORE: &str = "0";
/// The core of what stands for other machines: the phones, the second server, and a replica of the engine.
pub const OTHER_CORE: usize = 1;
