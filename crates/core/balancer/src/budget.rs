//! The failover budget of a list of targets. Each failover is one more request to the remaining targets, and when all
//! are overloaded, failovers keep them overloaded.

use core::sync::atomic::{AtomicU64, Ordering};

use strowger_foundation::Timestamp;

/// Deposit of a new request, in thousandths of a failover.
const DEPOSIT_PER_REQUEST: u64 = 100;
/// Cost of a failover, in thousandths.
const COST_OF_FAILOVER: u64 = 1_000;
/// Initial balance, which also refills by itself, in thousandths of a failover; it allows failover when there are few
/// requests.
const RESERVE: u64 = 10_000;
/// Refill of the reserve per second, in thousandths of a failover.
const RESERVE_PER_SECOND: u64 = 1_000;
/// Maximum balance, in thousandths of a failover.
const MAX_BALANCE: u64 = 100_000_000;
/// Lifetime of the balance above the reserve, in seconds: each second one part in this many is dropped. So it is what
/// the requests of the last half minute have deposited, enough for those in progress at a target when it fails.
const LIFETIME_S: u64 = 30;

/// The failover budget of one list of targets; shared without a lock by everything that selects from the list.
///
/// Skipping a target that is known to be gone costs nothing. Only a request that failed and is sent again does.
#[derive(Debug)]
pub struct FailoverBudget {
    /// The balance, in thousandths of a failover.
    left: AtomicU64,
    /// The second at which the balance was last aged.
    aged: AtomicU64,
}

impl Default for FailoverBudget {
    fn default() -> Self {
        Self { left: AtomicU64::new(RESERVE), aged: AtomicU64::new(0) }
    }
}

impl FailoverBudget {
    /// Adds the deposit of a new request to one of the targets.
    pub fn deposit(&self, now: Timestamp) {
        self.age(now);
        if self.left.fetch_add(DEPOSIT_PER_REQUEST, Ordering::Relaxed) >= MAX_BALANCE {
            self.left.fetch_min(MAX_BALANCE, Ordering::Relaxed);
        }
    }

    /// Withdraws a failover for a request that got no response or was refused; returns whether the balance sufficed.
    #[must_use]
    pub fn try_withdraw(&self, now: Timestamp) -> bool {
        self.age(now);
        let less = |left: u64| left.checked_sub(COST_OF_FAILOVER);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Returns the number of failovers that the balance allows.
    #[must_use]
    pub fn balance(&self) -> u64 {
        self.left.load(Ordering::Relaxed) / COST_OF_FAILOVER
    }

    /// Ages the balance by the seconds that have passed; of concurrent callers only one does.
    fn age(&self, now: Timestamp) {
        let second = now.as_millis() / 1_000;
        let last = self.aged.load(Ordering::Relaxed);
        if second <= last || self.aged.compare_exchange(last, second, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let passed = second - last;
        let aged = |left: u64| {
            let Some(beyond) = left.checked_sub(RESERVE) else {
                return Some(left.saturating_add(passed.saturating_mul(RESERVE_PER_SECOND)).min(RESERVE));
            };
            // After ten lifetimes it is negligible.
            let beyond = match passed {
                _ if passed > 10 * LIFETIME_S => 0,
                _ => (0..passed).fold(beyond, |beyond, _| beyond - beyond / LIFETIME_S),
            };
            Some(RESERVE + beyond)
        };
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, aged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Timestamp {
        Timestamp::from_millis(1_000 * number)
    }

    fn taken(budget: &FailoverBudget, now: Timestamp) -> u64 {
        (0..1_000_000).take_while(|_| budget.try_withdraw(now)).count() as u64
    }

    #[test]
    fn a_reserve_exists_at_first_and_refills() {
        let budget = FailoverBudget::default();
        assert_eq!(taken(&budget, second(5)), 10);
        assert_eq!(taken(&budget, second(5)), 0);
        assert_eq!(taken(&budget, second(8)), 3, "one a second without any request");
        assert_eq!(taken(&budget, second(3_600)), 10, "and no more than ten");
    }

    #[test]
    fn ten_requests_earn_one_failover() {
        let budget = FailoverBudget::default();
        assert_eq!(taken(&budget, second(1)), 10);
        for _ in 0..1_000 {
            budget.deposit(second(1));
        }
        assert_eq!(taken(&budget, second(1)), 100);
    }

    #[test]
    fn old_deposits_expire_down_to_the_reserve() {
        let budget = FailoverBudget::default();
        for number in 0..600_000 {
            budget.deposit(second(number / 1_000));
        }
        // A thousand per second constantly: three seconds' worth of requests.
        assert!((2_900..3_100).contains(&budget.balance()), "{}", budget.balance());
        assert_eq!(taken(&budget, second(100_000)), 10);
    }

    #[test]
    fn it_is_bounded() {
        let budget = FailoverBudget::default();
        for _ in 0..2_000_000 {
            budget.deposit(second(1));
        }
        assert!(budget.balance() <= (MAX_BALANCE + DEPOSIT_PER_REQUEST) / COST_OF_FAILOVER);
    }
}
