//! Whether to wait awake, and for how long.
//!
//! A worker that sleeps costs its core the way to sleep and back, and the message that it sleeps for the time of that: far
//! more than dealing with it. So it waits awake where what it waits for usually comes soon. How soon that is, it knows from
//! how long it waited before: of each possible limit it reckons what that would have cost, and takes the cheapest. Where
//! messages come seldom that is not to wait at all, so an idle server uses no processor.

use std::time::Duration;

use crate::options::{Spin, WAKE_UP};

/// How finely waits are told apart: by so many parts of the longest spin.
const CLASSES: usize = 16;

/// Waits that are remembered; the older half of them counts half.
const REMEMBERED: u32 = 128;

/// After so many waits the limit is reckoned anew.
const RECKON_EVERY: u32 = 16;

/// What is lost by waiting awake for what does not come is at most one part in so many of the time at work. So a worker that
/// has little to do loses little, and one that is held to a part of a core keeps most of that for its work.
const LOSS_SHARE: u32 = 4;

/// How much of that may be saved up.
const MAX_BUDGET: Duration = Duration::from_millis(2);

/// Decides how long a worker waits awake.
#[derive(Debug)]
pub(crate) struct Spinner {
    /// As long as there are shards.
    is_always_awake: bool,
    /// The longest spin, and what a spin may cost to save one wake-up.
    longest: Duration,
    /// How many waits took so many parts of `longest`; the last is all that took more.
    waits: [u32; CLASSES + 1],
    remembered: u32,
    /// Waits since the limit was reckoned.
    unreckoned: u32,
    limit: Duration,
    /// What may still be lost.
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

    /// How long to wait awake now; zero for not at all.
    pub(crate) fn limit(&self, has_shards: bool) -> Duration {
        match self.limit {
            _ if self.is_always_awake && has_shards => Duration::MAX,
            limit if self.budget < limit => Duration::ZERO,
            limit => limit,
        }
    }

    /// The worker was at work for so long.
    pub(crate) fn on_worked(&mut self, worked: Duration) {
        self.budget = (self.budget + worked / LOSS_SHARE).min(MAX_BUDGET);
    }

    /// `spent` was spent waiting awake, and nothing came.
    pub(crate) fn on_missed(&mut self, spent: Duration) {
        self.budget = self.budget.saturating_sub(spent);
    }

    /// Something came `after` a wait began, whether that was spent awake or asleep; `MAX` for what was no message.
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

/// The limit, in classes, that would have cost the least: every wait costs what was spent awake, and one that was longer than
/// the limit a wake-up on top of that.
fn cheapest(waits: &[u32; CLASSES + 1]) -> u32 {
    let all: u32 = waits.iter().sum();
    // In halves of a class: a wait is taken to have ended in the middle of its class.
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

    /// What a message takes.
    const WORK: Duration = Duration::from_micros(25);

    /// Lets waits pass, each of them for a message; what was spent awake, and how many ended asleep.
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
    fn answers_that_come_at_once_are_awaited_awake() {
        let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
        pass(&mut spinner, vec![micros(20); 32]);
        let (awake, asleep) = pass(&mut spinner, vec![micros(20); 1000]);
        assert_eq!((awake, asleep), (micros(20_000), 0));
    }

    #[test]
    fn calls_with_pauses_between_them_cost_a_sleep_each() {
        let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
        let call = [vec![micros(20); 5], vec![micros(900)]].concat();
        pass(&mut spinner, call.repeat(20));
        let (awake, asleep) = pass(&mut spinner, call.repeat(100));
        assert_eq!(asleep, 100);
        // 5 × 20 µs awaited, and one short spin that was in vain.
        assert!(awake >= micros(10_000) && awake <= micros(13_000), "{awake:?}");
    }

    #[test]
    fn a_worker_that_is_told_never_to_spin_does_not() {
        let mut spinner = Spinner::new(Spin::UpTo(Duration::ZERO));
        assert_eq!(pass(&mut spinner, vec![micros(1); 500]).0, Duration::ZERO);
    }

    #[test]
    fn a_worker_that_is_told_to_stay_awake_does_however_long_nothing_comes() {
        let mut spinner = Spinner::new(Spin::Always);
        let waits = vec![Duration::from_secs(20); 500];
        assert_eq!(pass(&mut spinner, waits), (Duration::from_secs(20) * 500, 0));
        assert_eq!(spinner.limit(false), Duration::ZERO, "who has no shards would wait in vain");
    }

    #[test]
    fn what_stops_coming_soon_is_noticed() {
        let mut spinner = Spinner::new(Spin::UpTo(LONGEST));
        pass(&mut spinner, vec![micros(10); 1000]);
        pass(&mut spinner, vec![micros(500); 200]);
        assert_eq!(pass(&mut spinner, vec![micros(500); 1000]).0, Duration::ZERO);
    }

    proptest! {
        #[test]
        fn what_is_lost_stays_within_its_share(waits in prop::collection::vec(1_u64..400, 1..2000)) {
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
        fn the_limit_never_costs_more_than_always_sleeping_would(counts in prop::array::uniform17(0_u32..100)) {
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
