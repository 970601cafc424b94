//! Throughput of a registrar and its recovery time after a restart: a load generator, the compared servers, and their
//! resource usage.

pub mod contender;
pub mod load;
pub mod message;
pub mod probe;
pub mod process;
pub mod report;
pub mod rounds;
pub mod scale;
pub mod start;
