//! The operator's policy for media.

use core::time::Duration;

use crate::engine::Engines;

/// Which calls go through an engine. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// None.
    #[default]
    Never,
    /// Those between a browser and a phone: one end uses WebSocket, the other does not.
    Browser,
    /// Also those with an end behind a NAT.
    Nat,
    /// All.
    Always,
}

/// What happens to a call if no engine answers or the engine refuses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The call is refused with 503.
    #[default]
    Refuse,
    /// The session description is forwarded as received.
    Forward,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct MediaPolicy {
    /// The engines.
    pub engines: Engines,
    /// Which calls go through them.
    pub when: When,
    /// What happens if that fails.
    pub on_failure: FailurePolicy,
    /// How long to wait for the answer of one engine; then the next is tried.
    pub timeout: Duration,
    /// Interval of probes of each engine.
    pub probe_interval: Duration,
}

impl Default for MediaPolicy {
    fn default() -> Self {
        Self {
            engines: Engines::default(),
            when: When::default(),
            on_failure: FailurePolicy::default(),
            timeout: Duration::from_millis(1000),
            probe_interval: Duration::from_secs(5),
        }
    }
}
