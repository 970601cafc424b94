//! Decision whether to spin before sleeping, and for how long.
//!
//! Sleeping costs a worker's core the transition to sleep and back, and delays the message that ends the sleep by the
//! same time: far more than handling it. So the worker spins if the next message usually comes soon. It estimates
//! this from past waits: for each possible limit it computes the cost it would have had and takes the cheapest. If
//! messages are rare, that is not to spin at all, so an idle server uses no CPU.

use std::time::Duration;

use crate::options::{Spin, WAKE_UP};

/// Number of histogram classes into which the longest spin is divided.
const CLASSES: usize = 16;

/// Number of waits after which all counts are halved.
const REMEMBERED: u32 = 128;

/// Number of waits between recalculations of the limit.
const RECKON_EVERY: u32 = 16;

/// Spinning in vain may take at most one part in this many of the time spent working. A worker with little to do thus
/// loses little, and one that is limited to part of a core keeps most of it for work.
const LOSS_SHARE: u32 = 4;

/// Maximum budget that can accumulate.
const MAX_BUDGET: Duration = Duration::from_millis(2);

/// Decides how long a worker spins.
#[derive(Debug)]
pub(crate) struct Spinner {
    /// Spins without limit while the worker has shards.
    is_always_awake: bool,
    /// Longest spin, and the maximum cost of a spin to save one wake-up.
    longest: Duration,
    /// Histogram of waits in classes of `longest`; the last class counts all longer ones.
    waits: [u32; CLASSES + 1],
    remembered: u32,
    /// Waits since the limit was recalculated.
    unreckoned: u32,
    limit: Duration,
    /// Time that may still be lost to spinning in vain.
    budget: Duration,
}

impl Spinner {
    pub(crate) fn new(spin: Spin) -> Self {
        let (is_always_awake, longest) = match spin {
            Spin::UpTo(longest) => (false, longest),
            Spin::Always => (true, WAKE_UP),
        };
        let (waits, limit) = ([0; CLASSES + 1], Duration::ZERO);
        Self { is_always_awake, longest, waits, remembered: 0, unreckoned: 0, limit, budget: MAX_BUDGET }
    }

    /// Returns how long to spin; zero for not at all.
    pub(crate) fn limit(&self, has_shards: bool) -> Duration {
        match self.limit {
            _ if self.is_always_awake && has_shards => Duration::MAX,
            limit if self.budget < limit => Duration::ZERO,
            limit => limit,
        }
    }

    /// Records time spent working.
    pub(crate) fn on_worked(&mut self, worked: Duration) {
        self.budget = (self.budget + worked / LOSS_SHARE).min(MAX_BUDGET);
    }

    /// Records time `spent` spinning in vain.
    pub(crate) fn on_missed(&mut self, spent: Duration) {
        self.budget = self.budget.saturating_sub(spent);
    }

    /// Records that a message arrived `after` a wait began, spinning or asleep; `MAX` if something else ended the
    /// wait.
    pub(crate) fn on_waited(&mut self, after: Duration) {
        if self.longest.is_zero() {
            return;
        }
        let part = after.as_nanos().saturating_mul(CLASSES as u128) / self.longest.as_nanos();
        let class = usize::try_from(part).unwrap_or(CLASSES).min(CLASSES);
        if let Some(count) = self.waits.get_mut(class) {
            *count += 1;
        }
        self.remembered += 1;
        if self.remembered >= REMEMBERED {
            self.waits.iter_mut().for_each(|count| *count /= 2);
            self.remembered = self.waits.iter().sum();
        }
        self.unreckoned += 1;
        if self.unreckoned >= RECKON_EVERY {
            self.unreckoned = 0;
            self.limit = self.longest * cheapest(&self.waits) / CLASSES as u32;
        }
    }
}

/// Returns the cheapest limit, in classes. Every wait costs the time spent spinning, and a wait longer than the limit
/// costs a wake-up as well.
fn cheapest(waits: &[u32; CLASSES + 1]) -> u32 {
    let all: u32 = waits.iter().sum();
    // In half classes: a wait is assumed to have ended in the middle of its class.
    let (mut best, mut least) = (0, all * 2 * CLASSES as u32);
    let (mut ended, mut awake) = (0, 0);
    for (class, count) in waits.iter().take(CLASSES).enumerate() {
        let limit = class as u32 + 1;
        ended += count;
        awake += count * (2 * class as u32 + 1);
        let cost = awake + (all - ended) * 2 * (limit + CLASSES as u32);
        if cost < least {
            (best, least) = (limit, cost);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_micros(64);

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// Time to handle a message.
    const WORK: Duration = Duration::from_micros(25);

    /// Simulates waits, each ended by a message; returns the time spent spinning and the number of waits that ended
    /// asleep.
    fn pass(spinner: &mut Spinner, waits: impl IntoIterator<Item = Duration>) -> (Duration, u32) {
        let (mut awake, mut asleep) = (Duration::ZERO, 0);
        for wait in waits {
            let limit = spinner.limit(true);
            if wait < limit {
                awake += wait;
            } else {
                awake += limit;
                asleep += 1;
                spinner.on_missed(limit);
            }
            spinner.on_waited(wait);
            spinner.on_worked(WORK);
        }
        (awake, asleep)
    }

    #[test]
    fn an_idle_worker_sleeps() {
        let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
        assert_eq!(pass(&mut spinner, vec![Duration::from_millis(20); 1000]), (Duration::ZERO, 1000));
    }

    #[test]
    fn prompt_answers_are_awaited_by_spinning() {
        let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
        pass(&mut spinner, vec![micros(20); 32]);
        let (awake, asleep) = pass(&mut spinner, vec![micros(20); 1000]);
        assert_eq!((awake, asleep), (micros(20_000), 0));
    }

    #[test]
    fn each_pause_between_calls_costs_one_sleep() {
        let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
        let call = [vec![micros(20); 5], vec![micros(900)]].concat();
        pass(&mut spinner, call.repeat(20));
        let (awake, asleep) = pass(&mut spinner, call.repeat(100));
        assert_eq!(asleep, 100);
        // 5 × 20 µs as expected, plus one short spin in vain.
        assert!(awake >= micros(10_000) && awake <= micros(13_000), "{awake:?}");
    }

    #[test]
    fn a_zero_spin_limit_never_spins() {
        let mut spinner = Spinner::new(Spin::UpTo(Duration::ZERO));
        assert_eq!(pass(&mut spinner, vec![micros(1); 500]).0, Duration::ZERO);
    }

    #[test]
    fn spin_always_stays_awake_however_long_nothing_arrives() {
        let mut spinner = Spinner::new(Spin::Always);
        let waits = vec![Duration::from_secs(20); 500];
        assert_eq!(pass(&mut spinner, waits), (Duration::from_secs(20) * 500, 0));
        assert_eq!(spinner.limit(false), Duration::ZERO, "who has no shards would wait in vain");
    }

    #[test]
    fn slower_arrivals_stop_the_spinning() {
        let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
        pass(&mut spinner, vec![micros(10); 1000]);
        pass(&mut spinner, vec![micros(500); 200]);
        assert_eq!(pass(&mut spinner, vec![micros(500); 1000]).0, Duration::ZERO);
    }

    proptest! {
        #[test]
        fn time_lost_spinning_is_bounded(waits in prop::collection::vec(1_u64..400, 1..2000)) {
            let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
            let (mut lost, mut worked) = (Duration::ZERO, Duration::ZERO);
            for wait in waits.into_iter().map(micros) {
                let limit = spinner.limit(true);
                prop_assert!(limit <= LONGEST);
                if wait >= limit {
                    spinner.on_missed(limit);
                    lost += limit;
                }
                spinner.on_waited(wait);
                spinner.on_worked(WORK);
                worked += WORK;
            }
            prop_assert!(lost <= MAX_BUDGET + worked / LOSS_SHARE);
        }

        #[test]
        fn the_limit_never_costs_more_than_always_sleeping(counts in prop::array::uniform17(0_u32..100)) {
            let cost = |limit: usize| -> u32 {
                let paid = |(class, count): (usize, &u32)| {
                    let class_cost = if class < limit { 2 * class + 1 } else { 2 * (limit + CLASSES) };
                    count * class_cost as u32
                };
                counts.iter().enumerate().map(paid).sum()
            };
            let best = cheapest(&counts) as usize;
            prop_assert!((0..=CLASSES).all(|limit| cost(best) <= cost(limit)));
        }
    }
}
