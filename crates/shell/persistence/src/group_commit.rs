//! Group commit timing with [`Mode::WriteThrough`](crate::Mode::WriteThrough): whether the store thread begins a
//! group at once or waits briefly for more records.
//!
//! A busy disk groups by itself: what arrives during a sync forms the next group. A disk that syncs in 0.1 ms would
//! sync for every record if they arrive 0.2 ms apart, and waking the thread and syncing cost more than the rest of a
//! REGISTER. So while records arrive steadily, a group begins a millisecond after the previous one; if it would hold
//! a single record, it begins once that record has waited a millisecond. There is no wait with few records, with
//! many, or if waiting has brought no more records.

use std::time::Duration;

use strowger_foundation::Timestamp;

/// Number of records at which a group need not wait: the share of a sync's cost per record is then small.
pub(crate) const ENOUGH: usize = 16;
/// Interval over which the load is measured.
const SPAN: Duration = Duration::from_millis(20);
/// Records per interval from which the load counts as steady: 500 per second.
const STEADY: u128 = 10;
/// Number of waits after which their benefit is evaluated.
const TRIAL: usize = 16;
/// One further record must have joined per this many waits; otherwise the clients wait for their responses before
/// they send more.
const ONE_MORE_IN: usize = 8;
/// Time without waits after an evaluation without benefit.
const REST: Duration = Duration::from_secs(1);

/// Decides how long to wait, from the arrivals and the groups begun.
#[derive(Debug)]
pub(crate) struct GroupCommit {
    wait: Duration,
    /// Start of the last group.
    begun: Timestamp,
    is_steady: bool,
    /// Start of the current interval, and the records counted in it.
    span: (Timestamp, usize),
    /// Groups that waited, and the records that joined them.
    trial: (usize, usize),
    rests_until: Timestamp,
}

impl GroupCommit {
    /// Creates a policy with maximum wait `wait`.
    pub(crate) fn new(wait: Duration) -> Self {
        let never = Timestamp::ZERO;
        Self { wait, begun: never, is_steady: false, span: (never, 0), trial: (0, 0), rests_until: never }
    }

    /// Returns how long `waiting` records should wait from `now`, the first of which arrived at `first`.
    pub(crate) fn pause(&self, first: Timestamp, waiting: usize, now: Timestamp) -> Duration {
        if waiting >= ENOUGH || !self.is_patient(now) {
            return Duration::ZERO;
        }
        let since = if waiting > 1 { self.begun.min(first) } else { first };
        (since + self.wait).saturating_since(now)
    }

    /// Returns the time, while the queue is empty, within which arriving records may wait.
    pub(crate) fn idle_wait(&self, now: Timestamp) -> Duration {
        if self.is_patient(now) { (self.begun + self.wait).saturating_since(now) } else { Duration::ZERO }
    }

    /// Records that a group of `records` begins; if it waited, `joined` of them arrived during the wait.
    pub(crate) fn begin(&mut self, now: Timestamp, records: usize, joined: Option<usize>) {
        self.begun = now;
        self.measure(now, records);
        let Some(joined) = joined else { return };
        self.trial = (self.trial.0 + 1, self.trial.1 + joined);
        if self.trial.0 == TRIAL {
            if self.trial.1 < TRIAL / ONE_MORE_IN {
                self.rests_until = now + REST;
            }
            self.trial = (0, 0);
        }
    }

    fn measure(&mut self, now: Timestamp, records: usize) {
        let (since, count) = (self.span.0, self.span.1 + records);
        let elapsed = now.saturating_since(since);
        if elapsed < SPAN {
            self.span.1 = count;
            return;
        }
        self.is_steady = count as u128 * SPAN.as_nanos() >= STEADY * elapsed.as_nanos();
        self.span = (now, 0);
    }

    /// Returns whether records arrive steadily enough for waiting to pay off. An old measurement does not count.
    fn is_patient(&self, now: Timestamp) -> bool {
        self.is_steady && now.saturating_since(self.span.0) < 2 * SPAN && now >= self.rests_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(1);
    const SYNC: Duration = Duration::from_micros(100);

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    /// Result of a simulated load.
    #[derive(Debug, Default)]
    struct Outcome {
        groups: usize,
        records: usize,
        /// Longest time from the arrival of a record to the start of its group.
        longest: Duration,
        total: Duration,
        finished: Timestamp,
    }

    impl Outcome {
        fn mean_wait(&self) -> Duration {
            self.total / self.records as u32
        }

        fn a_group(&self) -> f64 {
            self.records as f64 / self.groups as f64
        }
    }

    /// A store thread in virtual time. `arrivals` returns the next arrival, given the end of the last group.
    struct Thread {
        grouping: GroupCommit,
        now: Timestamp,
        sync: Duration,
    }

    impl Thread {
        fn new(sync: Duration) -> Self {
            Self { grouping: GroupCommit::new(WAIT), now: at(5_000_000_000), sync }
        }

        /// Serves records that arrive at the given times, in ascending order.
        fn serve(&mut self, arrivals: &[Timestamp]) -> Outcome {
            let mut outcome = Outcome::default();
            let mut rest = arrivals;
            while let Some(first) = rest.first().copied() {
                let there = |now: Timestamp| rest.iter().take_while(|at| **at <= now).count();
                let ready = there(self.now);
                let mut waited = false;
                // Like the queue: sleeps through the idle wait, then until the first record is due. The sixteenth
                // record wakes it.
                let full = rest.get(ENOUGH - 1).copied();
                let sleep = |now: Timestamp, pause| full.map_or(now + pause, |full| full.min(now + pause)).max(now);
                if ready == 0 {
                    self.now = sleep(self.now, self.grouping.idle_wait(self.now));
                    waited = there(self.now) > 0;
                    self.now = self.now.max(first);
                }
                loop {
                    let waiting = there(self.now);
                    let pause = self.grouping.pause(first, waiting, self.now);
                    if pause.is_zero() {
                        break;
                    }
                    waited = true;
                    self.now = sleep(self.now, pause);
                }
                let count = there(self.now);
                self.grouping.begin(self.now, count, waited.then(|| count - ready.max(1)));
                for came in &rest[..count] {
                    let wait = self.now.saturating_since(*came);
                    outcome.longest = outcome.longest.max(wait);
                    outcome.total += wait;
                }
                (outcome.groups, outcome.records) = (outcome.groups + 1, outcome.records + count);
                rest = &rest[count..];
                self.now += self.sync;
            }
            outcome.finished = self.now;
            outcome
        }

        /// Serves `count` records, one every `gap`.
        fn steady(&mut self, gap: Duration, count: u32) -> Outcome {
            let begin = self.now;
            let arrivals: Vec<_> = (1..=count).map(|number| begin + gap * number).collect();
            self.serve(&arrivals)
        }

        /// Simulates a client with `window` outstanding records that sends the next ones once all are answered.
        fn closed(&mut self, window: usize, rounds: usize) -> Outcome {
            let begin = self.now;
            let mut all = Outcome::default();
            for _ in 0..rounds {
                let sent = self.now + Duration::from_micros(50);
                let Outcome { groups, records, longest, .. } = self.serve(&vec![sent; window]);
                all.groups += groups;
                all.records += records;
                all.longest = all.longest.max(longest);
            }
            all.total = self.now.saturating_since(begin);
            all
        }
    }

    #[test]
    fn records_200_us_apart_commit_in_groups_of_5() {
        let outcome = Thread::new(SYNC).steady(Duration::from_micros(200), 20_000);
        assert!((4.5..=6.5).contains(&outcome.a_group()), "{outcome:?}");
        assert!(outcome.longest <= WAIT + SYNC, "{outcome:?}");
        assert!(outcome.mean_wait() <= Duration::from_micros(600), "{outcome:?}");
    }

    #[test]
    fn records_1_ms_apart_commit_in_pairs() {
        let outcome = Thread::new(SYNC).steady(Duration::from_micros(990), 20_000);
        assert!((1.9..=2.2).contains(&outcome.a_group()), "{outcome:?}");
        assert!(outcome.longest <= WAIT + SYNC, "{outcome:?}");
    }

    #[test]
    fn rare_records_do_not_wait() {
        for gap in [3, 10, 1000] {
            let outcome = Thread::new(SYNC).steady(Duration::from_millis(gap), 500);
            assert_eq!((outcome.groups, outcome.longest), (500, Duration::ZERO), "{outcome:?}");
        }
    }

    #[test]
    fn a_record_after_a_pause_does_not_wait() {
        let mut thread = Thread::new(SYNC);
        thread.steady(Duration::from_micros(200), 1000);
        assert!(thread.grouping.idle_wait(thread.now) > Duration::ZERO);
        let late = thread.now + Duration::from_secs(1);
        assert_eq!(thread.serve(&[late]).longest, Duration::ZERO);
    }

    #[test]
    fn many_do_not_wait() {
        // 100,000 per second, 16 of which arrive within 0.16 ms.
        let outcome = Thread::new(SYNC).steady(Duration::from_micros(10), 100_000);
        // The last records wait for further ones that do not come.
        assert!(outcome.longest <= WAIT, "{outcome:?}");
        assert!(outcome.mean_wait() <= Duration::from_micros(80), "{outcome:?}");
        assert!(outcome.a_group() >= (ENOUGH - 1) as f64, "{outcome:?}");
    }

    #[test]
    fn a_slow_disk_groups_by_itself() {
        let slow = Duration::from_millis(5);
        let outcome = Thread::new(slow).steady(Duration::from_micros(500), 10_000);
        assert!(outcome.longest <= slow, "nobody waits for more than the sync before: {outcome:?}");
        assert!((9.0..=11.0).contains(&outcome.a_group()), "{outcome:?}");
    }

    #[test]
    fn one_closed_loop_client_is_hardly_slowed_down() {
        let rounds = 100_000;
        let outcome = Thread::new(SYNC).closed(1, rounds);
        let without = (SYNC + Duration::from_micros(50)) * rounds as u32;
        assert!(outcome.total < without * 11 / 10, "{:?} where it could be {without:?}", outcome.total);
        assert!(outcome.longest <= WAIT);
    }

    #[test]
    fn sixteen_closed_loop_clients_are_not_slowed_down() {
        let outcome = Thread::new(SYNC).closed(ENOUGH, 10_000);
        assert_eq!((outcome.groups, outcome.longest), (10_000, Duration::ZERO), "{outcome:?}");
    }

    #[test]
    fn waiting_resumes_when_more_records_arrive() {
        let mut thread = Thread::new(SYNC);
        thread.closed(1, 1000);
        let outcome = thread.steady(Duration::from_micros(200), 20_000);
        assert!(outcome.a_group() > 2.5, "{outcome:?}");
    }

    #[test]
    fn no_record_waits_at_zero_limit() {
        let mut thread = Thread::new(SYNC);
        thread.grouping = GroupCommit::new(Duration::ZERO);
        let outcome = thread.steady(Duration::from_micros(200), 1000);
        assert_eq!((outcome.groups, outcome.longest), (1000, Duration::ZERO));
    }
}
