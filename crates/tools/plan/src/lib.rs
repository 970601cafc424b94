//! The models by which a SIP service is planned: how long packets wait, how many are dropped, what threads, cores and
//! stages carry, how available it is, and how many servers it needs.
//!
//! Pure mathematics: nothing here reads a file or a clock, and what draws is given its seed. Inputs and answers are in SI
//! units (seconds, a second, bytes), and each name ends with its unit; probabilities and shares are between 0 and 1. What
//! cannot be is refused with a [`PlanError`], which names the input, says why, and offers a remedy.
//!
//! An answer explains itself ([`Explain`]): the formulas with their numbers, and where they come from.
//!
//! | module | question | begin with |
//! |---|---|---|
//! | [`mg1`](mod@mg1) | how long does a packet wait at one server? | [`mg1()`] |
//! | [`mmck`](mod@mmck) | how many packets do c servers with K places drop? | [`mmck()`] |
//! | [`mgck`](mod@mgck) | the same, when service times are not exponential | [`mgck()`] |
//! | [`threads`] | what do c threads on one core cost? | [`threads_on_one_core()`] |
//! | [`capacity`] | what is the highest rate that keeps a promise? | [`highest_rate()`] |
//! | [`cores`](mod@cores) | what do more cores carry? | [`cores()`] |
//! | [`overload`](mod@overload) | what is carried when more comes than can be? | [`overload()`] |
//! | [`two_stage`] | what does a cluster of two stages carry, and when is the first needed? | [`TwoStage::throughput`], [`stages()`] |
//! | [`databases`](mod@databases) | replicate or partition? | [`databases()`] |
//! | [`availability`] | how many nines? | [`Availability::two_stage`] |
//! | [`failover`](mod@failover) | what does a failure cost the callers? | [`failover()`] |
//! | [`size`](mod@size) | how many servers do I need? | [`size()`] |
//! | [`fit`](mod@fit) | what does *my* server cost, and how sure is that? | [`fit::fit()`] |
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
//! The papers are named in explanations: *thesis* is Krishnamurthy's framework for evaluating SIP proxy servers, *failover
//! paper* Singh and Schulzrinne on failover and load sharing, *TCP paper* Ono and Schulzrinne on the impact of TCP.

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
