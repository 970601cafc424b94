//! Benchmarks, and the mutations that the server is tortured with. Nothing here is a timed test.

pub mod exercise;
pub mod messages;
pub mod mutate;
pub mod subject;
