//! A load generator: calls by any law of arrivals, both ends of them, and exact accounts of what became of each.
//!
//! What a call does is data, a [`script`]; a [`driver`] walks sessions through scripts without sockets or clock; the
//! [`engine`] gives it both, one thread a core.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod arrival;
pub mod driver;
pub mod engine;
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
