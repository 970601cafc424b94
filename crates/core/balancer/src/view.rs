//! The operator's view of a target.

use core::fmt;
use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::target::TargetId;

/// Whether a target takes new work. If several reasons apply, the first in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// Disabled in the configuration.
    Disabled,
    /// Down according to probes.
    Down,
    /// Being drained.
    Draining,
    /// Back in service with a part of its share.
    SlowStart {
        /// The current share, in thousandths.
        share: u16,
    },
    /// In service.
    Up,
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disabled => "disabled",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::SlowStart { .. } => "slow start",
            Self::Up => "up",
        })
    }
}

/// The state of a member of a set at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// The target's ID.
    pub id: TargetId,
    /// The name of its set.
    pub set: String,
    /// Its URI as configured.
    pub uri: String,
    /// Whether it takes new work.
    pub state: TargetState,
    /// Since when it is down or back, for those states.
    pub since: Option<Timestamp>,
    /// Priority; spares have a higher number.
    pub priority: u16,
    /// Weight relative to the other members.
    pub weight: u16,
    /// Maximum number of concurrent calls.
    pub capacity: Option<u32>,
    /// Calls in progress.
    pub calls: u32,
    /// Transactions in progress.
    pub transactions: u32,
    /// Work in progress, in thousandths of a BYE transaction.
    pub work: u64,
    /// Average time until the first response.
    pub response_time: Option<Duration>,
    /// Weight of an INVITE transaction at this target, in thousandths of a BYE transaction.
    pub invite_weight: u16,
    /// Number of transactions since the start of the process.
    pub requests: u64,
    /// Number of transactions without a response or with a 503.
    pub failures: u64,
}
