//! A load generator: it makes calls with any arrival process, plays both ends of them, and keeps exact counts of
//! their outcomes.
//!
//! The steps of a call are data, a [`script`]. A [`driver`] runs sessions through scripts without sockets or a clock.
//! The [`engine`] supplies both, with one thread per core.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod arrival;
pub mod driver;
pub mod engine;
pub mod handshakes;
pub mod law;
pub mod meter;
pub mod metrics;
pub mod options;
pub mod output;
pub mod population;
pub mod process_usage;
mod recovery;
pub mod refusals;
pub mod replay;
pub mod report;
pub mod script;
pub mod search;
pub mod service;
mod session;
pub mod sipp;
pub mod statistics;
pub mod sweep;
pub mod tally;
mod time_histogram;
pub mod workload;
