//! Lock contention of two cores that do nothing but read and change a table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::kind::Kind;
use super::measure::Population;
use super::table::{Names, ThreadIndex, Waits};
use crate::register::process::stay_on;

/// Registrations per lookup, as for the paper's users.
const REGISTRATIONS: u64 = 6;

/// LockContention of a table.
#[derive(Clone, Debug)]
pub struct LockContention {
    /// Kind of table.
    pub kind: Kind,
    /// Whether one of the threads sweeps once.
    pub sweeps: bool,
    /// Operations of both threads.
    pub operations: u64,
    /// Duration of the run.
    pub time: Duration,
    /// Waits for locks.
    pub waits: Waits,
}

impl LockContention {
    /// Runs two threads on separate cores against a table for `time`.
    #[must_use]
    pub fn run(kind: Kind, sweeps: bool, users: u32, time: Duration) -> Self {
        let population = Population::new(kind, users, 2);
        let table = &*population.table;
        let stop = AtomicBool::new(false);
        let began = Instant::now();
        let work = |thread: usize| {
            let _ = stay_on(thread);
            let mut names = Names::default();
            let mut is_ours = |user: &u32| table.owner(names.aor(*user), 2).is_none_or(|owner| owner == thread);
            let users_of_ours: Vec<u32> = (0..users).filter(|user| is_ours(user)).collect();
            let (mut random, mut done, mut found) = (thread as u64 + 1, 0_u64, Vec::new());
            let mut is_swept = !sweeps || thread != 0;
            let now = population.now();
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let pick = (random >> 33) as usize;
                if done % (REGISTRATIONS + 1) == REGISTRATIONS {
                    found.clear();
                    table.lookup(now, names.aor((pick % users as usize) as u32), &mut found);
                } else {
                    let (aor, contact) = names.both(users_of_ours[pick % users_of_ours.len()]);
                    table.put(now, aor, contact, 3 + done as u32);
                    table.work(now, ThreadIndex { thread, of: 2 });
                }
                done += 1;
                // Once, halfway through the run.
                if !is_swept && done % 1_000 == 0 && began.elapsed() > time / 2 {
                    table.sweep(now, 0, 1);
                    is_swept = true;
                }
            }
            done
        };
        let operations = thread::scope(|scope| {
            let work = &work;
            let threads = [0, 1].map(|thread| scope.spawn(move || work(thread)));
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            threads.map(|thread| thread.join().expect("it ends")).iter().sum()
        });
        Self { kind, sweeps, operations, time: began.elapsed(), waits: table.waits() }
    }

    /// Returns the contended lock acquisitions per million operations.
    #[must_use]
    pub fn per_million(&self) -> f64 {
        self.waits.sum() as f64 * 1e6 / self.operations as f64
    }

    /// Returns the share of both threads' time that was spent waiting.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.waits.time.as_secs_f64() / self.time.as_secs_f64() / 2.0
    }

    /// Returns the ratio of waits for the most contended lock to the mean over all locks.
    #[must_use]
    pub fn most_of_mean(&self) -> f64 {
        let most = self.waits.counts.iter().copied().max().unwrap_or(0);
        most as f64 * self.waits.counts.len() as f64 / self.waits.sum().max(1) as f64
    }
}
