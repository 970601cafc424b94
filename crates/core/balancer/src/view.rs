//! What an operator is shown of a target.

use core::fmt;
use core::time::Duration;

use strowger_foundation::Timestamp;

use crate::target::TargetId;

/// Whether a target takes new work. Of several reasons why not, the first that stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// The configuration says that it takes none.
    Disabled,
    /// Probes say that it is down.
    Down,
    /// It is being drained.
    Draining,
    /// It has come back, and takes part of its share.
    SlowStart {
        /// How much of it, in thousandths.
        share: u16,
    },
    /// It is in service.
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

/// All that is known of a member of a set at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// The target's name.
    pub id: TargetId,
    /// Its set's name.
    pub set: String,
    /// Its URI as configured.
    pub uri: String,
    /// Whether it takes new work.
    pub state: TargetState,
    /// Since when it is down, or has been back, where that is its state.
    pub since: Option<Timestamp>,
    /// Spares have a higher number.
    pub priority: u16,
    /// Its part, relative to the others'.
    pub weight: u16,
    /// Most calls at one time.
    pub capacity: Option<u32>,
    /// Calls in progress.
    pub calls: u32,
    /// Transactions in progress.
    pub transactions: u32,
    /// Work in progress, in thousandths of a BYE transaction.
    pub work: u64,
    /// How long requests wait for their first response, on average.
    pub response_time: Option<Duration>,
    /// What an INVITE transaction weighs here, in thousandths of a BYE transaction.
    pub invite_weight: u16,
    /// Transactions that began since the process did.
    pub requests: u64,
    /// Those of them that got no answer, or a 503.
    pub failures: u64,
}
