//! Limits of a shard. Requests in progress and transactions waiting for their timers have separate limits: RFC 3261
//! keeps a transaction over UDP for 64·T1 after its end (timers J, L and M), so there are many more of those, at
//! about a ninth of the memory each.

use core::time::Duration;

/// Limits of a shard; beyond them it refuses new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Forwarded requests without a final response.
    pub in_progress: usize,
    /// Server transactions, including those waiting for their timers.
    pub server_transactions: usize,
}

impl Limits {
    /// Limits if memory does not constrain them. The sixteen shards of a worker hold for 32 s the transactions of
    /// 491,520 registrations a second if these are spread evenly, more than a fast core carries (some 380,000 in
    /// memory mode, bench/RESULTS.md), and of 409,600 if one shard by chance has a fifth more. Beyond that the excess
    /// is refused: with a limit of 655,360 that was 0.004 % of 384,000 a second.
    pub const MAX: Self = Self { in_progress: 65_536, server_transactions: 983_040 };
    /// Memory of a request in progress, in bytes: its transactions and both of its messages.
    const IN_PROGRESS_BYTES: usize = 4_096;
    /// Memory of a server transaction waiting for its timers, in bytes: its key and its response. A third more than a
    /// call needs, whose two take 671 bytes (bench/RESULTS.md); a REGISTER's takes 122.
    const WAITING_BYTES: usize = 448;

    /// Returns limits under which a shard fits in `bytes`.
    #[must_use]
    pub const fn within(bytes: usize) -> Self {
        let Self { in_progress: going_on, server_transactions } = Self::MAX;
        let most = going_on * Self::IN_PROGRESS_BYTES + server_transactions * Self::WAITING_BYTES;
        if bytes >= most {
            return Self::MAX;
        }
        // Precise to a thousandth, and cannot overflow.
        let part = bytes / (most / 1_000);
        Self { in_progress: going_on / 1_000 * part + 1, server_transactions: server_transactions / 1_000 * part + 1 }
    }
}

/// Retry-After of a refusal.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Load of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Forwarded requests in progress.
    pub in_progress: usize,
    /// Existing server transactions.
    pub server_transactions: usize,
    /// Its limits.
    pub limits: Limits,
    /// Whether the server is shutting down: it finishes what is in progress and accepts nothing new.
    pub is_draining: bool,
}

/// Decision on a request that begins something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Serve it.
    Admit,
    /// Answer 503 with Retry-After.
    Refuse {
        /// Value of Retry-After.
        retry_after: Duration,
    },
    /// Drop it: even a refusal would cost too much.
    Drop,
}

/// Decides on a request. Above a limit every eighth request is answered 503; the others are dropped.
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
    fn a_shards_limits_fit_its_memory() {
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
