//! Benchmarks, and the mutations that the server is tortured with. Nothing here is a timed test.

pub mod apart;
pub mod balancer;
pub mod callgrind;
pub mod calm;
pub mod cluster;
#[path = "../../interop/src/crowd.rs"]
pub mod crowd;
pub mod exercise;
pub mod generator;
pub mod kept;
pub mod messages;
pub mod models;
pub mod mutate;
pub mod overload;
pub mod plot;
pub mod programs;
pub mod proxy;
pub mod quota;
pub mod register;
pub mod server;
pub mod subject;
pub mod tables;
pub mod tcp;
pub mod two_stage;
pub mod workers;
