//! Admission: whether new work is taken, decided before it is parsed.
//!
//! For now the one measure is how many transactions a shard holds; limits a source and in time come to stand beside it.

#![forbid(unsafe_code)]

use core::time::Duration;

/// New work is refused past this many server transactions in a shard.
pub const MAX_SERVER_TRANSACTIONS: usize = 65_536;
/// What a refused client is told to wait.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How loaded a shard is.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Server transactions that exist.
    pub server_transactions: usize,
    /// Whether the server is being stopped: what began is finished, nothing new is begun.
    pub draining: bool,
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

/// Decides; above the limit every eighth request is told, the others are dropped.
#[must_use]
pub const fn admit(load: Load, serial: u64) -> Admission {
    if load.draining {
        return Admission::Refuse { retry_after: RETRY_AFTER };
    }
    if load.server_transactions < MAX_SERVER_TRANSACTIONS {
        return Admission::Admit;
    }
    if serial.is_multiple_of(8) { Admission::Refuse { retry_after: RETRY_AFTER } } else { Admission::Drop }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_draining_refuses() {
        let load = |server_transactions, draining| Load { server_transactions, draining };
        assert_eq!(admit(load(0, false), 1), Admission::Admit);
        assert_eq!(admit(load(MAX_SERVER_TRANSACTIONS, false), 1), Admission::Drop);
        assert_eq!(admit(load(MAX_SERVER_TRANSACTIONS, false), 8), Admission::Refuse { retry_after: RETRY_AFTER });
        assert_eq!(admit(load(0, true), 1), Admission::Refuse { retry_after: RETRY_AFTER });
    }
}
