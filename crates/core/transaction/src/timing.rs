//! Base values of RFC 3261's timers (§17, table 4); all others are derived from them.

use core::time::Duration;

use strowger_foundation::wheel::TICK;

/// T1, T2 and T4. Defaults are those of the RFC; change them only for a network known to be faster or slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The round-trip estimate.
    pub t1: Duration,
    /// The longest interval between retransmissions of a non-INVITE request or an INVITE response.
    pub t2: Duration,
    /// The maximum lifetime of a message in the network.
    pub t4: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        //= rfc3261#17.1.1.2:t1
        Self { t1: Duration::from_millis(500), t2: Duration::from_secs(4), t4: Duration::from_secs(5) }
    }
}

impl Timing {
    /// 64·T1: Timers B, F, H, J, L and M, and D on an unreliable transport.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.t1.saturating_mul(64)
    }

    //= rfc3261#17.1.1.2:backoff
    /// Returns the interval after the `count`-th transmission (from 0), doubling without limit: Timer A.
    pub(crate) fn doubling(&self, count: u8) -> Duration {
        self.t1.saturating_mul(1 << count.min(30)).max(TICK)
    }

    //= rfc3261#17.1.2.2:timer-e
    /// Returns the same interval, limited to T2: Timers E and G.
    pub(crate) fn doubling_to_t2(&self, count: u8) -> Duration {
        self.doubling(count).min(self.t2).max(TICK)
    }

    /// Time until a client's Timer E reaches T2 (RFC 4320 §4.1).
    pub(crate) fn until_t2(&self) -> Duration {
        let intervals = (0..=30u8).map(|count| self.doubling(count));
        intervals.take_while(|interval| *interval < self.t2).fold(Duration::ZERO, Duration::saturating_add)
    }
}
