//! What came of a run.

use core::ops::Range;
use core::time::Duration;

use strowger_foundation::Timestamp;

use super::callers::{Call, Stage};
use super::load::end_of;
use super::{Policy, Setup};

/// Datagrams that were dropped, by what dropped them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The queue of what is in progress was full; the only queue, where there is one.
    pub overflow_in_progress: u64,
    /// The queue of new work was full.
    pub overflow_new_work: u64,
    /// They did not pass the filter, in the kernel or in the worker.
    pub filter: u64,
    /// The controller.
    pub controller: u64,
}

impl Drops {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.overflow_in_progress + self.overflow_new_work + self.filter + self.controller
    }
}

/// A call that is answered within this time was served at its first or second INVITE.
pub const PROMPT: Duration = Duration::from_secs(1);

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Calls that began in it.
    pub offered: u32,
    /// Those of them that were good: answered within the caller's patience, and their BYE was answered 200.
    pub good_of_offered: u32,
    /// Good calls that were answered in it, whenever they began.
    pub good: u32,
    /// Those of them that were answered within [`PROMPT`] of their first INVITE.
    pub prompt: u32,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was compared.
    pub policy: Policy,
    /// Calls that began.
    pub offered: u64,
    /// Calls that were answered within the caller's patience and whose BYE was answered 200.
    pub good: u64,
    /// Calls that were answered, by whatever time.
    pub answered: u64,
    /// Calls that were refused with a 503, as their callers see it.
    pub refused: u64,
    /// Calls whose callers sent a BYE before the last phase was over.
    pub byes: u64,
    /// Those of them whose BYE was answered 200.
    pub byes_answered: u64,
    /// 503s that the server sent.
    pub refusals_sent: u64,
    /// Datagrams that were dropped.
    pub drops: Drops,
    /// Each second of the run.
    pub seconds: Vec<Second>,
    /// For each good call when it was answered, and how long after its first INVITE, in the order of the first INVITE.
    pub setups: Vec<(Timestamp, Duration)>,
    /// Over all that the server sent, and when.
    pub checksum: u32,
    capacity: u32,
}

impl Outcome {
    pub(super) fn of(setup: &Setup, calls: &[Call], (drops, refusals_sent, checksum): (Drops, u64, u32)) -> Self {
        let mut outcome = Self {
            policy: setup.policy,
            offered: 0,
            good: 0,
            answered: 0,
            refused: 0,
            byes: 0,
            byes_answered: 0,
            refusals_sent,
            drops,
            seconds: Vec::new(),
            setups: Vec::new(),
            checksum,
            capacity: setup.capacity,
        };
        let end = end_of(&setup.phases);
        calls.iter().for_each(|call| outcome.add(call, setup.patience, end));
        outcome
    }

    fn add(&mut self, call: &Call, patience: Duration, end: Timestamp) {
        let is_ended = call.stage == Stage::Ended;
        let good = call.answered.filter(|at| is_ended && at.saturating_since(call.began) <= patience);
        let has_hung_up = call.hung_up.is_some_and(|at| at < end);
        self.offered += 1;
        self.good += u64::from(good.is_some());
        self.answered += u64::from(call.answered.is_some());
        self.refused += u64::from(call.stage == Stage::Refused);
        self.byes += u64::from(has_hung_up);
        self.byes_answered += u64::from(has_hung_up && is_ended);
        let second = self.second(call.began);
        second.offered += 1;
        second.good_of_offered += u32::from(good.is_some());
        if let Some(at) = good {
            let time = at.saturating_since(call.began);
            self.setups.push((at, time));
            let second = self.second(at);
            second.good += 1;
            second.prompt += u32::from(time <= PROMPT);
        }
    }

    fn second(&mut self, at: Timestamp) -> &mut Second {
        let index = second_of(at);
        if self.seconds.len() <= index {
            self.seconds.resize(index + 1, Second::default());
        }
        &mut self.seconds[index]
    }

    /// Good calls that were answered in these seconds, as a share of what the capacity allows.
    #[must_use]
    pub fn goodput(&self, seconds: Range<usize>) -> f64 {
        self.share_of_capacity(seconds, |second| second.good)
    }

    /// The same of calls that were answered within [`PROMPT`].
    #[must_use]
    pub fn prompt_goodput(&self, seconds: Range<usize>) -> f64 {
        self.share_of_capacity(seconds, |second| second.prompt)
    }

    fn share_of_capacity(&self, seconds: Range<usize>, count: impl Fn(&Second) -> u32) -> f64 {
        let length = u32::try_from(seconds.len()).unwrap_or(u32::MAX);
        let good: u32 = self.seconds.iter().take(seconds.end).skip(seconds.start).map(count).sum();
        f64::from(good) / (f64::from(self.capacity) * f64::from(length))
    }

    /// In how much time so many thousandths of the good calls were answered that were answered in these seconds, after their first
    /// INVITE.
    #[must_use]
    pub fn setup_time(&self, seconds: Range<usize>, permille: usize) -> Duration {
        let mut times: Vec<_> = self.setup_times(seconds).collect();
        times.sort_unstable();
        let index = (times.len() * permille / 1_000).min(times.len().saturating_sub(1));
        times.get(index).copied().unwrap_or_default()
    }

    fn setup_times(&self, seconds: Range<usize>) -> impl Iterator<Item = Duration> + '_ {
        let is_within = move |at: Timestamp| seconds.contains(&second_of(at));
        self.setups.iter().filter(move |(at, _)| is_within(*at)).map(|(_, time)| *time)
    }

    /// The share of callers who hung up whose BYE was answered 200.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
    pub fn byes_answered_share(&self) -> f64 {
        if self.byes == 0 { 1.0 } else { self.byes_answered as f64 / self.byes as f64 }
    }
}

fn second_of(at: Timestamp) -> usize {
    usize::try_from(at.as_millis() / 1_000).unwrap_or(usize::MAX)
}
