//! How many failovers the targets of one list are given: each is a request more to those that are left, which, where all have too
//! much to do, is what keeps them from doing it.

use core::sync::atomic::{AtomicU64, Ordering};

use strowger_foundation::Timestamp;

/// What a new request adds, in thousandths of a failover.
const DEPOSIT_PER_REQUEST: u64 = 100;
/// What a failover takes.
const COST_OF_FAILOVER: u64 = 1_000;
/// What is there at first, and what comes back by itself: so failover works where there are few requests.
const RESERVE: u64 = 10_000;
/// How much of the reserve comes back in a second.
const RESERVE_PER_SECOND: u64 = 1_000;
/// The most that is kept.
const MAX_BALANCE: u64 = 100_000_000;
/// Of what is kept beyond the reserve one part in so many is forgotten each second: so it is what the requests of the last half
/// minute have earned, enough for those that are on their way to a target when it dies.
const LIFETIME_S: u64 = 30;

/// The budget of one list of targets; shared by all who choose of it, without a lock.
///
/// A target that is known to be gone is passed over, which costs nothing: only a request that was sent in vain, and is sent once more,
/// does.
#[derive(Debug)]
pub struct FailoverBudget {
    /// In thousandths of a failover.
    left: AtomicU64,
    /// The second of the last look.
    aged: AtomicU64,
}

impl Default for FailoverBudget {
    fn default() -> Self {
        Self { left: AtomicU64::new(RESERVE), aged: AtomicU64::new(0) }
    }
}

impl FailoverBudget {
    /// A new request is sent to one of the targets.
    pub fn deposit(&self, now: Timestamp) {
        self.age(now);
        if self.left.fetch_add(DEPOSIT_PER_REQUEST, Ordering::Relaxed) >= MAX_BALANCE {
            self.left.fetch_min(MAX_BALANCE, Ordering::Relaxed);
        }
    }

    /// A request that one of them has not answered, or has refused, is to be sent to another; whether there is enough for that.
    #[must_use]
    pub fn try_withdraw(&self, now: Timestamp) -> bool {
        self.age(now);
        let less = |left: u64| left.checked_sub(COST_OF_FAILOVER);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Failovers that there is enough for.
    #[must_use]
    pub fn balance(&self) -> u64 {
        self.left.load(Ordering::Relaxed) / COST_OF_FAILOVER
    }

    /// Takes note of the seconds that have passed; of all who see them pass one does.
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
            // After ten lifetimes there is next to nothing of it.
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
    fn at_first_and_after_a_while_there_is_a_reserve() {
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
    fn what_was_earned_long_ago_is_forgotten_but_for_the_reserve() {
        let budget = FailoverBudget::default();
        for number in 0..600_000 {
            budget.deposit(second(number / 1_000));
        }
        // A thousand a second for ever: three seconds' worth of requests.
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
