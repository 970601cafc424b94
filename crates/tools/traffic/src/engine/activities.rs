//! Recurring activities of users, each independent of the others: calling after a think time, registering every few
//! minutes.
//!
//! The schedule stores only a user's next time and repetition count, 28 bytes for each user and activity; a session
//! exists only while something is in progress. Random numbers derive from these two values, so one seed gives every
//! user the same gaps with any number of threads, and regardless of when the previous session has ended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use rand::SeedableRng as _;
use strowger_foundation::Timestamp;

use super::mix::Mix;
use crate::driver::mix;
use crate::law::{Law, Rng};

/// Mean gaps that lie behind every user when a run begins, so that the run begins in the steady state.
const GAPS_BEFORE: f64 = 3.0;

/// Event from which the gap to a user's next time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapFrom {
    /// Beginning of the last session.
    Begin,
    /// End of the last session.
    End,
}

/// A recurring activity of many users.
#[derive(Clone, Debug)]
pub struct Activity {
    /// End that performs it.
    pub who: CallRole,
    /// Scripts of that end.
    pub mix: Mix,
    /// Time between two repetitions of a user.
    pub gap: Law,
    /// Event from which the gap counts.
    pub gap_from: GapFrom,
}

/// An activity of a user that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueActivity {
    /// Index of the activity.
    pub habit: usize,
    /// User.
    pub user: u32,
    /// Due time.
    pub at: Timestamp,
    /// Seed of everything random in it.
    pub number: u64,
}

/// Next times of a thread's users.
#[derive(Debug)]
pub struct ActivitySchedule {
    /// Origin of the times in the list.
    begin: Timestamp,
    list: Vec<ActivityState>,
}

/// State of one activity, for all users of the thread.
#[derive(Debug)]
struct ActivityState {
    gap: Law,
    again: GapFrom,
    seed: u64,
    /// Repetition count of each user of this thread, in their order. `users` is the first user and the step to the
    /// next.
    counts: Vec<u32>,
    users: (u32, u32),
    next: BinaryHeap<Reverse<(Duration, u32)>>,
}

impl ActivitySchedule {
    /// Creates the schedule of thread `thread` of `threads`. Each user's first time is drawn as if the user had been
    /// active for long. With a million users this takes a while, so it happens before the phase begins.
    #[must_use]
    pub fn new(activities: &[Activity], users: &Range<u32>, seed: u64, (thread, threads): (usize, usize)) -> Self {
        let going = |(number, habit): (u64, &Activity)| {
            let mut going = ActivityState {
                gap: habit.gap.clone(),
                again: habit.gap_from,
                seed: mix(seed ^ mix(number)),
                counts: Vec::new(),
                users: (users.start.saturating_add(small(thread)), small(threads.max(1))),
                next: BinaryHeap::new(),
            };
            let own = users.clone().skip(thread).step_by(threads.max(1));
            going.counts = vec![0; own.len()];
            let first: Vec<_> = own.map(|user| Reverse((going.first(user), user))).collect();
            going.next = first.into();
            going
        };
        Self { begin: Timestamp::ZERO, list: (0..).zip(activities).map(going).collect() }
    }

    /// Sets the beginning of the schedule.
    #[must_use]
    pub fn beginning(self, begin: Timestamp) -> Self {
        Self { begin, ..self }
    }

    /// Returns the next due time of any user.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        let next = self.list.iter().filter_map(|going| Some(going.next.peek()?.0.0)).min()?;
        Some(self.begin + next)
    }

    /// Returns the next activity that is due.
    pub fn poll_due(&mut self, now: Timestamp) -> Option<DueActivity> {
        let first = |(_, going): &(usize, &mut ActivityState)| going.next.peek().map_or(Duration::MAX, |next| next.0.0);
        let (habit, going) = self.list.iter_mut().enumerate().min_by_key(first)?;
        let Reverse((after, user)) = *going.next.peek()?;
        let at = self.begin + after;
        if at > now {
            return None;
        }
        going.next.pop();
        if let Some(count) = going.place(user).and_then(|place| going.counts.get_mut(place)) {
            *count = count.wrapping_add(1);
        }
        if going.again == GapFrom::Begin {
            going.wait(user, after);
        }
        Some(DueActivity { habit, user, at, number: going.number(user) })
    }

    /// Handles a session that has ended or could not begin: schedules the next one if the gap counts from the end.
    pub fn on_end(&mut self, habit: usize, user: u32, now: Timestamp) {
        let after = now.saturating_since(self.begin);
        if let Some(going) = self.list.get_mut(habit).filter(|going| going.again == GapFrom::End) {
            going.wait(user, after);
        }
    }
}

impl ActivityState {
    fn wait(&mut self, user: u32, from: Duration) {
        let mut rng = Rng::seed_from_u64(mix(self.number(user)));
        self.next.push(Reverse((from + self.gap.sample(&mut rng), user)));
    }

    /// Returns the time from the beginning to a user's first session.
    fn first(&self, user: u32) -> Duration {
        let mut rng = Rng::seed_from_u64(mix(self.number(user)));
        let Some(mean) = self.gap.mean().filter(|mean| *mean > 0.0) else { return self.gap.sample(&mut rng) };
        let uniform: f64 = rand_distr::Distribution::sample(&rand_distr::StandardUniform, &mut rng);
        let mut at = -(GAPS_BEFORE + uniform) * mean;
        while at < 0.0 {
            at += self.gap.seconds(&mut rng).max(mean * 1e-3);
        }
        Duration::try_from_secs_f64(at).unwrap_or_default()
    }

    /// Returns the random number of a user's current repetition.
    fn number(&self, user: u32) -> u64 {
        let count = self.place(user).and_then(|place| self.counts.get(place)).copied().unwrap_or(0);
        mix(self.seed ^ mix(u64::from(count) << 32 | u64::from(user)))
    }

    fn place(&self, user: u32) -> Option<usize> {
        let (first, step) = self.users;
        usize::try_from(user.checked_sub(first)? / step.max(1)).ok()
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Which of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRole {
    /// The one that calls.
    Caller,
    /// Called end.
    Callee,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn habit(gap: &str, again: GapFrom) -> Activity {
        Activity { who: CallRole::Caller, mix: Mix::One(0), gap: Law::parse(gap).expect("a law"), gap_from: again }
    }

    fn until(activities: &mut ActivitySchedule, end: Timestamp) -> Vec<DueActivity> {
        std::iter::from_fn(|| activities.poll_due(end)).collect()
    }

    #[test]
    fn every_user_acts_once_per_interval_from_the_start() {
        let begin = Timestamp::from_millis(5_000);
        let mut activities =
            ActivitySchedule::new(&[habit("600s", GapFrom::Begin)], &(100..1_100), 7, (0, 1)).beginning(begin);
        let all = until(&mut activities, begin + Duration::from_secs(1_800));
        assert_eq!(all.len(), 3_000);
        for user in 100..1_100 {
            let times: Vec<_> = all.iter().filter(|due| due.user == user).map(|due| due.at).collect();
            assert_eq!(times.len(), 3);
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_secs(600)));
        }
        // Not all at once: about the same number in each minute.
        for minute in 0..10 {
            let from = begin + Duration::from_secs(60 * minute);
            let count = all.iter().filter(|due| due.at >= from && due.at < from + Duration::from_secs(60)).count();
            assert!((60..140).contains(&count), "{count} in minute {minute}");
        }
        assert!(all.is_sorted_by_key(|due| due.at));
    }

    #[test]
    fn think_time_is_memoryless_and_starts_at_the_end() {
        let mut activities = ActivitySchedule::new(&[habit("exp(mean=1h)", GapFrom::End)], &(0..10_000), 7, (0, 1));
        let hour = Timestamp::from_millis(3_600_000);
        let all = until(&mut activities, hour);
        // 1 - 1/e of all, within four standard deviations; and no user twice before its first call has ended.
        assert!(all.len().abs_diff(6_321) < 200, "{}", all.len());
        let due = all[0];
        activities.on_end(due.habit, due.user, hour);
        let rest: Vec<_> = until(&mut activities, Timestamp::MAX);
        assert_eq!(rest.len(), 10_000 - all.len() + 1);
        assert!(rest.iter().any(|again| again.user == due.user && again.at > hour));
    }

    #[test]
    fn call_length_does_not_change_think_times() {
        let gaps = |talk: Duration| {
            let mut activities = ActivitySchedule::new(&[habit("exp(mean=60s)", GapFrom::End)], &(10..11), 3, (0, 1));
            let mut gaps = Vec::new();
            let mut ended = Timestamp::ZERO;
            while gaps.len() < 20 {
                let due = activities.poll_due(Timestamp::MAX).expect("one user waits");
                gaps.push((due.at.saturating_since(ended), due.number));
                ended = due.at + talk;
                activities.on_end(due.habit, due.user, ended);
            }
            gaps
        };
        let short = gaps(Duration::from_nanos(1));
        assert_eq!(short, gaps(Duration::from_nanos(7_654_321)));
        assert!(short.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn threads_split_the_users_and_keep_the_times() {
        let list = [habit("exp(mean=60s)", GapFrom::Begin), habit("100s", GapFrom::Begin)];
        let end = Timestamp::from_millis(300_000);
        let of = |thread, threads| until(&mut ActivitySchedule::new(&list, &(0..100), 3, (thread, threads)), end);
        let mut one = of(0, 1);
        let mut three: Vec<_> = (0..3).flat_map(|thread| of(thread, 3)).collect();
        let key = |due: &DueActivity| (due.at, due.user, due.habit);
        one.sort_by_key(key);
        three.sort_by_key(key);
        assert_eq!(one, three);
    }
}
