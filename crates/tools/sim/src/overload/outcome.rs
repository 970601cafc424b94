//! Result of a run.

use core::ops::Range;
use core::time::Duration;

use strowger_foundation::Timestamp;

use super::callers::{Call, Stage};
use super::load::end_of;
use super::{Policy, Setup};

/// Dropped datagrams by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Overflow of the queue of messages in progress, or of the only queue.
    pub overflow_in_progress: u64,
    /// Overflow of the queue of new work.
    pub overflow_new_work: u64,
    /// Dropped by the filter, in the kernel or in the worker.
    pub filter: u64,
    /// Dropped by the controller.
    pub controller: u64,
}

impl Drops {
    /// Returns the total.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.overflow_in_progress + self.overflow_new_work + self.filter + self.controller
    }
}

/// Longest set-up time of a call that was served at its first or second INVITE.
pub const PROMPT: Duration = Duration::from_secs(1);

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Calls that started in it.
    pub offered: u32,
    /// Good calls among these: answered before the caller gave up, and with a BYE answered 200.
    pub good_of_offered: u32,
    /// Good calls that were answered in it, whenever they started.
    pub good: u32,
    /// Good calls among these that were answered within [`PROMPT`] of their first INVITE.
    pub prompt: u32,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Policy of the run.
    pub policy: Policy,
    /// Calls that started.
    pub offered: u64,
    /// Calls that were answered before the caller gave up and whose BYE was answered 200.
    pub good: u64,
    /// Calls that were answered at any time.
    pub answered: u64,
    /// Calls that were rejected with a 503, as their callers see it.
    pub refused: u64,
    /// Calls whose callers sent a BYE before the end of the last phase.
    pub byes: u64,
    /// Calls among these whose BYE was answered 200.
    pub byes_answered: u64,
    /// 503 responses that the server sent.
    pub refusals_sent: u64,
    /// Dropped datagrams.
    pub drops: Drops,
    /// Figures of each second.
    pub seconds: Vec<Second>,
    /// Time of the answer and set-up time of each good call, in the order of the first INVITE.
    pub setups: Vec<(Timestamp, Duration)>,
    /// Checksum of all messages that the server sent, with their times.
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

    /// Returns the good calls answered in these seconds, relative to the capacity.
    #[must_use]
    pub fn goodput(&self, seconds: Range<usize>) -> f64 {
        self.share_of_capacity(seconds, |second| second.good)
    }

    /// Returns the good calls answered in these seconds within [`PROMPT`], relative to the capacity.
    #[must_use]
    pub fn prompt_goodput(&self, seconds: Range<usize>) -> f64 {
        self.share_of_capacity(seconds, |second| second.prompt)
    }

    fn share_of_capacity(&self, seconds: Range<usize>, count: impl Fn(&Second) -> u32) -> f64 {
        let length = u32::try_from(seconds.len()).unwrap_or(u32::MAX);
        let good: u32 = self.seconds.iter().take(seconds.end).skip(seconds.start).map(count).sum();
        f64::from(good) / (f64::from(self.capacity) * f64::from(length))
    }

    /// Returns the `permille` quantile of the set-up times of the good calls answered in these seconds.
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

    /// Returns the share of BYEs that were answered 200.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
    pub fn byes_answered_share(&self) -> f64 {
        if self.byes == 0 { 1.0 } else { self.byes_answered as f64 / self.byes as f64 }
    }
}

fn second_of(at: Timestamp) -> usize {
    usize::try_from(at.as_millis() / 1_000).unwrap_or(usize::MAX)
}
