//! Servers that share registrations through an engine, beside a single server and Debian's Kamailio: the cost of a
//! REGISTER, the time until the other server knows a binding, the start of a new member, and the effect of a frozen
//! engine.
//!
//! [`engine`] starts Redis, PostgreSQL and MariaDB as an operator would, [`contender`] defines the compared servers
//! and [`deployment`] starts them; [`rates`], [`propagation`], [`joining`] and [`frozen`] measure. [`results`] saves
//! the results, [`table`] and [`plot`] present them.

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

/// Core of the server at which phones register, and of the engine.
pub const SERVER_CORE: &str = "0";
/// Core of everything that stands for other machines: the phones, the second server and the engine's replica.
pub const OTHER_CORE: usize = 1;
