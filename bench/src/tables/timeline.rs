//! Three minutes of a registrar in steps of a tenth of a second: its share of a core, and the pauses in which it
//! serves no one.

use std::time::Duration;

use super::clock::processor_time;
use super::kind::Kind;
use super::measure::Population;
use super::model::Expiry;
use super::table::{BEGINNING, Names, PARTS, REFRESH, RegistrationOrder, SWEEP_EVERY, ThreadIndex};

/// Length of a bin.
pub const BIN: Duration = Duration::from_millis(100);
/// One in this many registrations is missing: its phone is away until the next turn.
const ABSENT: u32 = 20;
/// Time between two calls of a user, including the call.
const CALL_EVERY: Duration = Duration::from_secs(3_600 + 225);

/// Results of a table.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Kind of table.
    pub kind: Kind,
    /// How it finds expired registrations.
    pub expiry: Expiry,
    /// Share of a core in each [`BIN`].
    pub bins: Vec<f64>,
    /// Longest uninterrupted operation of the table.
    pub pause: Duration,
    /// Expired bindings.
    pub expired: usize,
    /// Maximum number of bindings, including expired ones that are still present.
    pub most: usize,
}

impl Timeline {
    /// Runs the users of a full table for an unmeasured time and then for `time`. Besides the table's own time, a
    /// registration takes `rest`, which includes the user's other requests in the same period.
    #[must_use]
    pub fn run(kind: Kind, expiry: Expiry, users: u32, (before, time): (Duration, Duration), rest: Duration) -> Self {
        let population = Population::new(kind, users, 1);
        let table = &*population.table;
        let mut seen = Self { kind, expiry, bins: Vec::new(), pause: Duration::ZERO, expired: 0, most: 0 };
        let mut names = Names::default();
        let (mut turn, mut calls, mut random) = (0_u64, 0.0, 1_u64);
        let order = RegistrationOrder::new(users);
        let unseen = (before.as_millis() / BIN.as_millis()) as u32;
        let bins = unseen + (time.as_millis() / BIN.as_millis()) as u32;
        let per_bin = f64::from(users) * BIN.as_secs_f64();
        let mut found = Vec::new();
        for bin in 0..bins {
            if bin == unseen {
                seen = Self { bins: Vec::new(), pause: Duration::ZERO, expired: 0, most: 0, ..seen };
            }
            let end = BEGINNING + BIN * (bin + 1);
            let mut busy = Duration::ZERO;
            let mut took = |seen: &mut Self, work: &mut dyn FnMut() -> usize| {
                let began = processor_time();
                seen.expired += work();
                let took = processor_time() - began;
                busy += took;
                seen.pause = seen.pause.max(took);
            };
            let due = (f64::from(bin + 1) * per_bin / REFRESH.as_secs_f64()) as u64;
            let mut served = 0_u32;
            while turn < due {
                let place = (turn % u64::from(users)) as u32;
                turn += 1;
                // Different users each time.
                if (place / 7 + (turn / u64::from(users)) as u32).is_multiple_of(ABSENT) {
                    continue;
                }
                served += 1;
                let (aor, contact) = names.both(order.user_at(u64::from(place)));
                let cseq = 3 + (turn / u64::from(users)) as u32;
                took(&mut seen, &mut || {
                    table.put(end, aor, contact, cseq);
                    0
                });
            }
            calls += per_bin / CALL_EVERY.as_secs_f64();
            while calls >= 1.0 {
                calls -= 1.0;
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let aor = names.aor((random >> 33) as u32 % users);
                found.clear();
                took(&mut seen, &mut || {
                    table.lookup(end, aor, &mut found);
                    0
                });
            }
            let per_second = (1_000 / BIN.as_millis()) as u32;
            match expiry {
                Expiry::Sweep if (bin + 1) % (SWEEP_EVERY.as_secs() as u32 * per_second) == per_second * 30 => {
                    took(&mut seen, &mut || table.sweep(end, 0, 1));
                }
                Expiry::Parts if (bin + 1) % per_second == 0 => {
                    took(&mut seen, &mut || table.sweep(end, (bin / per_second) as usize % PARTS, PARTS));
                }
                _ => {
                    let mut is_due = true;
                    while is_due {
                        took(&mut seen, &mut || {
                            let removed = table.step(end, ThreadIndex { thread: 0, of: 1 });
                            is_due = removed.is_some();
                            removed.unwrap_or(0)
                        });
                    }
                }
            }
            busy += rest * served;
            seen.bins.push(busy.as_secs_f64() / BIN.as_secs_f64());
            if bin % 50 == 0 {
                seen.most = seen.most.max(table.len());
            }
        }
        seen
    }

    /// Returns the mean of all bins.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.bins.iter().sum::<f64>() / self.bins.len() as f64
    }

    /// Returns the maximum of all bins.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.bins.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the bins with excess work carried over to the following ones: a core does at most its full share per
    /// bin.
    #[must_use]
    pub fn served(&self) -> Vec<f64> {
        let mut left = 0.0;
        let serve = |bin: &f64| {
            let all = bin + left;
            left = (all - 1.0).max(0.0);
            all.min(1.0)
        };
        self.bins.iter().map(serve).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_expire_absent_phones() {
        // Twenty minutes: a user who misses one turn expires.
        let time = Duration::from_secs(1_200);
        let run = |kind, expiry| Timeline::run(kind, expiry, 2_000, (Duration::ZERO, time), Duration::ZERO);
        let chained = Kind::Buckets(512);
        let all = [run(chained, Expiry::Sweep), run(chained, Expiry::Parts), run(Kind::Ours, Expiry::Own)];
        for seen in &all {
            assert!((100..200).contains(&seen.expired), "{seen:?}");
            assert_eq!(seen.bins.len(), 12_000);
        }
    }

    #[test]
    fn warm_up_is_not_recorded() {
        let (before, time) = (Duration::from_secs(60), Duration::from_secs(2));
        let seen = Timeline::run(Kind::Buckets(512), Expiry::Sweep, 2_000, (before, time), Duration::ZERO);
        assert_eq!((seen.bins.len(), seen.expired), (20, 0));
    }

    #[test]
    fn a_full_bin_defers_work_to_the_next() {
        let seen = Timeline {
            kind: Kind::Ours,
            expiry: Expiry::Own,
            bins: vec![0.5, 2.25, 0.5, 0.5, 0.5],
            pause: Duration::ZERO,
            expired: 0,
            most: 0,
        };
        assert_eq!(seen.served(), [0.5, 1.0, 1.0, 1.0, 0.75]);
    }
}
