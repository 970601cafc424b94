//! The interface of a location table, and how one is filled with users who register every ten minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use strowger_foundation::Timestamp;

use super::clock::processor_time;

/// Domain of all users.
pub const DOMAIN: &str = "ex.example.com";
/// Time between two registrations of a user.
pub const REFRESH: Duration = Duration::from_secs(600);
/// Lifetime of a registration.
pub const EXPIRES: Duration = Duration::from_secs(900);
/// Interval between sweeps.
pub const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Number of parts of the paper's incremental sweep, which checks one per second.
pub const PARTS: usize = 60;
/// Start of the measurement: refreshed and expiring registrations have reached their steady state.
pub const BEGINNING: Timestamp = Timestamp::from_millis(1_200_000);

/// A location table shared by several threads, with one contact per user.
pub trait Table: Sync {
    /// Binds `contact` to an address of record until [`EXPIRES`] after `now`, or refreshes the binding.
    fn put(&self, now: Timestamp, aor: &[u8], contact: &[u8], cseq: u32);
    /// As [`put`](Self::put), for an address without a binding.
    fn load(&self, now: Timestamp, aor: &[u8], contact: &[u8], cseq: u32) {
        self.put(now, aor, contact, cseq);
    }
    /// Appends the contact of an address to `out`. Returns whether there is one.
    fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut Vec<u8>) -> bool;
    /// Does a bounded part of the due work in a thread's share and returns the number of removed bindings, or `None`
    /// if nothing is due. The caller can serve requests between two steps.
    fn step(&self, now: Timestamp, thread: ThreadIndex) -> Option<usize>;
    /// Does all due work in a thread's share and returns the number of removed bindings.
    fn work(&self, now: Timestamp, thread: ThreadIndex) -> usize {
        std::iter::from_fn(|| self.step(now, thread)).sum()
    }
    /// Checks one of `of` parts for expired bindings and returns the number of removed ones. Does nothing in a table
    /// that needs no sweep.
    fn sweep(&self, now: Timestamp, part: usize, of: usize) -> usize;
    /// Returns the only thread that may change an address, if there is such a rule.
    fn owner(&self, aor: &[u8], threads: usize) -> Option<usize>;
    /// Returns the number of bindings.
    fn len(&self) -> usize;
    /// Returns whether there are no bindings.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the waits for its locks so far.
    fn waits(&self) -> Waits;
}

/// Index of a thread and number of threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadIndex {
    /// Index from 0.
    pub thread: usize,
    /// Number of threads, at least 1.
    pub of: usize,
}

/// Contended lock acquisitions and their waiting time.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Contended acquisitions per lock.
    pub counts: Vec<u64>,
    /// Total waiting time.
    pub time: Duration,
    /// Part of it spent asleep. The rest is spent spinning, which already counts as processor time.
    pub asleep: Duration,
    /// Longest wait.
    pub longest: Duration,
}

impl Waits {
    /// Returns the contended acquisitions of all locks.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Acquires locks and times contended acquisitions.
#[derive(Debug, Default)]
pub struct LockTimer {
    time: AtomicU64,
    asleep: AtomicU64,
    longest: AtomicU64,
}

impl LockTimer {
    /// Acquires a lock; increments `contended` if it was taken.
    pub fn take<'a, T>(&self, lock: &'a Mutex<T>, contended: &AtomicU64) -> MutexGuard<'a, T> {
        match lock.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let (began, used) = (Instant::now(), processor_time());
                let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
                let used = (processor_time() - used).as_nanos() as u64;
                let waited = began.elapsed().as_nanos() as u64;
                contended.fetch_add(1, Ordering::Relaxed);
                self.time.fetch_add(waited, Ordering::Relaxed);
                self.asleep.fetch_add(waited.saturating_sub(used), Ordering::Relaxed);
                self.longest.fetch_max(waited, Ordering::Relaxed);
                guard
            }
        }
    }

    /// Returns the waits so far, with the counts of the locks.
    pub fn waits<'a>(&self, contended: impl Iterator<Item = &'a AtomicU64>) -> Waits {
        let time = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
        Waits {
            counts: contended.map(|count| count.load(Ordering::Relaxed)).collect(),
            time: time(&self.time),
            asleep: time(&self.asleep),
            longest: time(&self.longest),
        }
    }
}

/// The strings of a user: an address of record of 24 bytes and a contact of 40.
#[derive(Debug)]
pub struct Names {
    aor: Vec<u8>,
    contact: Vec<u8>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            aor: format!("u00000000@{DOMAIN}").into_bytes(),
            contact: b"sip:u00000000@127.0.0.1:40000;line=abcde".to_vec(),
        }
    }
}

impl Names {
    /// Returns the address of record of a user.
    pub fn aor(&mut self, user: u32) -> &[u8] {
        write_number(&mut self.aor[1..9], user);
        &self.aor
    }

    /// Returns the address of record and the contact of a user.
    pub fn both(&mut self, user: u32) -> (&[u8], &[u8]) {
        write_number(&mut self.aor[1..9], user);
        write_number(&mut self.contact[5..13], user);
        (&self.aor, &self.contact)
    }
}

fn write_number(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The order in which users register. Successive users are far apart in number and therefore in memory.
#[derive(Clone, Copy, Debug)]
pub struct RegistrationOrder {
    step: u64,
    users: u64,
}

impl RegistrationOrder {
    /// Creates the order of `users` users, at least one.
    #[must_use]
    pub fn new(users: u32) -> Self {
        // Steps near the golden section revisit a neighbourhood late; steps coprime to the number of users visit all
        // of them.
        let golden = (f64::from(users) * 0.618_034) as u64;
        let users = u64::from(users.max(1));
        let nearest = |step: &u64| {
            let distance = |lag: u64| (lag * step % users).min(users - lag * step % users);
            (1..users.min(1_000)).map(distance).min()
        };
        let steps = golden.saturating_sub(20).max(1)..=golden + 20;
        let step = steps.filter(|step| gcd(*step, users) == 1).max_by_key(nearest).unwrap_or(1);
        Self { step, users }
    }

    /// Returns the user at a place, counted continuously over all rounds.
    #[must_use]
    pub fn user_at(self, place: u64) -> u32 {
        ((place % self.users) * self.step % self.users) as u32
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Registers `users` as if each had registered every ten minutes for a long time, until [`BEGINNING`]. The first user
/// is next.
///
/// Memory is allocated in the order of user numbers, which differs from that of registrations: after years of
/// operation the two orders are unrelated.
pub fn fill(table: &dyn Table, users: u32) {
    let mut names = Names::default();
    let every = REFRESH.as_nanos() as u64 / u64::from(users);
    let order = RegistrationOrder::new(users);
    let begin = |place: u32| Timestamp::ZERO + Duration::from_nanos(every * u64::from(place));
    if table.owner(b"", 1).is_none() {
        // A table without deferred work is the same after one round as after many.
        let mut places = vec![0; users as usize];
        (0..users).for_each(|place| places[order.user_at(u64::from(place)) as usize] = place);
        for (user, place) in (0..users).zip(places) {
            let (aor, contact) = names.both(user);
            table.load(begin(place) + REFRESH, aor, contact, 2);
        }
        return;
    }
    for user in 0..users {
        let (aor, contact) = names.both(user);
        table.load(Timestamp::ZERO, aor, contact, 0);
    }
    let share = ThreadIndex { thread: 0, of: 1 };
    for round in 0..2 {
        for place in 0..users {
            let now = begin(place) + REFRESH * round;
            let (aor, contact) = names.both(order.user_at(u64::from(place)));
            table.put(now, aor, contact, 1 + round);
            if place % 64 == 0 {
                table.work(now, share);
            }
        }
    }
    table.work(BEGINNING, share);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::tables::chained::ChainedTable;
    use crate::tables::kind::Kind;

    /// Any history leaves every table with the contents of a plain map.
    #[test]
    fn all_tables_agree_on_any_history() {
        for seed in 1..=10_u64 {
            let tables = [Kind::Buckets(1), Kind::Buckets(16), Kind::Buckets(512), Kind::Ours].map(|kind| kind.make(1));
            let mut model: HashMap<u32, (Timestamp, u32)> = HashMap::new();
            let mut names = Names::default();
            let mut random = seed;
            let mut now = Timestamp::from_millis(1_000);
            for cseq in 1..2_000_u32 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let user = (random >> 33) as u32 % 300;
                now += Duration::from_millis((random >> 20) % 3_000);
                match (random >> 60) % 4 {
                    0 | 1 => {
                        let contact_of = user * 2 + (random >> 50) as u32 % 2;
                        let (_, contact) = names.both(contact_of);
                        let contact = contact.to_vec();
                        // One contact per user: a new contact replaces the old one.
                        let gone = model.get(&user).is_some_and(|(expires, of)| now < *expires && *of != contact_of);
                        if !gone {
                            tables.iter().for_each(|table| table.put(now, names.aor(user), &contact, cseq));
                            model.insert(user, (now + EXPIRES, contact_of));
                        }
                    }
                    2 => {
                        let expected = model.get(&user).filter(|(expires, _)| now < *expires);
                        let expected = expected.map(|(_, of)| names.both(*of).1.to_vec()).unwrap_or_default();
                        for table in &tables {
                            let mut found = Vec::new();
                            assert_eq!(table.lookup(now, names.aor(user), &mut found), !expected.is_empty());
                            assert_eq!(found, expected, "seed {seed}, step {cseq}");
                        }
                    }
                    _ => {
                        for table in &tables {
                            table.sweep(now, 0, 1);
                            while table.work(now, ThreadIndex { thread: 0, of: 1 }) > 0 {}
                        }
                        model.retain(|_, (expires, _)| now < *expires);
                        let sizes = tables.each_ref().map(|table| table.len());
                        assert_eq!(sizes, [model.len(); 4], "seed {seed}, step {cseq}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_sweep_in_parts_matches_a_single_sweep() {
        let (whole, parts) = (ChainedTable::new(512, 1), ChainedTable::new(512, 1));
        let mut names = Names::default();
        for user in 0..1_000 {
            let now = Timestamp::from_millis(u64::from(user) * 1_000);
            let (aor, contact) = names.both(user);
            whole.load(now, aor, contact, 1);
            parts.load(now, aor, contact, 1);
        }
        let now = Timestamp::from_millis(1_400_000);
        let swept: usize = (0..PARTS).map(|part| parts.sweep(now, part, PARTS)).sum();
        assert_eq!((whole.sweep(now, 0, 1), swept, whole.len()), (501, 501, 499));
    }

    #[test]
    fn the_order_contains_each_user_once() {
        for users in [1, 2, 3, 1_000, 3_000, 10_000, 999_999] {
            let order = RegistrationOrder::new(users);
            let mut seen = vec![false; users as usize];
            (0..u64::from(users)).for_each(|place| seen[order.user_at(place) as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{users}");
            assert_eq!(order.user_at(u64::from(users) * 5 + 7), order.user_at(7), "{users}: round after round");
        }
    }

    #[test]
    fn successive_registrations_are_of_distant_users() {
        for users in [10_000, 100_000, 400_000, 1_000_000, 4_000_000, 10_000_000] {
            let order = RegistrationOrder::new(users);
            for begin in [0, u64::from(users) / 3, u64::from(users) - 500] {
                let mut last: Vec<u32> = (begin..begin + 1_000).map(|place| order.user_at(place)).collect();
                last.sort_unstable();
                let nearest = last.windows(2).map(|pair| pair[1] - pair[0]).min();
                assert!(nearest > Some(users / 10_000), "{nearest:?} of {users}");
            }
        }
    }

    /// Successive users were allocated long before or after each other, and the first record of a chain is not always
    /// the least recently used.
    #[test]
    fn memory_order_differs_from_registration_order() {
        let (table, users) = (ChainedTable::new(1, 1), 1_000);
        fill(&table, users);
        let order = RegistrationOrder::new(users);
        let depths: Vec<usize> =
            (0..u64::from(users)).map(|place| table.depth(Names::default().aor(order.user_at(place)))).collect();
        let mean = |depths: &[usize]| depths.iter().sum::<usize>() / depths.len();
        for tenth in depths.chunks(100) {
            assert!((450..550).contains(&mean(tenth)), "{tenth:?}");
        }
    }

    #[test]
    fn a_free_lock_is_taken_without_waiting() {
        let (patience, lock, contended) = (LockTimer::default(), Mutex::new(7), AtomicU64::new(0));
        assert_eq!(*patience.take(&lock, &contended), 7);
        assert_eq!(
            (patience.waits([&contended].into_iter()).sum(), patience.waits([].into_iter()).time),
            (0, Duration::ZERO)
        );
    }

    #[test]
    fn a_user_registering_every_ten_minutes_stays() {
        for kind in [Kind::Buckets(512), Kind::Ours] {
            let table = kind.make(1);
            fill(&*table, 3_000);
            assert_eq!(table.len(), 3_000, "{kind}");
            let mut names = Names::default();
            let (every, order) = (REFRESH / 3_000, RegistrationOrder::new(3_000));
            for turn in 0..6_000_u32 {
                let now = BEGINNING + every * turn;
                let (aor, contact) = names.both(order.user_at(u64::from(turn)));
                table.put(now, aor, contact, 3 + turn / 3_000);
                table.work(now, ThreadIndex { thread: 0, of: 1 });
                if turn % 100 == 0 {
                    table.sweep(now, 0, 1);
                    assert_eq!(table.len(), 3_000, "{kind} after {turn}");
                }
            }
        }
    }
}
