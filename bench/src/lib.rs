//! Benchmarks, and the message mutations of the torture test. Nothing here is a timed test.

pub mod balancer;
pub mod callgrind;
pub mod cluster;
#[path = "../../interop/src/connection_load.rs"]
pub mod connection_load;
pub mod exercise;
pub mod failover;
pub mod generator;
pub mod message_target;
pub mod messages;
pub mod models;
pub mod mutate;
pub mod namespace;
pub mod overload;
pub mod plot;
pub mod programs;
pub mod proxy;
pub mod quiet;
pub mod quota;
pub mod register;
pub mod saved_results;
pub mod server;
pub mod tables;
pub mod tcp;
pub mod two_stage;
pub mod workers;
