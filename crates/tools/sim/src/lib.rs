//! Deterministic simulator: the production core in virtual time, with scripted user agents and a faulty network.
//!
//! The network loses, duplicates, reorders and delays datagrams, closes connections and varies DNS answers. Rules are
//! checked after every event.
//!
//! A seed determines the whole run. `cargo run -p strowger-sim --bin sim -- --seeds 0..1000` runs many seeds; the
//! first that violates a rule is printed with the command that replays it. [`mutant`] contains planted bugs, which
//! prove that the rules detect them.
//!
//! [`overload`] puts the kernel's receive queues and a worker with a limited capacity in front of the same server,
//! and compares policies of overload control: `cargo run --release -p strowger-sim --bin sim -- --overload` prints
//! the comparison.

#![forbid(unsafe_code)]

pub mod agent;
pub mod crash_points;
pub mod dns;
mod faults;
pub mod invariants;
pub mod ladder;
pub mod ledger;
pub mod mutant;
pub mod network;
pub mod overload;
pub mod rng;
pub mod scenario;
pub mod server;
pub mod store;
pub mod streams;
pub mod world;
