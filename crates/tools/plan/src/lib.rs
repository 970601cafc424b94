//! Models for planning a SIP service: waiting times, drops, the capacity of threads, cores and stages, availability,
//! and the number of servers.
//!
//! The crate is pure mathematics: it reads no file and no clock, and random draws take a seed. Inputs and results are
//! in SI units (seconds, 1/s, bytes), and each name ends with its unit; probabilities and shares are between 0 and 1.
//! Invalid input is rejected with a [`PlanError`], which names the input, the cause and a remedy.
//!
//! A result explains itself ([`Explain`]): it lists the formulas with their numbers and sources.
//!
//! | module | question | begin with |
//! |---|---|---|
//! | [`mg1`](mod@mg1) | how long does a packet wait at one server? | [`mg1()`] |
//! | [`mmck`](mod@mmck) | how many packets do c servers with K places drop? | [`mmck()`] |
//! | [`mgck`](mod@mgck) | the same, when service times are not exponential | [`mgck()`] |
//! | [`threads`] | what do c threads on one core cost? | [`threads_on_one_core()`] |
//! | [`capacity`] | what is the highest rate that meets an objective? | [`highest_rate()`] |
//! | [`cores`](mod@cores) | what is the capacity of several cores? | [`cores()`] |
//! | [`overload`](mod@overload) | what is the goodput under overload? | [`overload()`] |
//! | [`two_stage`] | what is the capacity of a two-stage cluster, and when is a first stage needed? | [`TwoStage::throughput`], [`stages()`] |
//! | [`databases`](mod@databases) | replicate or partition? | [`databases()`] |
//! | [`availability`] | how many nines? | [`Availability::two_stage`] |
//! | [`failover`](mod@failover) | how does a failure affect callers? | [`failover()`] |
//! | [`size`](mod@size) | how many servers do I need? | [`size()`] |
//! | [`fit`](mod@fit) | what does *my* server cost, and how certain is that? | [`fit::fit()`] |
//! | [`validate`](mod@validate) | do the models hold for it? | [`validate::validate()`] |
//!
//! ```
//! use strowger_plan::{Explain, ServiceTime, mg1};
//!
//! # fn main() -> Result<(), strowger_plan::PlanError> {
//! let queue = mg1(4_800.0, ServiceTime::with_scv(181.185e-6, 0.022)?)?;
//! assert_eq!((queue.wait_s * 1e6).round(), 618.0);
//! assert_eq!(queue.explain().steps[1].numbers, "4,800/s × 181.185 µs");
//! # Ok(())
//! # }
//! ```
//!
//! Explanations cite these papers: *thesis* is Krishnamurthy's framework for evaluating SIP proxy servers, *failover
//! paper* is Singh and Schulzrinne on failover and load sharing, *TCP paper* is Ono and Schulzrinne on the impact of
//! TCP.

#![forbid(unsafe_code)]

pub mod availability;
pub mod capacity;
pub mod cores;
pub mod curve;
pub mod databases;
pub mod error;
pub mod explain;
pub mod failover;
mod finite_queue;
pub mod fit;
pub mod mg1;
pub mod mgck;
pub mod mmck;
pub mod overload;
pub mod service;
pub mod size;
pub mod threads;
pub mod timing;
pub mod traffic;
pub mod two_stage;
pub mod units;
pub mod validate;

pub use availability::Availability;
pub use capacity::{Capacity, Objective, highest_rate};
pub use cores::{Cores, cores};
pub use curve::Curve;
pub use databases::{Databases, databases};
pub use error::PlanError;
pub use explain::{Explain, Explanation, Step};
pub use failover::{Failover, FailoverTimes, failover};
pub use mg1::{Mg1, mg1};
pub use mgck::{Mgck, mgck};
pub use mmck::{Mmck, mmck};
pub use overload::{Overload, overload};
pub use service::ServiceTime;
pub use size::{Plan, Profile, Requirements, size};
pub use threads::{Beta, ThreadService, threads_on_one_core};
pub use timing::{MessageTiming, PacketTiming, Part};
pub use traffic::{Calls, Traffic, traffic};
pub use two_stage::{
    Bottleneck, BreakPoint, PartStateful, StageRequirements, StageSizing, TwoStage, part_stateful,
    part_stateful_capacity, stages,
};
