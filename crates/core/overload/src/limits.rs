//! What a shard may hold. What goes on and what waits for its timers have limits of their own: RFC 3261 keeps a transaction over
//! UDP for 64·T1 after its end (timers J, L and M), so that there are many more of those, and each is reckoned at a ninth of the
//! memory.

use core::time::Duration;

/// What a shard may hold; past it new work is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that were passed on and have no final answer yet.
    pub in_progress: usize,
    /// Server transactions, those included that wait for their timers.
    pub server_transactions: usize,
}

impl Limits {
    /// Where memory is no concern. Sixteen shards, which are a worker's, hold for 32 s the transactions of 491,520 registrations a
    /// second where all have as many, more than a fast core carries (some 380,000 in memory mode, bench/RESULTS.md), and of 409,600
    /// where chance gives one of them a fifth more. Past it the ones too many are refused: 0.004 % of 384,000 a second were when it
    /// was 655,360.
    pub const MAX: Self = Self { in_progress: 65_536, server_transactions: 983_040 };
    /// What a request takes that goes on, in bytes: its transactions and both of its messages.
    const IN_PROGRESS_BYTES: usize = 4_096;
    /// What a server transaction takes that waits for its timers: its key, and its response. A third more than those of calls, two of
    /// which take 671 bytes (bench/RESULTS.md); a REGISTER's takes 122.
    const WAITING_BYTES: usize = 448;

    /// So that all that a shard holds fits so many bytes.
    #[must_use]
    pub const fn within(bytes: usize) -> Self {
        let Self { in_progress: going_on, server_transactions } = Self::MAX;
        let most = going_on * Self::IN_PROGRESS_BYTES + server_transactions * Self::WAITING_BYTES;
        if bytes >= most {
            return Self::MAX;
        }
        // A thousandth is exact enough, and cannot overflow.
        let part = bytes / (most / 1_000);
        Self { in_progress: going_on / 1_000 * part + 1, server_transactions: server_transactions / 1_000 * part + 1 }
    }
}

/// What a refused client is told to wait.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How loaded a shard is.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests that were passed on and go on.
    pub in_progress: usize,
    /// Server transactions that exist.
    pub server_transactions: usize,
    /// What it may hold.
    pub limits: Limits,
    /// Whether the server is being stopped: what began is finished, nothing new is begun.
    pub is_draining: bool,
}

/// What becomes of a request that begins something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is served.
    Admit,
    /// It is answered 503 with Retry-After.
    Refuse {
        /// What Retry-After says.
        retry_after: Duration,
    },
    /// It is dropped: even a refusal would cost too much.
    Drop,
}

/// Decides; above a limit every eighth request is told, the others are dropped.
#[must_use]
pub const fn admit(load: Load, serial: u64) -> Admission {
    if load.is_draining {
        return Admission::Refuse { retry_after: RETRY_AFTER };
    }
    let Limits { in_progress: going_on, server_transactions } = load.limits;
    if load.in_progress < going_on && load.server_transactions < server_transactions {
        return Admission::Admit;
    }
    if serial.is_multiple_of(8) { Admission::Refuse { retry_after: RETRY_AFTER } } else { Admission::Drop }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_hold_and_draining_refuses() {
        let limits = Limits { in_progress: 10, server_transactions: 100 };
        let load = |going_on, server_transactions, draining| Load {
            in_progress: going_on,
            server_transactions,
            limits,
            is_draining: draining,
        };
        let refused = Admission::Refuse { retry_after: RETRY_AFTER };
        assert_eq!(admit(load(9, 99, false), 1), Admission::Admit);
        assert_eq!(admit(load(0, 100, false), 1), Admission::Drop);
        assert_eq!(admit(load(0, 100, false), 8), refused);
        assert_eq!(admit(load(10, 10, false), 1), Admission::Drop);
        assert_eq!(admit(load(0, 0, true), 1), refused);
    }

    #[test]
    fn what_a_shard_holds_fits_its_memory() {
        assert_eq!(Limits::within(usize::MAX), Limits::MAX);
        for mib in [0, 1, 8, 64, 300, 499] {
            let limits = Limits::within(mib << 20);
            let bytes =
                limits.in_progress * Limits::IN_PROGRESS_BYTES + limits.server_transactions * Limits::WAITING_BYTES;
            assert!(bytes <= (mib << 20) + 8_192 && bytes + (4 << 20) > mib << 20, "{mib} MiB: {limits:?}, {bytes}");
            assert!(limits.in_progress > 0, "it serves somebody");
        }
    }
}
