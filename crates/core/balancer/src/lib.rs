//! Selection among several targets for a request.
//!
//! A [`Set`] is a named list of targets with a [`Policy`]; [`Set::select`] returns the order in which a request tries
//! them. A [`Target`]'s counts are the numbers of existing guards, one for each transaction ([`RequestGuard`]) and
//! each call ([`CallGuard`]) in progress. So counts do not drift when messages are lost, when a shard is discarded,
//! or when the configuration is replaced around the same targets.
//!
//! This crate knows no SIP beyond the names of methods. Three policies are those of Jiang and others for clusters of
//! SIP servers: call-join-shortest-queue, transaction-join-shortest-queue and transaction-least-work-left; the hashes
//! are those that the papers compare them with.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        reason = "a test may fail loudly"
    )
)]

mod averages;
mod budget;
mod eligibility;
pub mod hash;
mod health;
mod limits;
mod method;
mod partition;
mod policy;
mod rank;
mod registry;
mod selection;
mod selection_input;
mod set;
mod target;
mod transfer;
mod view;
mod weight_solver;

pub use budget::FailoverBudget;
pub use health::{BadStatusRange, FIRST_SHARE, FULL_SHARE, HealthChange, Probe, StatusRange};
pub use limits::{MAX_MEMBERS, MAX_TRIES};
pub use method::{BYE_WEIGHT, MethodClass, MethodWeights};
pub use partition::{Partition, SLOTS, Slot, SlotLoads};
pub use policy::{Candidates, Key, Policy, UnknownName, Weights};
pub use registry::{MAX_TARGETS, Registry, RegistryError};
pub use selection::MemberOrder;
pub use selection_input::{Advice, SelectionInput};
pub use set::{FAILOVER_TIMEOUT, Member, Set, SetConfig, SetError};
pub use target::{BadTargetId, CallGuard, RequestGuard, Target, TargetId};
pub use transfer::{ImportedTargets, TransferError};
pub use view::{TargetState, TargetView};
pub use weight_solver::{WeightedCluster, solve_weights};
